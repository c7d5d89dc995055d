"""Fits the mixture of patient profiles to NHDS by EM and writes the package's table.

    python -m experiments.fit_profiles --nhds=nhds2010.txt.bz2 --out=profiles.csv

Only sums over many admissions reach the table: a profile that stands for fewer than
--min_admissions is dissolved, every rate is pulled towards the rate of all admissions
by --smooth pseudo-admissions, and numbers are rounded to four places. Of the
numbers of profiles tried, the one with the best held-out likelihood is taken.
"""

import pathlib
import tempfile
from typing import NamedTuple

import numpy as np
from absl import app, flags, logging

from dwl_jax.data import codes, nhds, profiles, split, synthetic
from dwl_jax.data.corpus import Corpus
from experiments import fidelity

FLAGS = flags.FLAGS

IS_DISEASE = np.array([code.kind == "disease" for code in codes.paper81()])
KINDS = (IS_DISEASE, ~IS_DISEASE)


class Data(NamedTuple):
    """Admissions as arrays; label rows are all 0 where the label is missing."""

    x: np.ndarray  # [M, 81] 0/1
    sizes: tuple[np.ndarray, np.ndarray]  # one-hot number of diseases, procedures
    died: np.ndarray  # [M, 2] alive, died
    types: np.ndarray  # [M, T]


def to_data(corpus: Corpus, type_names, tops) -> Data:
    x = (corpus.counts > 0).toarray().astype(np.float64)
    onehot = lambda label, names: np.stack(
        [corpus.labels[label] == n for n in names], axis=1
    ).astype(np.float64)
    sizes = tuple(
        np.eye(top + 1)[x[:, kind].sum(axis=1).astype(int)]
        for kind, top in zip(KINDS, tops, strict=True)
    )
    types = onehot("admission_type", type_names)
    return Data(x, sizes, onehot("died", ("alive", "died")), types)


def inclusion(odds, sizes):
    """[K, J] chance of each code when the size is drawn from sizes [K, n]."""
    top = sizes.shape[1] - 1
    after = profiles.symmetric(odds, top)  # of odds[:, j:]
    before = profiles.symmetric(odds[:, ::-1], top)[:, ::-1]  # of odds[:, :j]
    chance = np.zeros_like(odds)
    for n in range(1, top + 1):
        # e_{n-1} without j: sizes i before j and n-1-i after it.
        rest = sum(before[:, :-1, i] * after[:, 1:, n - 1 - i] for i in range(n))
        total = np.maximum(after[:, 0, n], 1e-300)
        chance += sizes[:, n, None] * odds * rest / total[:, None]
    return chance


def solve_odds(odds, target, sizes, *, steps=5):
    """Moves odds towards inclusion == target (Chen, Dempster and Liu 1994)."""
    for _ in range(steps):
        odds = odds * target / np.maximum(inclusion(odds, sizes), 1e-12)
        # Only ratios matter: fix the scale, so that odds stay odds of probabilities.
        scale = target.sum(axis=1) / (odds / (1 + odds)).sum(axis=1)
        odds = np.clip(odds * scale[:, None], 1e-6, 1e4)
    return odds


def log_joint(model, odds, data: Data):
    """[M, K] log of profile weight and likelihood of codes and known labels."""
    log = lambda p: np.log(np.maximum(p, 1e-12))
    ll = np.broadcast_to(log(model.weight), (data.x.shape[0], model.weight.size))
    ll = ll + data.x @ np.log(odds).T
    tables = (model.num_diseases, model.num_procedures)
    for kind, size, table in zip(KINDS, data.sizes, tables, strict=True):
        e = profiles.symmetric(odds[:, kind], table.shape[1] - 1)[:, 0]
        ll = ll + size @ (log(table) - np.log(np.maximum(e, 1e-300))).T
    ll = ll + data.died @ log(np.stack([1 - model.died, model.died]))
    return ll + data.types @ log(model.types).T


def responsibilities(ll):
    """[M, K] posterior of profiles, and the mean log likelihood."""
    top = ll.max(axis=1, keepdims=True)
    p = np.exp(ll - top)
    total = p.sum(axis=1, keepdims=True)
    return p / total, float(np.mean(top + np.log(total)))


def m_step(r, data: Data, type_names, odds, *, smooth, steps=5):
    """Profiles and odds from responsibilities r [M, K]."""
    number = r.sum(axis=0)
    pooled = lambda z: z.sum(axis=0) / z.sum()
    rate = lambda z: (
        (r.T @ z + smooth * pooled(z)) / ((r.T @ z).sum(axis=1, keepdims=True) + smooth)
    )
    prevalence = data.x.mean(axis=0)
    target = (r.T @ data.x + smooth * prevalence) / (number + smooth)[:, None]
    sizes = [rate(size) for size in data.sizes]
    if odds is None:
        odds = profiles.odds_of(np.clip(target, 1e-4, 0.99))
    odds = odds.copy()
    for kind, size in zip(KINDS, sizes, strict=True):
        odds[:, kind] = solve_odds(odds[:, kind], target[:, kind], size, steps=steps)
    model = profiles.Profiles(
        weight=number / number.sum(),
        codes=odds / (1 + odds),
        num_diseases=sizes[0],
        num_procedures=sizes[1],
        died=rate(data.died)[:, 1],
        types=rate(data.types),
        type_names=type_names,
    )
    return model, odds


