"""Corpora: admission records, text, and a synthetic default that needs no download."""

from dwl_jax.data.codes import paper81, paper81_words
from dwl_jax.data.corpus import KINDS, MISSING, Corpus
from dwl_jax.data.mimic import read_mimic3, read_mimic4
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
from dwl_jax.data.text import (
    english_stop_words,
    from_matrix,
    from_tokens,
    read_folder,
    read_labelled_lines,
    tokenize,
)
from dwl_jax.data.vectors import Vectors, fill_missing, read_vectors
from dwl_jax.data.word2vec import train_word2vec

__all__ = [
    "KINDS",
    "MISSING",
    "Corpus",
    "Vectors",
    "count_kind",
    "drop_words",
    "english_stop_words",
    "fill_missing",
    "from_matrix",
    "from_tokens",
    "load",
    "paper81",
    "paper81_words",
    "read_folder",
    "read_labelled_lines",
    "read_mimic3",
    "read_mimic4",
    "read_nhds",
    "read_vectors",
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
    "tokenize",
    "train_word2vec",
]
