"""Starting vectors: files written by gensim, files that lie, and training."""

import gzip
import sys

import numpy as np
import pytest
from gensim.models import KeyedVectors
from scipy.spatial import distance

from dwl_jax import data
from dwl_jax.data import vectors, word2vec

WORDS = ("d_0389", "d_4019", "é t", "p_0331")


@pytest.fixture
def known():
    model = KeyedVectors(vector_size=7)
    rng = np.random.default_rng(0)
    words = [w.replace(" ", "_") for w in WORDS]
    model.add_vectors(words, rng.normal(size=(4, 7)).astype(np.float32))
    return model


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_reads_what_gensim_writes(tmp_path, known, binary, packed):
    path = tmp_path / "v.bin"
    known.save_word2vec_format(path, binary=binary)
    if packed:
        path = tmp_path / "v.gz"
        path.write_bytes(gzip.compress((tmp_path / "v.bin").read_bytes()))
    for form in ("auto", "binary" if binary else "word2vec"):
        found = data.read_vectors(path, ["p_0331", "é_t", "d_0389"], form=form)
        assert found.missing == ()
        np.testing.assert_allclose(
            found.X, known[["p_0331", "é_t", "d_0389"]], rtol=1e-6
        )


def test_many_binary_vectors_cross_the_buffer(tmp_path):
    model = KeyedVectors(vector_size=300)
    X = np.random.default_rng(1).normal(size=(3_000, 300)).astype(np.float32)
    names = [f"w{j}" for j in range(3_000)]
    model.add_vectors(names, X)
    model.save_word2vec_format(tmp_path / "v.bin", binary=True)
    np.testing.assert_array_equal(data.read_vectors(tmp_path / "v.bin", names).X, X)