def fit(data: Data, type_names, *, num_profiles, iters, seed, smooth, least):
    """EM from soft random seeds; profiles below `least` admissions are dissolved."""
    rng = np.random.Generator(np.random.PCG64(seed))
    centres = data.x[rng.choice(data.x.shape[0], num_profiles, replace=False)]
    away = data.x.sum(1)[:, None] + centres.sum(1)[None] - 2 * data.x @ centres.T
    r, _ = responsibilities(-away)
    model, odds = m_step(r, data, type_names, None, smooth=smooth)
    for i in range(iters):
        r, ll = responsibilities(log_joint(model, odds, data))
        small = int(np.argmin(r.sum(axis=0)))
        if i >= 20 and r[:, small].sum() < least:
            r = np.delete(r, small, axis=1)
            r = (r + 1e-12) / (r + 1e-12).sum(axis=1, keepdims=True)
            odds = np.delete(odds, small, axis=0)
        last = i == iters - 1
        model, odds = m_step(
            r,
            data,
            type_names,
            odds,
            smooth=smooth,
            steps=50 if last else 5,
        )
        if i % 25 == 0 or last:
            logging.info("iteration %d: log likelihood %.4f", i, ll)
    return model, odds, r.sum(axis=0)


def held_out(corpus: Corpus, type_names, tops, num_profiles: int) -> float:
    """Mean log likelihood of a fifth of the admissions under a fit to the rest."""
    parts = split(corpus, fractions=(0.8, 0.2), seed=FLAGS.seed)
    train, test = (to_data(part, type_names, tops) for part in parts)
    model, odds, _ = fit(train, type_names, **_options(num_profiles))
    return responsibilities(log_joint(model, odds, test))[1]


def _options(num_profiles: int) -> dict:
    return {
        "num_profiles": num_profiles,
        "iters": FLAGS.iters,
        "seed": FLAGS.seed,
        "smooth": FLAGS.smooth,
        "least": FLAGS.min_admissions,
    }


def report(real: Corpus, table: profiles.Profiles, sizes=(11_086, 200_000)) -> None:
    """Prints the fidelity of synthetic corpora of several sizes, seed 0."""
    found = [
        fidelity.measure(real, synthetic.synthetic_admissions(size, 0, table=table))
        for size in sizes
    ]
    show = lambda v: " / ".join(f"{x:.4f}" for x in np.atleast_1d(v))
    print(f"{'measure':20s}" + "".join(f"{f'{size:,} drawn':>22s}" for size in sizes))
    for name in fidelity.Fidelity._fields:
        print(f"{name:20s}" + "".join(f"{show(getattr(f, name)):>22s}" for f in found))


def main(argv):
    del argv
    corpus = nhds.read_nhds(
        FLAGS.nhds, codes="paper81", min_diseases=2, min_procedures=2
    )
    print(corpus)
    present = set(corpus.labels["admission_type"])
    known = nhds.ADMISSION_TYPE.values()
    type_names = tuple(name for name in known if name and name in present)
    tops = (nhds.DIAGNOSES[1], nhds.PROCEDURES[1])
    scores = {n: held_out(corpus, type_names, tops, n) for n in FLAGS.profiles}
    for number, score in scores.items():
        print(f"start with {number} profiles: held-out log likelihood {score:.4f}")
    best = max(scores, key=scores.get)
    data = to_data(corpus, type_names, tops)
    table, _, number = fit(data, type_names, **_options(best))
    print(
        f"{number.size} profiles, {number.min():.1f} to {number.max():.1f} admissions"
    )
    if number.min() < FLAGS.min_admissions:
        raise ValueError("a profile rests on too few admissions: more --iters needed.")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(FLAGS.out or f"{folder}/profiles.csv")
        profiles.write(table, path)
        report(corpus, profiles.read(path))  # of the table as it is after rounding


def define_flags():
    flags.DEFINE_string("nhds", None, "NHDS 2010 file.", required=True)
    flags.DEFINE_string("out", None, "Table to write (.csv); none: report only.")
    flags.DEFINE_multi_integer(
        "profiles", [20, 30, 40, 50, 60], "Numbers of profiles to try."
    )
    flags.DEFINE_float("min_admissions", 50.0, "Least expected number per profile.")
    flags.DEFINE_float("smooth", 5.0, "Pseudo-admissions of the overall rates.")
    flags.DEFINE_integer("iters", 150, "EM iterations.")
    flags.DEFINE_integer("seed", 0, "Of the starting responsibilities.")


if __name__ == "__main__":
    define_flags()
    app.run(main)
