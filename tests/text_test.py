"""The text benchmark: its readers, its scores, and one small comparison."""

import numpy as np
import problems
import pytest
import scipy.sparse as sp

from dwl_jax import data, metrics
from experiments import text

COUNTS = problems.themes(num_docs=90, num_words=20)
LABELS = np.arange(90) % 3


def write_20ng(folder):
    for name, rows in (("train", slice(60)), ("test", slice(60, 90))):
        sp.save_npz(folder / f"{name}_bow.npz", sp.csr_matrix(COUNTS[rows]))
        np.savetxt(folder / f"{name}_labels.txt", LABELS[rows], fmt="%d")
    (folder / "vocab.txt").write_text("\n".join(f"w{n}" for n in range(20)))


def write_m10(path):
    parts = ["train"] * 60 + ["val"] * 15 + ["test"] * 15
    words = [" ".join(f"w{n}" for n in np.flatnonzero(row)) for row in COUNTS]
    lines = [f"{w}\t{p}\t{l}" for w, p, l in zip(words, parts, LABELS, strict=True)]
    path.write_text("\n".join(lines))


@pytest.mark.parametrize(("part", "sizes"), [("valid", (48, 12)), ("test", (60, 30))])
def test_20ng(tmp_path, part, sizes):
    write_20ng(tmp_path)
    found = text.read_20ng(tmp_path, part)
    assert (found.train.shape[0], found.test.shape[0]) == sizes
    assert (len(found.labels), len(found.truth)) == sizes
    if part == "test":
        np.testing.assert_array_equal(found.train.toarray(), COUNTS[:60])
        np.testing.assert_array_equal(found.truth, LABELS[60:])
    else:
        np.testing.assert_array_equal(found.test.toarray(), COUNTS[:60:5])


@pytest.mark.parametrize(("part", "first"), [("valid", 60), ("test", 75)])
def test_m10(tmp_path, part, first):
    write_m10(tmp_path / "m10.tsv")
    found = text.read_m10(tmp_path / "m10.tsv", part)
    assert (found.train.shape[0], found.test.shape[0]) == (60, 15)
    np.testing.assert_array_equal(found.truth.astype(int), LABELS[first : first + 15])
    assert (found.train.sum(axis=0) > 0).all()


def test_npz_needs_one_label(tmp_path):
    corpus = data.from_matrix(COUNTS, [f"w{n}" for n in range(20)])
    data.save(corpus, tmp_path / "c.npz")
    with pytest.raises(ValueError, match="0 labels, not one"):
        text.read_npz(tmp_path / "c.npz", "test")


def small(tmp_path):
    write_20ng(tmp_path)
    return text.read_20ng(tmp_path, "test")


def test_scores_of_weights_that_are_right(tmp_path):
    some = small(tmp_path)
    tops = np.array([[0, 1] + [2] * 13, [3, 4] + [5] * 13])
    X = np.eye(20)
    right = text.Found(np.eye(3)[some.labels], np.eye(3)[some.truth], tops, X)
    got = text.cells(some, right)
    assert got["text/purity"] == got["text/logistic"] == got["text/5nn"] == 100.0
    np.testing.assert_allclose(got["text/nmi"], 100.0)
    assert got["text/diversity10"] == 100 * 6 / 20
    wrong = right._replace(told=np.eye(3)[np.zeros(30, int)])
    assert text.cells(some, wrong)["text/nmi"] < 1e-9


def test_nearest_words_are_judged_by_the_documents_they_share(tmp_path):
    some = small(tmp_path)
    docs = data.from_matrix(some.train, some.vocab).documents()
    line = np.arange(20.0)[:, None]  # a word's nearest are those beside it
    seen = np.flatnonzero(some.train.toarray().any(axis=0))
    assert 0 < len(seen) < 20  # a word that never occurs has no neighbours, nor is one
    near = lambda n: [m for m in sorted(seen, key=lambda m: abs(m - n)) if m != n][:5]
    pairs = [[n, m] for n in seen for m in near(n)]
    want = metrics.npmi(np.array(pairs), docs, 20).mean()
    np.testing.assert_allclose(text.nearest_words(line, docs, 20), want)


def test_a_comparison_goes_on_and_finds_the_themes(tmp_path):
    out, some = str(tmp_path / "out"), small(tmp_path)
    methods, changes = list(text.METHODS), {"num_epochs": 3, "dim": 6}
    run = lambda seeds, names: text.compare(some, 3, seeds, out, names, changes, "t")
    run(1, methods)
    found = run(2, methods)
    assert found.num_trials == 2 and set(found.values) == set(methods)
    for name in text.OURS:
        assert found.interval(name, "text/purity").mean > 80.0
    assert "text/words" not in found.values["online LDA"]
    with pytest.raises(ValueError, match="holds another comparison"):
        text.compare(some, 3, 2, out, methods, changes, "other")
