"""Synthetic admissions: the corpus that is always there.

Drawn from the table of patient profiles in the package (see docs/data.md for how near
it comes to the survey it was fitted on); no record is in the package.
"""

import functools
import importlib.resources

import numpy as np
import scipy.sparse as sp

from dwl_jax.data import codes, profiles
from dwl_jax.data.corpus import Corpus, note

PAPER_DOCS = 11_086  # admissions in the paper's subset of MIMIC-III


@functools.cache
def patient_profiles() -> profiles.Profiles:
    """The fitted table in the package."""
    folder = importlib.resources.files("dwl_jax.data") / "tables"
    return profiles.read(folder / "profiles.csv")


def synthetic_admissions(
    num_docs: int = PAPER_DOCS,
    seed: int = 0,
    *,
    table: profiles.Profiles | None = None,
) -> Corpus:
    """Draws admissions over the paper's 81 codes; needs no file.

    Each has at least two diseases and two procedures, as in the paper's subset: the
    profiles' tables of sizes start there, so nothing is drawn and rejected.

    Example:
      `corpus = dwl_jax.data.synthetic_admissions(num_docs=2_000, seed=1)`

    Args:
      num_docs: how many.
      seed: of a PCG64 generator; same seed and number, same corpus.
      table: other profiles than those in the package.

    Returns:
      A Corpus with labels `died` ("died", "alive") and `admission_type` ("emergency",
      "urgent", "elective", "newborn"), none missing, and ids "synthetic-0", ...
    """
    if num_docs < 1:
        raise ValueError(f"num_docs must be at least 1, got {num_docs}.")
    table = patient_profiles() if table is None else table
    rng = np.random.Generator(np.random.PCG64(seed))
    code_list = codes.paper81()
    is_disease = np.array([code.kind == "disease" for code in code_list])
    odds = profiles.odds_of(table.codes)
    blocks = []
    for start in range(0, num_docs, 65_536):
        size = min(65_536, num_docs - start)
        blocks.append(_draw(rng, table, odds, is_disease, size))
    counts = sp.vstack([block[0] for block in blocks], format="csr")
    died = np.concatenate([block[1] for block in blocks])
    types = np.concatenate([block[2] for block in blocks])
    return Corpus(
        counts=counts,
        vocab=codes.paper81_words(),
        kinds=tuple(code.kind for code in code_list),
        descriptions=tuple(code.label for code in code_list),
        labels={
            "died": np.where(died, "died", "alive"),
            "admission_type": np.array(table.type_names)[types],
        },
        ids=[f"synthetic-{m}" for m in range(num_docs)],
        history=note((), f"synthetic_admissions: {num_docs:,} drawn, seed {seed}"),
    )


def _draw(rng, table: profiles.Profiles, odds, is_disease, size: int):
    """One block: sparse counts, died [size] bool, type [size]."""
    profile = profiles.draw_rows(rng, table.weight[None, :], np.zeros(size, np.int64))
    chosen = np.zeros((size, is_disease.size), dtype=np.int32)
    for of_kind, sizes in (
        (is_disease, table.num_diseases),
        (~is_disease, table.num_procedures),
    ):
        number = profiles.draw_rows(rng, sizes, profile)
        chosen[:, of_kind] = profiles.draw_codes(rng, odds[:, of_kind], profile, number)
    died = rng.random(size) < table.died[profile]
    types = profiles.draw_rows(rng, table.types, profile)
    return sp.csr_array(chosen), died, types
