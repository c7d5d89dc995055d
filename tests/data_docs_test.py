"""The examples of docs/data.md run as they stand, on small files of the right names."""

import bz2
import pathlib
import re

import data_mimic_test as mimic
import data_nhds_test as nhds

DOCS = pathlib.Path(__file__).parents[1] / "docs" / "data.md"


def test_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "".join(line + "\r\n" for line in nhds.GOOD).encode()
    (tmp_path / "nhds2010.txt.bz2").write_bytes(bz2.compress(text))
    mimic.put(tmp_path / "mimic3", mimic.MIMIC3)
    mimic.put(tmp_path / "mimic4", mimic.MIMIC4)
    (tmp_path / "tweets.tsv").write_text('"pos"\tgood day\n"neg"\tbad day\n')
    (tmp_path / "news" / "sport").mkdir(parents=True)
    (tmp_path / "news" / "sport" / "1.txt").write_text("ball game")
    (tmp_path / "glove.txt").write_text("d_0389 1 2\np_0331 3 4\n")
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    names = {}
    for block in blocks:
        exec(compile(block, str(DOCS), "exec"), names)
    assert len(blocks) == 4
    assert (
        names["train"].num_docs == 5_543 and names["documents"].mass.shape[0] == 5_543
    )
    assert names["subset"].num_docs == 1 and names["mimic4"].num_docs == 2
    assert names["same"].vocab == names["toy"].vocab
    assert names["X"].shape == (81, 2) and len(names["missing"]) == 79
