"""Parts of the reproduction against second opinions: POT, scikit-learn, brute force."""

import csv
import functools
from unittest import mock

import chex
import jax
import numpy as np
import ot
import pytest
from sklearn import neighbors as sk_neighbors

import dwl_jax
from dwl_jax import data, presets
from experiments import protocol, tables
from experiments.paper import (
    differences,
    graph,
    knn,
    published,
    run,
    section,
    tau,
    transport,
    twitter,
    units,
)

TINY = {"num_topics": 2, "dim": 3, "num_iters": 2, "num_epochs": 2, "batch_size": 32}


@functools.cache
def embeddings(n=30, dim=4):
    return np.random.default_rng(0).standard_normal((n, dim))


def test_knn_graph_has_the_edges_of_scikit_learn():
    X = embeddings()
    want = sk_neighbors.kneighbors_graph(X, graph.NEIGHBOURS).toarray() > 0
    got = graph.knn_graph(X)
    assert {frozenset(e) for e in got.edges} == {
        frozenset((int(i), int(j))) for i, j in np.argwhere(want)
    }
    assert sorted(got) == list(range(len(X)))


def test_layout_is_in_the_unit_square_and_parts_are_communities_of_both_kinds():
    joined = graph.knn_graph(embeddings())
    xy = graph.layout(joined)
    assert xy.shape == (30, 2)
    assert (xy >= 0).all() and (xy <= 1).all()
    assert len(np.unique(xy.round(6), axis=0)) == 30  # nobody covers another
    kinds = ["procedure" if n % 3 == 0 else "disease" for n in range(30)]
    found = graph.parts(joined, kinds)
    groups = [sorted(g) for g in graph.communities(joined)]
    assert 1 <= len(found) <= graph.NUM_PARTS
    assert all(group in groups and 4 <= len(group) <= 12 for group in found)


def test_layout_of_a_graph_in_pieces():
    X = np.concatenate([embeddings(8), 100 + embeddings(8)])
    xy = graph.layout(graph.knn_graph(X, 3))
    assert np.isfinite(xy).all()
    first, second = xy[:8], xy[8:]
    inner = max(np.ptp(first, axis=0).min(), np.ptp(second, axis=0).min())
    assert np.linalg.norm(first.mean(0) - second.mean(0)) > 0.5 * inner


def test_without_self_is_leaving_one_out_by_brute_force():
    F = embeddings(20, 2)
    F[7] = F[3]  # twins
    near = knn.without_self(protocol.nearest(F, F, 5), np.arange(20))
    D = np.linalg.norm(F[:, None] - F[None], axis=-1)
    for n in range(20):
        others = [m for m in np.argsort(D[n], kind="stable") if m != n][:4]
        np.testing.assert_allclose(D[n, near[n]], D[n, others])
        assert n not in near[n]


def test_k_is_the_one_that_tells_most():
    labels = np.array(list("aabbb"))
    near = np.array([[1, 2, 3], [0, 2, 3], [3, 4, 0], [4, 2, 0], [3, 2, 0]])
    assert knn.accuracy(labels, near, labels, 1) == 1.0
    assert knn.accuracy(labels, near, labels, 3) == pytest.approx(0.6)
    assert knn.choose(labels, near, labels, (1, 3)) == 1


def test_plan_is_exact_and_the_chosen_pair_is_the_nearest():
    X = embeddings()
    D = np.linalg.norm(X[:, None] - X[None], axis=-1)
    rng = np.random.default_rng(1)
    drawn = [rng.choice(30, size, replace=False).tolist() for size in (5, 7) * 12]
    first, second = transport.choose(D, drawn)
    T = transport.plan(D, first, second)
    np.testing.assert_allclose(T.sum(1), 1 / len(first), atol=1e-12)
    np.testing.assert_allclose(T.sum(0), 1 / len(second), atol=1e-12)
    cost = lambda a, b: ot.emd2([], [], np.ascontiguousarray(D[np.ix_(a, b)]))
    want = min(
        cost(a, b)
        for a in drawn
        for b in drawn
        if len(a) == 5 and len(b) == 7 and not set(a) & set(b)
    )
    assert (T * D[np.ix_(first, second)]).sum() == pytest.approx(want)


