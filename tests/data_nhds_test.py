"""NHDS reader on written files, and on the real part where it is present."""

import bz2
import gzip
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from dwl_jax import data
from dwl_jax.data import nhds
from experiments import corpora

REAL = pathlib.Path(__file__).parents[2] / "shared" / "data" / "nhds2010_part.txt.bz2"
real_file = pytest.mark.skipif(
    not REAL.exists(), reason=f"the NHDS file {REAL.name} is not on this machine"
)


def record(diagnoses=(), procedures=(), status="1", admission="1", newborn="2"):
    """One line, field by field as in the public-use documentation."""
    text = f"10{newborn}140111" + "05" + status + "0003" + "1" + "1" + "1" + "1"
    text += "00100" + "20"
    text += "".join(code.ljust(5, "-") for code in diagnoses).ljust(75)
    text += "".join(code.ljust(4, "-") for code in procedures).ljust(32)
    text += "01" + "  " + "123" + admission + "01" + "     "
    assert len(text) == nhds.WIDTH
    return text


GOOD = [
    record(["0389", "4019", "V3001"], ["0331", "640"], status="6", admission="2"),
    record(["4019", "4019", "E8120"], ["0331"], status="9", admission="9"),
    record(["389", "41401"], [], status="5", admission="5"),
]


def write(path, lines, end="\r\n"):
    path.write_bytes("".join(line + end for line in lines).encode("latin-1"))
    return path


def test_codes_labels_and_ids(tmp_path):
    c = data.read_nhds(write(tmp_path / "n.txt", GOOD))
    diseases = ("d_0389", "d_389", "d_4019", "d_41401", "d_E8120", "d_V3001")
    assert c.vocab == (*diseases, "p_0331", "p_640")
    want = [
        [1, 0, 1, 0, 0, 1, 1, 1],
        [0, 0, 1, 0, 1, 0, 1, 0],
        [0, 1, 0, 1, 0, 0, 0, 0],
    ]
    np.testing.assert_array_equal(c.counts.toarray(), want)
    assert c.labels["died"].tolist() == ["died", "", "alive"]
    assert c.labels["admission_type"].tolist() == ["urgent", "", "trauma"]
    assert c.ids.tolist() == ["1", "2", "3"]
    assert c.descriptions[0] == "Unspecified septicemia" and c.descriptions[1] == ""
    assert "1 repeated codes counted once" in c.history[0]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("tail", [b"", b"\x1a", b"\r\n\r\n"])
def test_line_ends_and_compression_do_not_matter(tmp_path, end, tail):
    content = write(tmp_path / "n.txt", GOOD, end).read_bytes() + tail
    (tmp_path / "n.txt").write_bytes(content.rstrip(b"\r\n") if not tail else content)
    (tmp_path / "n.gz").write_bytes(gzip.compress(content))
    (tmp_path / "n.txt.BZ2").write_bytes(bz2.compress(content))
    for name in ("n.txt", "n.gz", "n.txt.BZ2"):
        c = data.read_nhds(tmp_path / name)
        assert c.num_docs == 3 and c.counts.nnz == 10


def test_blocks_join(tmp_path, monkeypatch):
    path = write(tmp_path / "n.txt", GOOD * 50)
    whole = data.read_nhds(path)
    monkeypatch.setattr(nhds, "_BLOCK", 1000)
    blocks = data.read_nhds(path)
    np.testing.assert_array_equal(whole.counts.toarray(), blocks.counts.toarray())
    np.testing.assert_array_equal(whole.ids, blocks.ids)
    write(path, GOOD * 50 + [GOOD[0][:-1]])
    with pytest.raises(ValueError, match="line 151: .*: 148"):
        data.read_nhds(path)


def spoil(line, column, text):
    return line[:column] + text + line[column + len(text) :]


