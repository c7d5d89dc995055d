"""Exports are read back by the tools they are for, or by their stated format."""

import csv
import json

import numpy as np
import pytest
from gensim.models import KeyedVectors

from dwl_jax import Model, data, export

RNG = np.random.default_rng(0)
VOCAB = ("d_0389", "p_640", "naïve")
X = RNG.normal(size=(3, 4)).astype(np.float32) * np.array([1e-30, 1, 1e30, 1], "f4")


def read_csv(path):
    with open(path, encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle))


def test_gensim_reads_the_same_bits(tmp_path):
    export.write_word2vec(tmp_path / "e.txt", X, VOCAB)
    found = KeyedVectors.load_word2vec_format(tmp_path / "e.txt")
    assert tuple(found.index_to_key) == VOCAB
    np.testing.assert_array_equal(found.vectors, X)
    again = data.read_vectors(tmp_path / "e.txt", VOCAB)
    np.testing.assert_array_equal(again.X, X)


def test_blanks_inside_words_do_not_break_the_format(tmp_path):
    export.write_word2vec(tmp_path / "e.txt", X[:2], ("new york", "b"))
    found = KeyedVectors.load_word2vec_format(tmp_path / "e.txt")
    assert found.index_to_key == ["new_york", "b"]
    with pytest.raises(ValueError, match="distinct"):
        export.write_word2vec(tmp_path / "f.txt", X[:2], ("a b", "a_b"))
    assert [p.name for p in tmp_path.iterdir()] == ["e.txt"]


def test_topics_are_sorted_and_complete(tmp_path):
    B = np.array([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])
    texts = ("a, b", 'c "d"', "")
    export.write_topics(tmp_path / "t.csv", np.log(B), VOCAB, descriptions=texts)
    rows = read_csv(tmp_path / "t.csv")
    # Its own words first: d_0389 is as telling of topic 0 as it is rare elsewhere.
    assert [r["word"] for r in rows[:3]] == ["p_640", "d_0389", "naïve"]
    assert [r["word"] for r in rows[3:]] == ["naïve", "d_0389", "p_640"]
    assert rows[0]["description"] == 'c "d"'
    assert [float(r["probability"]) for r in rows[:3]] == [0.5, 0.2, 0.3]
    export.write_topics(tmp_path / "t.csv", np.log(B), VOCAB, top_n=1)
    assert len(read_csv(tmp_path / "t.csv")) == 2


def test_projector_files_have_a_row_for_each_word(tmp_path):
    export.write_projector(tmp_path / "p", X, VOCAB, descriptions=("a\tb", "c\nd", ""))
    vectors = np.loadtxt(tmp_path / "p" / "vectors.tsv", delimiter="\t", dtype="f4")
    np.testing.assert_array_equal(vectors, X)
    lines = (tmp_path / "p" / "metadata.tsv").read_text("utf-8").splitlines()
    assert len(lines) == 1 + 3
    assert all(line.count("\t") == 2 for line in lines)
    config = (tmp_path / "p" / "projector_config.pbtxt").read_text()
    assert 'tensor_path: "vectors.tsv"' in config


def test_pyldavis_inputs_meet_its_checks(tmp_path):
    """pyLDAvis refuses rows that do not sum to 1 and lengths that disagree."""
    corpus = data.from_matrix([[1, 2, 0], [0, 3, 0]], VOCAB)
    log_B = np.log([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])
    lam = np.array([[0.5, 0.5], [0.25, 0.75]])
    model = Model(log_B, X)
    export.write_pyldavis(tmp_path / "l.json", model, lam, corpus)
    found = json.loads((tmp_path / "l.json").read_text())
    assert found["vocab"] == ["d_0389", "p_640"]  # the third never occurs
    assert found["term_frequency"] == [1, 5]
    assert found["doc_lengths"] == [3, 3]
    np.testing.assert_allclose(np.sum(found["topic_term_dists"], axis=1), 1.0)
    np.testing.assert_allclose(found["doc_topic_dists"], lam)
    with pytest.raises(ValueError, match="2 documents"):
        export.pyldavis_inputs(model, lam[:1], corpus)
