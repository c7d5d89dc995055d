"""Corpus, splits, selection and the saved file."""

import io
import json
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
from absl import logging

from dwl_jax import data


def toy(num_docs=40, seed=0):
    """Five diseases, three procedures; every document has one of each at least."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 2, size=(num_docs, 8))
    counts[:, 0] = 1
    counts[:, 5] = 1
    return data.Corpus(
        counts=counts,
        vocab=("d_0389", "d_4019", "d_1", "d_2", "d_3", "p_0331", "p_1", "p_2"),
        kinds=("disease",) * 5 + ("procedure",) * 3,
        descriptions=("x",) * 8,
        labels={
            "died": [["alive", "died", None][m % 3] for m in range(num_docs)],
            "grade": [float(m % 2) if m else np.nan for m in range(num_docs)],
        },
        ids=[f"secret-{m}" for m in range(num_docs)],
    )


def replaced(**change):
    c = toy()
    fields = ("counts", "vocab", "kinds", "descriptions", "labels", "ids")
    return data.Corpus(**({name: getattr(c, name) for name in fields} | change))


def test_counts_are_canonical_and_small():
    entries = ([1.0, 2.0, 0.0, 1.0], ([0, 0, 0, 1], [1, 1, 0, 0]))
    c = data.Corpus(
        sp.coo_array(entries, shape=(2, 2)), "ab", ["word"] * 2, ["", ""], {}, "xy"
    )
    assert c.counts.format == "csr" and c.counts.dtype == np.int32
    np.testing.assert_array_equal(c.counts.toarray(), [[0, 3], [1, 0]])
    assert c.counts.nnz == 2
    assert replaced(counts=toy().counts * 0.5).counts.dtype == np.float64


def test_labels_missing_and_codes():
    c = toy()
    assert c.labels["died"][2] == data.MISSING
    assert c.labels["grade"].tolist()[:3] == ["", "1", "0"]
    number, classes = c.label_codes("died")
    assert classes == ("alive", "died")
    np.testing.assert_array_equal(number[:4], [0, 1, -1, 0])
    with pytest.raises(ValueError, match="no label 'sex'.*died"):
        c.label_codes("sex")
    known = data.select_labelled(c, "died")
    assert data.MISSING not in known.labels["died"]
    assert "kept 27 documents with a known died, dropped 13" in known.history[-1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab": ("d_0389",) * 8}, "words 0 and 1 are both 'd_0389'"),
        ({"vocab": ("",) + ("a",) * 7}, "word 0 of the vocabulary is empty"),
        ({"vocab": ("a",)}, "vocab has 1 entries for 8 words"),
        ({"kinds": ("drug",) * 8}, "kind of 'd_0389' is 'drug'"),
        ({"labels": {"died": ["a"]}}, r"label 'died' has shape \(1,\)"),
        ({"ids": ["same"] * 40}, "rows 0 and 1 have the same"),
        ({"counts": -toy().counts}, "row 0, word 'd_0389' has -1"),
        ({"counts": toy().counts * np.nan}, "row 0, word 'd_0389' has nan"),
        ({"counts": np.eye(40, 8)}, r"row 8 has none \(32 such rows\)"),
        ({"counts": np.ones(8)}, r"shape \[documents, words\]"),
        ({"counts": np.ones((40, 8), complex)}, "must be numbers"),
        ({"counts": np.ones((0, 8))}, "needs documents and words"),
    ],
)
def test_validation_names_the_culprit(change, message):
    with pytest.raises(ValueError, match=message) as error:
        replaced(**change)
    assert "secret" not in str(error.value)


def test_no_id_in_repr_or_history(caplog):
    logging.set_verbosity(logging.INFO)
    c = data.split(toy())[0]
    text = repr(c) + " ".join(c.history) + caplog.text
    assert "secret" not in text and "20 documents" in repr(c)


def test_documents_is_what_fit_takes():
    c = toy()
    docs = c.documents(dtype=np.float64)
    dense = np.zeros(c.counts.shape)
    np.add.at(dense, (np.arange(40)[:, None], docs.words), docs.mass)
    want = c.counts.toarray() / c.counts.toarray().sum(axis=1, keepdims=True)
    np.testing.assert_allclose(dense, want, rtol=1e-12)


def test_split_is_a_partition_and_repeats():
    c = toy(num_docs=101)
    parts = data.split(c, seed=3)
    assert [p.num_docs for p in parts] == [50, 26, 25]  # round(50.5), round(75.75)
    ids = np.concatenate([p.ids for p in parts])
    assert sorted(ids) == sorted(c.ids)
    again = data.split(c, seed=3)
    np.testing.assert_array_equal(parts[0].ids, again[0].ids)
    assert not np.array_equal(parts[0].ids, data.split(c, seed=4)[0].ids)
    where = {i: m for m, i in enumerate(c.ids)}
    rows = [where[i] for i in parts[2].ids]
    np.testing.assert_array_equal(parts[2].counts.toarray(), c.counts.toarray()[rows])
    np.testing.assert_array_equal(parts[2].labels["died"], c.labels["died"][rows])


def test_stratified_split_keeps_shares():
    rng = np.random.default_rng(0)
    strata = rng.choice(4, size=997, p=[0.6, 0.3, 0.09, 0.01])
    rows = data.split_rows(997, seed=1, strata=strata)
    assert [r.size for r in rows] == [r.size for r in data.split_rows(997, seed=1)]
    for fraction, part in zip((0.5, 0.25, 0.25), rows, strict=True):
        want = fraction * np.bincount(strata, minlength=4)
        assert np.abs(np.bincount(strata[part], minlength=4) - want).max() <= 1.0
    assert np.array_equal(np.sort(np.concatenate(rows)), np.arange(997))


@pytest.mark.parametrize("fractions", [(0.5, 0.6), (1.2, -0.2), (0.5, np.nan)])
def test_bad_fractions(fractions):
    with pytest.raises(ValueError, match="fractions"):
        data.split(toy(), fractions=fractions)


def test_empty_part_is_an_error():
    with pytest.raises(ValueError, match="no document is left"):
        data.split(toy(num_docs=1))


def test_select_words_and_docs():
    c = toy()
    d = data.select_words(c, ["p_1", "d_2"])
    assert d.vocab == ("p_1", "d_2") and d.kinds == ("procedure", "disease")
    dense = c.counts.toarray()[:, [6, 3]]
    np.testing.assert_array_equal(d.counts.toarray(), dense[dense.sum(1) > 0])
    np.testing.assert_array_equal(d.ids, c.ids[dense.sum(1) > 0])
    lost = int((dense.sum(1) == 0).sum())
    assert f"dropped {lost} of 40 documents" in d.history[-1]
    with pytest.raises(ValueError, match="not in the vocabulary: d_389"):
        data.select_words(c, ["d_389"])
    with pytest.raises(ValueError, match="more than once: p_1"):
        data.select_words(c, ["p_1", "p_1"])
    e = data.select_docs(c, min_diseases=3, min_procedures=2)
    dense = c.counts.toarray()
    keep = (dense[:, :5].sum(1) >= 3) & (dense[:, 5:].sum(1) >= 2)
    np.testing.assert_array_equal(e.ids, c.ids[keep])
    assert f"kept {keep.sum()} and dropped {(~keep).sum()}" in e.history[-1]
    with pytest.raises(ValueError, match="no document is left"):
        data.select_docs(c, min_diseases=6)


def test_select_top_min_count_and_stop_words():
    c = toy()
    dense = c.counts.toarray()
    top = data.select_top(c, diseases=2, procedures=1)
    second = 1 + int(np.argmax(dense[:, 1:5].sum(0)))
    assert top.vocab == (c.vocab[0], c.vocab[second], "p_0331")
    assert "2 of 5 disease (asked 2)" in top.history[-1]
    assert data.select_top(c, procedures=0).num_words == 5
    few = data.select_min_count(c, 40)
    assert few.vocab == ("d_0389", "p_0331")
    rest = data.drop_words(c, ["d_0389", "the"])
    assert rest.num_words == 7 and "1 of 2 stop words occur" in rest.history[-1]
    with pytest.raises(ValueError, match="no word is left"):
        data.select_min_count(c, 41)


def test_paper81_keeps_all_places():
    c = data.select_paper81(toy())
    assert c.vocab == data.paper81_words() and c.num_words == 81
    assert c.descriptions[c.vocab.index("d_0389")] == "Unspecified septicemia"
    assert c.counts.nnz == toy().counts[:, [0, 1, 5]].nnz
    assert "never seen here" in c.history[-1]
    assert sum(c.is_kind("disease")) == 56 and sum(c.is_kind("procedure")) == 25
    with pytest.raises(ValueError, match="none of the paper's 81"):
        data.select_paper81(data.select_words(toy(), ["d_1", "d_2"]))


def test_paper_codes_have_their_zeros_back():
    by_paper = {code.paper_code: code for code in data.paper81()}
    assert by_paper["d_389"].word == "d_0389" and by_paper["p_331"].word == "p_0331"
    assert by_paper["d_412"].label == "Old myocardial infarction"


def test_save_and_load(tmp_path):
    c = data.split(toy())[0]
    path = tmp_path / "corpus"  # no suffix: the name is kept as given
    data.save(c, path)
    first = path.read_bytes()
    d = data.load(path)
    np.testing.assert_array_equal(d.counts.toarray(), c.counts.toarray())
    assert d.counts.dtype == c.counts.dtype
    for name in ("vocab", "kinds", "descriptions", "history"):
        assert getattr(d, name) == getattr(c, name)
    np.testing.assert_array_equal(d.ids, c.ids)
    assert list(d.labels) == list(c.labels)
    np.testing.assert_array_equal(d.labels["died"], c.labels["died"])
    data.save(d, path)
    assert path.read_bytes() == first
    assert [p.name for p in tmp_path.iterdir()] == ["corpus"]


def _rewrite(path, name, payload):
    """Replaces one member of a saved corpus."""
    with zipfile.ZipFile(path) as old:
        members = {n: old.read(n) for n in old.namelist()}
    members[name] = payload
    with zipfile.ZipFile(path, "w") as new:
        for n, content in members.items():
            new.writestr(n, content)


def _npy(array, **kwargs):
    out = io.BytesIO()
    np.save(out, array, **kwargs)
    return out.getvalue()


def _meta(**change):
    c = toy()
    meta = {
        "format": "dwl_jax.corpus/1",
        "labels": {},
        "ids": list(c.ids),
        "history": [],
    } | {name: list(getattr(c, name)) for name in ("vocab", "kinds", "descriptions")}
    return _npy(np.frombuffer(json.dumps(meta | change).encode(), np.uint8))


def _huge():
    head = {"descr": "<i4", "fortran_order": False, "shape": (2**60,)}
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, head)
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        ("data.npy", _npy(np.array([{}] * 3, object), allow_pickle=True)),
        ("data.npy", b"\x80\x04pickle"),
        ("data.npy", _huge()),
        ("data.npy", _npy(np.ones(3, np.int32))),
        ("indices.npy", _npy(np.full(toy().counts.nnz, 99, np.int32))),
        ("indptr.npy", _npy(np.zeros(41, np.int64))),
        ("shape.npy", _npy(np.array([40, 2]))),
        ("shape.npy", _npy(np.array([-40, 8]))),
        ("meta.npy", _meta(format="other/1")),
        ("meta.npy", _meta(vocab="abcdefgh")),
        ("meta.npy", _meta(labels=["died"])),
        ("meta.npy", _meta(labels={"died": ["alive"]})),
        ("meta.npy", _npy(np.frombuffer(b"{", np.uint8))),
        ("extra.npy", _npy(np.ones(3))),
    ],
)
def test_load_refuses_damaged_files(tmp_path, name, payload):
    path = tmp_path / "c.npz"
    data.save(toy(), path)
    _rewrite(path, "meta.npy", _meta())
    assert data.load(path).num_docs == 40
    _rewrite(path, name, payload)
    with pytest.raises(ValueError, match="not a saved corpus, or damaged"):
        data.load(path)


def test_load_refuses_foreign_and_cut_files(tmp_path):
    path = tmp_path / "c.npz"
    data.save(toy(), path)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[60] ^= 0xFF  # inside the first member
    for content in (b"", b"hello", whole[: len(whole) // 2], bytes(flipped)):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="not a saved corpus, or damaged"):
            data.load(path)
    np.savez(path, x=np.ones(3))
    with pytest.raises(ValueError, match="not those of a corpus"):
        data.load(path)
    with pytest.raises(FileNotFoundError):
        data.load(tmp_path / "absent.npz")