def test_glove_text_and_duplicates(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text("a 1 2\nb c 3 4\na 9 9\nx 5 6.5\n", encoding="utf-8")
    found = data.read_vectors(path, ["x", "b c", "a"])
    np.testing.assert_array_equal(found.X, [[5, 6.5], [3, 4], [1, 2]])


def test_missing_words_are_named_and_apart(tmp_path):
    path = tmp_path / "glove.txt"
    rng = np.random.default_rng(0)
    X = rng.normal(3.0, [1.0, 2.0, 0.1], size=(400, 3))
    path.write_text(
        "".join(f"w{j} {x[0]} {x[1]} {x[2]}\n" for j, x in enumerate(X)),
        encoding="utf-8",
    )
    vocab = [f"w{j}" for j in range(400)] + [f"new{j}" for j in range(400)]
    found = data.read_vectors(path, vocab, seed=1)
    assert found.missing == tuple(vocab[400:])
    drawn = found.X[400:]
    np.testing.assert_allclose(drawn.mean(0), X.mean(0), atol=0.3)
    np.testing.assert_allclose(drawn.std(0), X.std(0), rtol=0.15)
    assert distance.pdist(drawn).min() > 0
    np.testing.assert_array_equal(found.X, data.read_vectors(path, vocab, seed=1).X)
    one = data.fill_missing({"a": np.ones(4)}, ["a", "b", "c"])
    assert one.missing == ("b", "c") and distance.pdist(one.X).min() > 0
    with pytest.raises(ValueError, match="none of the 2 words"):
        data.read_vectors(path, ["q", "r"])


BAD = {
    "huge number": (b"999999999999999 2\na 1 2\n", "999999999999999 vectors, found 1"),
    "huge size": (b"1 999999999999\na 1 2\n", "line 1: .*no header"),
    "zero": (b"0 0\na 1 2\n", "line 1: 0 vectors of size 0"),
    "too many": (b"1 2\na 1 2\nb 1 2\n", "header says 1 vectors, found 2"),
    "short line": (b"2 2\na 1 2\nb 1\n", "line 3: 1 values, not 2"),
    "glove short": (b"a 1 2\nb 1\n", "line 2: 1 values, not 2"),
    "word only": (b"a\n", "line 1: 0 values, not some"),
    "not a number": (b"a 1 2\nb 1 x\n", "line 2: 'x' is no number"),
    "nan": (b"a 1 nan\n", "line 1: 'a' has a value not finite"),
    "encoding": (b"a 1 2\n\xe9 1 2\n", "line 2: not utf-8"),
    "cut binary": (b"2 2\na \0\0\0\0\0\0\x80?\nb \0\0", "vector 2: .* inside a vector"),
    "long binary": (
        b"1 2\na \0\0\0\0\0\0\x80?b \0\0",
        "more bytes after the 1 vectors",
    ),
    "no word": (b"1 2\n" + b"\xff" * 9_999, "vector 1: the file ends or has no word"),
    "empty": (b"", "the file is empty"),
    "long line": (b"a " + b"1" * (1 << 20), "line 1: longer than"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_named(tmp_path, case):
    content, message = BAD[case]
    path = tmp_path / "v.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        data.read_vectors(path, ["a", "b"])
    assert str(path) in str(error.value)


def test_forms(tmp_path):
    path = tmp_path / "v.txt"
    path.write_bytes(b"a 1 2\n")
    with pytest.raises(ValueError, match="form must be"):
        data.read_vectors(path, ["a"], form="numpy")
    with pytest.raises(ValueError, match="no header of two whole numbers"):
        data.read_vectors(path, ["a"], form="binary")


def test_word2vec_repeats_and_offers_three_kinds():
    corpus = data.synthetic_admissions(400)
    run = lambda which, seed=0: data.train_word2vec(
        corpus, dim=8, epochs=2, which=which, seed=seed
    )
    first, second, other = run("input"), run("input"), run("input", seed=1)
    assert first.X.shape == (81, 8) and first.X.dtype == np.float32
    np.testing.assert_array_equal(first.X, second.X)
    assert not np.array_equal(first.X, other.X)
    seen = np.flatnonzero(corpus.counts.sum(axis=0))
    total = first.X[seen] + run("output").X[seen]
    np.testing.assert_allclose(run("sum").X[seen], total, rtol=1e-5, atol=1e-7)
    with pytest.raises(ValueError, match="which must be one of"):
        run("both")


def test_word2vec_learns_what_occurs_together():
    rng = np.random.default_rng(0)
    groups = [["a", "b", "c", "d"], ["x", "y", "z", "w"]]
    tokens = [
        list(rng.choice(groups[m % 2], size=3, replace=False)) for m in range(600)
    ]
    corpus = data.from_tokens(tokens)
    X, missing = data.train_word2vec(corpus, dim=10, epochs=20)
    near = 1 - distance.squareform(distance.pdist(X, "cosine"))
    first = np.array([w in "abcd" for w in corpus.vocab])
    assert missing == ()
    assert near[np.ix_(first, first)].min() > near[np.ix_(first, ~first)].max()


def test_word2vec_names_words_that_never_occur():
    corpus = data.select_paper81(data.synthetic_admissions(30))
    never = np.flatnonzero(corpus.counts.sum(axis=0) == 0)
    assert never.size > 0
    found = data.train_word2vec(corpus, dim=4, epochs=1)
    assert found.missing == tuple(corpus.vocab[j] for j in never)


def test_sentences_repeat_counts_and_lose_nothing(monkeypatch):
    corpus = data.from_matrix([[2, 0, 3], [0, 1, 0]], "abc")
    assert word2vec._sentences(corpus) == [["a", "a", "c", "c", "c"], ["b"]]
    monkeypatch.setattr(word2vec, "_MAX_SENTENCE", 2)
    assert word2vec._sentences(corpus) == [["a", "a"], ["c", "c"], ["c"], ["b"]]
    with pytest.raises(ValueError, match="fractional"):
        data.train_word2vec(data.from_matrix([[0.5, 1.0]], "ab"))


def test_without_gensim_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gensim.models", None)
    with pytest.raises(ImportError, match=r"dwl-jax\[embeddings\]"):
        data.train_word2vec(data.synthetic_admissions(10))
    assert vectors.Vectors._fields == ("X", "missing")
