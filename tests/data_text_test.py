"""Text readers: lines, folders, token lists, matrices."""

import gzip
import pathlib

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from dwl_jax import data

TWEETS = pathlib.Path(__file__).parents[2] / "shared" / "data" / "twitter_sentiment.tsv"
DOCS = ["The cat's hat", "a cat, a HAT; a dog_1", "", "dog dog 3.5"]


def test_tokenizer():
    assert data.tokenize("The cat's 'hat', É_1 3.5") == [
        *("the", "cat's", "hat", "é_1", "3", "5")
    ]


def test_from_tokens():
    tokens = [data.tokenize(d) for d in DOCS]
    c = data.from_tokens(tokens, labels=["x", None, "y", float("nan")], ids="pqrs")
    assert c.vocab == ("3", "5", "a", "cat", "cat's", "dog", "dog_1", "hat", "the")
    assert set(c.kinds) == {"word"}
    assert c.ids.tolist() == ["p", "q", "s"]
    assert c.labels["label"].tolist() == ["x", "", ""]
    assert c.counts.toarray()[1].tolist() == [0, 0, 3, 1, 0, 0, 1, 1, 0]
    assert "dropped 1 documents without words" in c.history[0]


def test_vocabulary_rules():
    tokens = [["b", "a", "c"], ["b", "c", "c"], ["a", "d"], ["the", "b"]]
    assert data.from_tokens(tokens, min_docs=2).vocab == ("a", "b", "c")
    assert data.from_tokens(tokens, max_words=2).vocab == ("a", "b")  # a before c
    stopped = data.from_tokens(tokens, stop_words=data.english_stop_words())
    assert stopped.vocab == ("b", "c", "d")  # "a" and "the" are gone
    for bad, message in (
        (["abc"], "document 0 is a text"),
        ([["a"], [""]], "document 1: '' is no token"),
        ([["a"], [3]], "document 1: 3 is no token"),
        ([[], []], "no words in 2 documents"),
        ([], "no words in 0 documents"),
    ):
        with pytest.raises(ValueError, match=message):
            data.from_tokens(bad)
    with pytest.raises(ValueError, match="no word is left"):
        data.from_tokens(tokens, min_docs=9)
    with pytest.raises(ValueError, match="label: .* for 4 documents"):
        data.from_tokens(tokens, labels=["x"])


def test_from_matrix_matches_scikit_learn():
    vectorizer = CountVectorizer()
    X = vectorizer.fit_transform(DOCS)
    names = vectorizer.get_feature_names_out()
    a = data.from_matrix(X, names, labels=[1, 0, 1, 0])
    b = data.from_matrix(X.toarray(), vectorizer.vocabulary_)
    assert a.vocab == b.vocab == tuple(names)
    np.testing.assert_array_equal(a.counts.toarray(), X.toarray()[[0, 1, 3]])
    np.testing.assert_array_equal(a.counts.toarray(), b.counts.toarray())
    assert a.labels["label"].tolist() == ["1", "0", "0"]
    assert "dropped 1 documents" in a.history[0]
    weights = TfidfVectorizer().fit(DOCS)
    c = data.from_matrix(weights.transform(DOCS), weights.vocabulary_)
    assert c.counts.dtype == np.float64


def test_from_matrix_refuses():
    for matrix, vocab, message in (
        (np.ones(3), "abc", r"shape \(3,\)"),
        (np.ones((2, 3)), "ab", "2 words for 3 columns"),
        (np.ones((2, 2)), {"a": 0, "b": 2}, "does not name columns 0 to 1"),
        (np.ones((2, 2)), "aa", "both 'a'"),
        (np.array([[1.0, np.nan]]), "ab", "word 'b' has nan"),
        (np.array([[1.0, -1.0]]), "ab", "word 'b' has -1"),
        (sp.csr_array((2, 2)), "ab", "no document is left"),
    ):
        with pytest.raises(ValueError, match=message):
            data.from_matrix(matrix, vocab)
    c = data.from_matrix([[1, 2]], "ab", kinds=["disease", "procedure"])
    assert c.kinds == ("disease", "procedure")


