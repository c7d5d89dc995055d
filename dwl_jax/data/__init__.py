"""Corpora: admission records, text, and a synthetic default that needs no download."""

from dwl_jax.data.codes import paper81, paper81_words
from dwl_jax.data.corpus import KINDS, MISSING, Corpus
from dwl_jax.data.nhds import read_nhds
from dwl_jax.data.selection import (
    count_kind,
    drop_words,
    select_docs,
    select_labelled,
    select_min_count,
    select_paper81,
    select_top,
    select_words,
)
from dwl_jax.data.splits import split, split_rows
from dwl_jax.data.store import load, save
from dwl_jax.data.synthetic import synthetic_admissions

__all__ = [
    "KINDS",
    "MISSING",
    "Corpus",
    "count_kind",
    "drop_words",
    "load",
    "paper81",
    "paper81_words",
    "read_nhds",
    "save",
    "select_docs",
    "select_labelled",
    "select_min_count",
    "select_paper81",
    "select_top",
    "select_words",
    "split",
    "split_rows",
    "synthetic_admissions",
]