def test_admissions_are_drawn_and_words_a_model_lacks_are_left_out():
    vocab = data.synthetic_admissions(10).vocab
    whole, half = transport.admissions(vocab, 50), transport.admissions(vocab[::2], 50)
    assert len(whole) == 50
    assert 0 < len(half) < 50
    names = {frozenset(vocab[n] for n in words) for words in whole}
    assert all(any({vocab[::2][n] for n in w} <= s for s in names) for w in half)


@pytest.mark.slow
def test_sweep_compiles_once_and_each_lane_is_a_fit_of_its_own():
    problem = protocol.problem(data.synthetic_admissions(200), 0, "valid")
    # Adam divides by the size of a gradient: large rates would magnify rounding.
    recipe, taus = presets.default(**TINY, rate_A=0.1), (0.25, 1.0)
    once = chex.assert_max_traces(dwl_jax.epoch, n=1)
    with mock.patch.object(tau.dwl_jax, "epoch", once):
        states, epoch = tau.sweep(problem, recipe, taus, 2)
        losses = []
        for _ in range(recipe.num_epochs):
            states, info = epoch(states)
            losses.append(np.asarray(info.loss))
    corpus = problem.train_corpus
    for lane, (value, seed) in {1: (0.25, 1), 2: (1.0, 0)}.items():
        want, info = dwl_jax.fit(
            jax.random.key(seed),
            corpus.documents(),
            recipe.hyper._replace(tau=value),
            cfg=recipe.cfg,
            num_epochs=recipe.num_epochs,
            num_words=corpus.num_words,
        )
        got = states.params.theta[lane]
        np.testing.assert_allclose(got, want.params.theta, rtol=2e-3, atol=2e-4)
        np.testing.assert_allclose([x[lane] for x in losses], info.loss, rtol=1e-3)
    assert np.abs(states.params.theta[0] - states.params.theta[2]).max() > 1e-3
    found = tau.measure(
        problem,
        corpus.labels["admission_type"],
        np.asarray(states.params.A[0]),
        np.asarray(states.params.theta[0]),
    )
    assert all(0 < value < 100 for value in found.values())


@pytest.mark.slow
def test_a_unit_has_every_row_of_both_tables():
    corpus = data.synthetic_admissions(240, 3)
    found = units.unit(corpus, "trial", 0, TINY, 2)
    for rows in published.TABLE1.values():
        for row in rows:
            assert set(published.ACCURACY) <= set(found[row.row]), row
    for rows in published.TABLE2.values():
        for *_, row, _ in rows:
            assert set(published.RECOMMENDED) <= set(found[row]), row
    cells = [v for row in found.values() for v in row.values()]
    assert np.isfinite(cells).all()


def test_published_numbers_have_the_tables_shape():
    rows = [row for rows in published.TABLE1.values() for row in rows]
    assert sum(bool(row.paper) for row in rows) == 14  # as many as the paper has
    assert {len(row.paper) for row in rows} == {len(row.half) for row in rows} == {0, 4}
    listed = [row for rows in published.TABLE2.values() for row in rows]
    assert sorted(len(paper) for *_, paper in listed) == [0] * 9 + [9] * 4
    for *_, paper in listed:
        for p, r, f1 in np.reshape(paper, (-1, 3)):
            # A mean of harmonic means is not above that of the means.
            assert f1 <= 2 * p * r / (p + r) + 0.01


@functools.cache
def tweets():
    rng = np.random.default_rng(0)
    mood = {"good": ["nice", "love"], "bad": ["awful", "hate"], "flat": ["is", "was"]}
    labels = rng.choice(list(mood), 150, p=[0.2, 0.2, 0.6])
    words = [f"w{i}" for i in range(20)]
    texts = [[*rng.choice(words, 4), rng.choice(mood[label])] for label in labels]
    return data.from_tokens(texts, labels={"label": labels})