def test_labelled_lines(tmp_path):
    path = tmp_path / "t.tsv.gz"
    text = '\ufeff"pos"\tgood day\tsir\r\nneg\tbad\r\n\r\n""\tday\r\npos\t ?! \r\n'
    path.write_bytes(gzip.compress(text.encode()))
    c = data.read_labelled_lines(path, classes=["pos", "neg"])
    assert c.vocab == ("bad", "day", "good", "sir")
    assert c.labels["label"].tolist() == ["pos", "neg", ""]
    assert c.ids.tolist() == ["1", "2", "4"]
    assert "5 documents" in c.history[0] and "dropped 2 documents" in c.history[0]


def test_lines_without_labels(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("\none day\ntwo\tdays\n")
    c = data.read_labelled_lines(path)
    assert c.labels == {} and c.vocab == ("day", "days", "one", "two")
    with pytest.raises(ValueError, match="t.txt, line 2: no tab"):
        data.read_labelled_lines(path, labelled=True)


def test_bad_lines_are_named(tmp_path):
    path = tmp_path / "t.tsv"

    def check(content, message, **kwargs):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            data.read_labelled_lines(path, **kwargs)

    check(b"pos\tx\npso\ty\n", "t.tsv, line 2: label 'pso', not in", classes=["pos"])
    check(b"pos\tx\nno label\n", "t.tsv, line 2: no tab after a label")
    check(b"pos\tx\npos\tcaf\xe9\n", "t.tsv, line 2: byte 0xe9 is not utf-8")
    check(b"pos\tx\n", "unknown encoding 'utf-99'", encoding="utf-99")
    check(b"", "t.tsv: the file is empty")
    check("pos\tx\n".encode("utf-16"), "t.tsv: not what its name says.*UTF-16")
    check(b"pos\tx\0y\n", "line 1: has a NUL byte")
    check(b"pos\t?\n", "no words in 1 documents")
    path.write_bytes(b"pos\tcaf\xe9\n")
    assert data.read_labelled_lines(path, encoding="latin-1").vocab == ("café",)


def test_folder(tmp_path):
    for name, text in (
        ("sport/1.txt", "ball game"),
        ("sport/2.txt", ""),
        ("news/1.txt", "game\nover"),
        ("news/.hidden", "no"),
        ("README", "beside"),
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    c = data.read_folder(tmp_path)
    assert c.vocab == ("ball", "game", "over")
    assert c.ids.tolist() == ["news/1.txt", "sport/1.txt"]
    assert c.labels["label"].tolist() == ["news", "sport"]
    assert "passed over 1 files" in c.history[0]
    assert "dropped 1 documents" in c.history[0]
    (tmp_path / "news" / "2.txt").write_bytes(b"\nna\xefve")
    with pytest.raises(ValueError, match="2.txt, line 2: byte 0xef"):
        data.read_folder(tmp_path)
    with pytest.raises(ValueError, match="no class folder"):
        data.read_folder(tmp_path / "sport")
    with pytest.raises(ValueError, match="expected a folder"):
        data.read_folder(tmp_path / "README")


@pytest.mark.skipif(
    not TWEETS.exists(), reason=f"the Twitter file {TWEETS.name} is not on this machine"
)
def test_real_tweets():
    c = data.read_labelled_lines(TWEETS, classes=["positive", "neutral", "negative"])
    assert c.counts.shape == (3_115, 6_297)
    number = dict(zip(*np.unique(c.labels["label"], return_counts=True), strict=True))
    assert number == {"negative": 509, "neutral": 2_144, "positive": 462}
    assert c.counts.sum() == sum(
        len(data.tokenize(line.partition("\t")[2]))
        for line in TWEETS.read_text(encoding="utf-8").splitlines()
    )
