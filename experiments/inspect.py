"""Looks into a trained model, in words.

python -m experiments.inspect --model=RUN                          all topics
python -m experiments.inspect --model=RUN --neighbours=d_4280      words near one
python -m experiments.inspect --model=RUN --recommend=d_4280,d_5849
    procedures for these diseases, by distance and by reconstruction
python -m experiments.inspect --model=RUN --transport="d_25000 d_5859;d_40391"
    what moves where between two documents
"""

import jax.numpy as jnp
import numpy as np
from absl import flags

import dwl_jax
from dwl_jax import cost, io, metrics, transport
from dwl_jax.documents import from_counts
from dwl_jax.objective import ground_cost
from experiments import cli, rundir

_MODEL = flags.DEFINE_string("model", None, "Run or model directory.", required=True)
_TOPICS = flags.DEFINE_bool("topics", False, "Print the topics (also without a flag).")
_NEIGHBOURS = flags.DEFINE_list("neighbours", [], "Words whose nearest are printed.")
_KIND = flags.DEFINE_enum(
    "kind", None, ["disease", "procedure", "word"], "Neighbours: of this kind alone."
)
_RECOMMEND = flags.DEFINE_list("recommend", [], "Diseases to name procedures for.")
_TRANSPORT = flags.DEFINE_string(
    "transport", None, "Two documents, apart by a semicolon, words by blanks."
)
_EPSILON = flags.DEFINE_float("epsilon", 0.02, "transport: entropic weight.", 1e-6)
_TOP = flags.DEFINE_integer("top", 8, "How many rows to print.", lower_bound=1)


def describe(saved: io.SavedModel, n: int) -> str:
    text = saved.descriptions[n]
    return f"{saved.vocab[n]} {text}" if text else saved.vocab[n]


def lookup(saved: io.SavedModel, words, flag: str) -> list[int]:
    """Indices of words; an error that names the flag and near misses."""
    index = {word: n for n, word in enumerate(saved.vocab)}
    found = []
    for word in words:
        if word not in index:
            near = [w for w in saved.vocab if w.startswith(word[:4])][:5]
            hint = f" Near it: {', '.join(near)}." if near else ""
            raise ValueError(f"--{flag}: the model has no word {word!r}.{hint}")
        found.append(index[word])
    return found


def print_topics(saved: io.SavedModel) -> None:
    log_y = np.asarray(dwl_jax.topic_documents(saved.model, saved.hyper, cfg=saved.cfg))
    for k, row in enumerate(metrics.own_words(log_y, _TOP.value)):
        print(f"topic {k}")
        for n in row:
            print(f"  {np.exp(log_y[k, n]):.3f}  {describe(saved, n)}")
    for pair in metrics.near_duplicates(metrics.own_words(log_y, 10)):
        print("topics {} and {} are nearly the same".format(*pair))


def print_neighbours(saved: io.SavedModel) -> None:
    D = np.asarray(cost.scale(cost.distance_matrix(saved.ground)))
    allowed = [n for n, k in enumerate(saved.kinds) if _KIND.value in (None, k)]
    for n in lookup(saved, _NEIGHBOURS.value, "neighbours"):
        print(describe(saved, n))
        near = sorted((D[n, j], j) for j in allowed if j != n)
        for distance, j in near[: _TOP.value]:
            print(f"  {distance:.3f}  {describe(saved, j)}")


def print_recommended(saved: io.SavedModel) -> None:
    """Both ways: distance to all given diseases, and the model's reconstruction."""
    given = lookup(saved, _RECOMMEND.value, "recommend")
    sources = np.array([kind == "disease" for kind in saved.kinds])
    targets = np.flatnonzero([kind == "procedure" for kind in saved.kinds])
    if targets.size == 0:
        raise ValueError("--recommend: the model has no procedures.")
    wrong = [saved.vocab[n] for n in given if not sources[n]]
    if wrong:
        raise ValueError(f"--recommend: not diseases: {', '.join(wrong)}.")
    counts = np.zeros((1, len(saved.vocab)))
    counts[0, given] = 1.0
    docs = from_counts(counts, dtype=saved.model.X.dtype)
    by_distance = metrics.recommend(docs, saved.model.X, sources, targets)[0]
    inferred = dwl_jax.infer(
        docs, saved.model, saved.hyper, cfg=saved.cfg, observed=jnp.asarray(sources)
    )
    p = np.exp(np.asarray(inferred.log_y[0], np.float64)[targets])
    p /= p.sum()
    print("for " + "; ".join(describe(saved, n) for n in given))
    print("by distance between embeddings")
    for n in by_distance[: _TOP.value]:
        print(f"  {describe(saved, n)}")
    print("by reconstruction (share among procedures)")
    for place in np.argsort(-p, kind="stable")[: _TOP.value]:
        print(f"  {p[place]:.3f}  {describe(saved, targets[place])}")


def print_transport(saved: io.SavedModel) -> None:
    parts = [part.replace(",", " ").split() for part in _TRANSPORT.value.split(";")]
    if len(parts) != 2 or not all(parts):
        raise ValueError('--transport: give two documents, as "d_1 d_2;d_3 p_4".')
    counts = np.zeros((2, len(saved.vocab)))
    for m, words in enumerate(parts):
        np.add.at(counts[m], lookup(saved, words, "transport"), 1.0)
    D = ground_cost(saved.ground, saved.cfg)
    a, b = (from_counts(row[None], dtype=saved.model.X.dtype) for row in counts)
    first, second = (type(a)(x.words[0], x.mass[0]) for x in (a, b))
    plan = transport.plan_between(first, second, D, _EPSILON.value)
    T = np.asarray(plan.T, np.float64)
    print(f"cost {float(plan.cost):.4f}")
    text = lambda n: saved.descriptions[n] or saved.vocab[n]
    moves = sorted(((-T[i, j], i, j) for i, j in np.ndindex(T.shape)))
    for mass, i, j in moves[: max(_TOP.value, len(parts[0]) + len(parts[1]) - 1)]:
        if mass < -5e-4:
            print(f"  {text(first.words[i])} → {text(second.words[j])} {-mass:.3f}")


def main(argv):
    del argv
    cli.setup_jax()
    saved = rundir.open_model(_MODEL.value)
    asked = False
    for wanted, show in (
        (_NEIGHBOURS.value, print_neighbours),
        (_RECOMMEND.value, print_recommended),
        (_TRANSPORT.value, print_transport),
    ):
        if wanted:
            show(saved)
            asked = True
    if _TOPICS.value or not asked:
        print_topics(saved)
    return 0


if __name__ == "__main__":
    cli.run(main)