@pytest.mark.slow
def test_tweets_are_told_better_than_by_the_commonest_label():
    with (
        mock.patch.object(twitter, "WORDS", 6),
        mock.patch.object(twitter, "learned", wraps=twitter.learned) as learned,
        mock.patch.object(twitter, "cdist", wraps=twitter.cdist) as cdist,
    ):
        found = twitter.errors(tweets(), 0, TINY)
    most = found["always the commonest label"]
    (labels,) = tweets().labels.values()
    split = twitter.Split(tweets(), 0)
    assert most == pytest.approx(100 * np.mean(labels[split.test] != "flat"))
    assert not set(split.train) & set(split.test)
    assert found["TF-IDF, unit norm"] < most
    assert all(0 <= value <= 100 for value in found.values())
    assert {"random, Wasserstein", "DWL fine-tuned, Wasserstein"} <= set(found)
    # All words keep what was given; those that DWL learns have more beside it.
    train, start = learned.call_args_list[1].args[:2]
    X = cdist.call_args_list[-1].args[0]
    given = start.shape[1]
    np.testing.assert_allclose(X[:, :given], start, rtol=1e-5, atol=1e-5)
    moved = (X[:, given:] != 0.0).any(axis=1)
    assert moved.sum() == 6
    frequency = np.bincount(train.counts.indices, minlength=train.num_words)
    assert frequency[moved].min() >= frequency[~moved].max()


def test_differences_are_paired_and_to_the_best_of_the_others():
    results = tables.Results()
    for a, b, c in ((3.0, 1.0, 2.0), (5.0, 2.0, 3.0), (4.0, 1.5, 2.0)):
        results.add({"DWL x": {"m": a}, "one": {"m": b}, "two": {"m": c}})
    found = differences.sheet(
        "d", results, {"m": "M", "n": "N"}, ["DWL x"], ["one", "two"]
    )
    assert found.head == ["", "M"]
    assert found.rows[0] == ["best of all others", "two (2.3)"]
    gap = found.rows[1][1]
    assert gap["mean"] == pytest.approx(np.mean([1, 2, 2]))
    assert gap["low"] < gap["mean"] < gap["high"]
    told = differences.finding(found, "DWL x", "Task")
    assert told.startswith("Task, DWL x: M +1.7 [")


def test_sheets_are_written_as_markdown_and_csv(tmp_path):
    rows = [
        ["block"],
        ["a|b", section.cell(33.84, 0.71, paper=18.25, best=True)],
        ["c", section.cell(1.0)],
    ]
    sheet = section.Sheet("t", "T", ["method", "F1"], rows, ["a note"])
    sheet.write(str(tmp_path))
    text = (tmp_path / "t.md").read_text()
    assert "| a\\|b | **33.8 ± 0.7** (18.25) |" in text
    assert "| *block* |  |" in text and "a note" in text
    lines = list(csv.reader((tmp_path / "t.csv").read_text().splitlines()))
    assert lines[0] == ["method", "F1", "F1 low", "F1 high", "F1 paper"]
    assert [float(x) for x in lines[1][1:]] == pytest.approx(
        [33.84, 33.13, 34.55, 18.25]
    )
    assert section.text({"mean": 1.24, "low": -0.3, "high": 2, "signed": True}) == (
        "+1.2 [−0.3, +2.0]"
    )


def test_scale_takes_a_share_that_is_the_same_every_time():
    corpus = data.synthetic_admissions(1_000)
    a, b = (run.scaled(corpus, 0.3) for _ in range(2))
    assert a.num_docs == 300
    assert a.ids.tolist() == b.ids.tolist()
    assert run.scaled(corpus, 1.0) is corpus
    with pytest.raises(ValueError, match="--scale=0.1: 100 of 1,000 documents"):
        run.scaled(corpus, 0.1)