BAD = {
    "truncated": (GOOD[0][:120], "characters, where a record has 149: 120"),
    "too long": (GOOD[0] + "1", "characters, where a record has 149: 150"),
    "status": (spoil(GOOD[0], 11, "8"), "unknown discharge status: '8'"),
    "type": (spoil(GOOD[0], 141, "7"), "unknown type of admission: '7'"),
    "newborn": (spoil(GOOD[0], 2, "x"), "unknown newborn flag: 'x'"),
    "letters": (spoil(GOOD[0], 27, "ABCDE"), "malformed diagnosis code: 'ABCDE'"),
    "shifted": (spoil(GOOD[0], 27, " 0389"), "malformed diagnosis code: ' 0389'"),
    "gap": (spoil(GOOD[0], 32, "40-19"), "malformed diagnosis code: '40-19'"),
    "short": (spoil(GOOD[0], 27, "40---"), "malformed diagnosis code: '40---'"),
    "procedure": (spoil(GOOD[0], 102, "V331"), "malformed procedure code: 'V331'"),
    "encoding": (spoil(GOOD[0], 60, "\xe9"), r"not an ASCII character: '\\xe9'"),
    "null": (spoil(GOOD[0], 60, "\0"), r"not an ASCII character: '\x00'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_line_is_named_or_counted(tmp_path, case):
    line, message = BAD[case]
    path = write(tmp_path / "n.txt", [*GOOD, line, *GOOD])
    with pytest.raises(ValueError) as error:
        data.read_nhds(path)
    assert str(error.value) == f"{path}, line 4: {message}."
    c = data.read_nhds(path, skip_bad=True)
    assert c.num_docs == 6 and c.ids.tolist() == ["1", "2", "3", "5", "6", "7"]
    assert "skipped 1 lines: " + message.split(":")[0] in c.history[0]


def test_admission_without_codes_is_counted(tmp_path):
    c = data.read_nhds(write(tmp_path / "n.txt", [*GOOD, record()]))
    assert c.num_docs == 3 and "dropped 1 without a code" in c.history[0]
    with pytest.raises(ValueError, match="no discharge with a code in 1 lines"):
        data.read_nhds(write(tmp_path / "m.txt", [record()]))


def test_files_that_are_not_what_they_say(tmp_path):
    def check(name, content, message):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=message) as error:
            data.read_nhds(tmp_path / name)
        assert name in str(error.value)

    text = (GOOD[0] + "\n").encode()
    check("a.txt", b"", "is empty")
    check("b.gz", gzip.compress(b""), "is empty")
    check("c.gz", text, "the name means gzip, the first bytes are plain")
    check("d.bz2", gzip.compress(text), "the name means bzip2, .* gzip")
    check("e.txt", bz2.compress(text), "the name means plain, .* bzip2")
    check("f.txt", b"PK\x03\x04" + text, "zip")
    check("g.txt", text.decode().encode("utf-16"), "UTF-16")
    check("h.gz", gzip.compress(text * 9)[:-20], "damaged gzip")
    check("i.bz2", bz2.compress(text * 9)[:-20], "damaged bzip2")
    check("j.bz2", bz2.compress(text * 9)[:30] + b"x" * 40, "damaged bzip2")
    check("k.txt", b"x" * (1 << 22), "without a line end")
    check("l.csv", b"label,text\n1,2\n", "line 1: characters")
    with pytest.raises(ValueError, match="is a folder"):
        data.read_nhds(tmp_path)
    with pytest.raises(ValueError, match='"all" or "paper81"'):
        data.read_nhds(tmp_path / "a.txt", codes="81")


def test_paper_subset_in_one_call(tmp_path):
    path = write(tmp_path / "n.txt", GOOD)
    c = data.read_nhds(path, codes="paper81", min_diseases=2, min_procedures=2)
    assert c.num_docs == 1 and c.num_words == 81
    assert {c.vocab[j] for j in c.counts.indices} == {
        *("d_0389", "d_4019", "d_V3001", "p_0331", "p_640")
    }
    assert len(c.history) == 3


def test_rare_codes_go_before_admissions_are_counted_out(tmp_path):
    path = str(write(tmp_path / "n.txt", GOOD))
    minima = {"min_count": 2, "min_diseases": 1, "min_procedures": 1}
    c = corpora.load(corpora.Spec(corpus="nhds", path=path, codes="all", **minima))
    assert c.vocab == ("d_4019", "p_0331")
    assert c.ids.tolist() == ["1", "2"]


def slow_reading(path):
    """A second opinion: plain Python, one line at a time."""
    documents = []
    with bz2.open(path, "rt", encoding="ascii") as handle:
        for line in handle:
            codes = {"d_" + line[27 + 5 * i : 32 + 5 * i] for i in range(15)}
            codes |= {"p_" + line[102 + 4 * i : 106 + 4 * i] for i in range(8)}
            kept = {code.strip(" -") for code in codes} - {"d_", "p_"}
            documents.append((kept, line[11], line[141]))
    return documents


@real_file
def test_real_file_matches_a_plain_reading():
    c = data.read_nhds(REAL)
    assert c.counts.shape == (100_826, 9_718)
    want = slow_reading(REAL)
    assert c.num_docs == len(want)
    vocab = np.array(c.vocab)
    for m in range(0, c.num_docs, 7):
        row = c.counts.indices[c.counts.indptr[m] : c.counts.indptr[m + 1]]
        assert set(vocab[row]) == want[m][0]
    assert sum(map(len, (w[0] for w in want))) == c.counts.sum()
    assert (c.labels["died"] == "died").sum() == sum(w[1] == "6" for w in want)
    assert (c.labels["died"] == "").sum() == sum(w[1] == "9" for w in want)
    assert (c.labels["admission_type"] == "").sum() == sum(w[2] == "9" for w in want)


@real_file
def test_real_file_paper_subset():
    c = data.read_nhds(REAL, codes="paper81", min_diseases=2, min_procedures=2)
    assert c.counts.shape == (8_914, 81)
    assert set(c.labels["admission_type"]) == {
        *("", "elective", "emergency", "newborn", "urgent")
    }
    assert (data.count_kind(c, "disease") >= 2).all()


@real_file
def test_real_file_is_read_in_time_and_memory():
    """In a process of its own: under 15 s and 1 GB, all codes.

    Not by ru_maxrss: that of a child begins at what its parent, this test run, holds.
    """
    program = (
        "import re, sys, time\n"
        "from dwl_jax import data\n"
        "start = time.perf_counter()\n"
        "data.read_nhds(sys.argv[1])\n"
        "seconds = time.perf_counter() - start\n"
        "used = re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]\n"
        "sys.stdout.write(f'{seconds} {used}')\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, str(REAL)],
        capture_output=True,
        check=True,
        text=True,
        cwd=pathlib.Path(__file__).parents[1],
    )
    seconds, kilobytes = map(float, run.stdout.split())
    assert seconds < 15.0
    assert kilobytes < 1_000_000
