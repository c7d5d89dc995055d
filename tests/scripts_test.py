"""The scripts: results, exit codes, errors with the flag's name, kills and resumes."""

import contextlib
import csv
import json
import random
import re
import signal
import subprocess

import numpy as np
import processes
import pytest

from dwl_jax import data, infer, io, metrics, topic_documents
from experiments import growth

SMALL = (
    "--dim=5",
    "--num_topics=3",
    "--batch_size=32",
    "--num_iters=4",
    "--kernel=plain",
    "--epsilon=0.3",
)
CORPUS = ("--num_docs=90", "--split=all")


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    more = ("--epochs=3", "--projector", "--pyldavis", f"--out={out}")
    printed = processes.run("train", *SMALL, *CORPUS, *more)
    assert printed.strip() == str(out)  # results on stdout, nothing else
    return out


@pytest.mark.slow
def test_train_writes_what_it_says(run_dir):
    saved = io.load_model(run_dir / "model")
    note = json.loads((run_dir / "settings.json").read_text())
    assert note["finished"]
    assert note["corpus"]["num_docs"] == 90
    assert (note["split"], note["split_seed"], note["mode"]) == ("all", 0, "scratch")
    assert note["config"]["num_topics"] == saved.cfg.num_topics == 3
    assert {"jax", "numpy", "python", "dwl-jax"} <= set(note["versions"])
    lines = (run_dir / "embeddings.txt").read_text().splitlines()
    assert lines[0] == "81 5"
    assert [line.split()[0] for line in lines[1:]] == list(saved.vocab)
    topics = list(csv.DictReader((run_dir / "topics.csv").read_text().splitlines()))
    assert len(topics) == 3 * 81
    rows = (run_dir / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(r)["step"] for r in rows] == list(range(9))
    names = {p.name for p in run_dir.iterdir()}
    assert {"tensorboard", "checkpoints", "projector", "pyldavis.json"} <= names


@pytest.mark.slow
def test_infer_script_is_the_library(run_dir, tmp_path):
    text = "d_4280 d_5849,p_3995\n\nd_0389 d_0389\n"
    args = (f"--model={run_dir}", "--docs=-", "--num_steps=30")
    printed = processes.run("infer", *args, stdin=text)
    rows = list(csv.DictReader(printed.splitlines()))
    assert [row["id"] for row in rows] == ["1", "3"]  # line numbers
    saved = io.load_model(run_dir / "model")
    counts = np.zeros((2, 81))
    for m, word in ((0, "d_4280"), (0, "d_5849"), (0, "p_3995"), (1, "d_0389")):
        counts[m, saved.vocab.index(word)] += 1
    want = infer(counts, saved.model, saved.hyper, cfg=saved.cfg, num_steps=30)
    lam = [[float(row[f"topic_{k}"]) for k in range(3)] for row in rows]
    np.testing.assert_allclose(lam, want.lam, rtol=1e-4, atol=1e-6)
    pooled = [float(rows[1][f"x_{i}"]) for i in range(5)]
    X = saved.model.X[saved.vocab.index("d_0389")]
    np.testing.assert_allclose(pooled, X, rtol=1e-6)
    out = tmp_path / "w.npz"
    args = (f"--model={run_dir}/model", "--corpus=synthetic", "--num_docs=7")
    processes.run("infer", *args, f"--out={out}", "--num_steps=5")
    with np.load(out) as found:
        assert found["lam"].shape == (7, 3)
        assert found["pooled"].shape == (7, 5)
        assert found["ids"][0] == "synthetic-0"


@pytest.mark.slow
def test_inspect_speaks_words(run_dir):
    args = (
        "--top=3",
        "--topics",
        "--neighbours=d_4280",
        "--recommend=d_4280,d_5849",
        "--transport=d_4280 d_5849;d_0389 p_3995",
    )
    text = processes.run("inspect", f"--model={run_dir}", *args)
    saved = io.load_model(run_dir / "model")
    log_y = topic_documents(saved.model, saved.hyper, cfg=saved.cfg)
    for k, row in enumerate(metrics.own_words(log_y, 3)):
        part = text.split(f"topic {k}\n")[1].splitlines()[:3]
        assert [line.split()[1] for line in part] == [saved.vocab[n] for n in row]
    assert "d_4280 Congestive heart failure, unspecified\n" in text
    assert "by reconstruction" in text
    moves = [line.rsplit(" ", 1) for line in text.splitlines() if " → " in line]
    mass = [float(m) for _, m in moves]
    assert sum(mass) == pytest.approx(1.0, abs=0.01)  # all mass moves, rounded
    assert any("Hemodialysis" in words for words, _ in moves)


# Each row: flags, and what the one line on stderr must say. One process runs them all.
WRONG = {
    "train": [
        (["--corpus=nhds", "--out=OUT/new"], "--path is needed with --corpus=nhds"),
        (["--corpus=nhds", "--path=OUT/none", "--out=OUT/new"], "--path: .*none"),
        (["--corpus=nhds", "--path=OUT/a.txt", "--out=OUT/new"], "--path: .*a.txt"),
        (["--path=OUT/a.txt", "--out=OUT/new"], "--path: .*synthetic"),
        (["--out=OUT/a.txt"], "--out=.*a.txt: is a file"),
        (["--out=OUT/a.txt/below"], "--out=.*cannot be written"),
        (["--out=OUT/foreign"], "--out: will not write into it"),
        (["--out=RUN"], "holds a run. --resume"),
        (["--out=RUN", "--resume"], "made with other settings: .*dim was 5"),
        (["--vectors=OUT/a.txt", "--out=OUT/new"], "--vectors: --mode=scratch"),
        (["--coordinator=localhost:1", "--out=OUT/new"], "--process_id are needed"),
        (["--mode=supervised", "--labels=x", "--out=OUT/new"], "no label 'x'"),
        (["--stream=yes", "--num_devices=2", "--out=OUT/new"], "--stream=yes is for"),
        (["--topics=0", "--out=OUT/new"], "num_topics"),
        (["--num_topics=0", "--out=OUT/new"], "num_topics"),
        (["--tau=7", "--out=OUT/new"], "Hyper.tau"),
        (["--num_devices=3", "--out=OUT/new"], "--num_devices=3"),
        (["--device=tpu", "--out=OUT/new"], "--device=tpu"),
        (["--max_words=9", "--out=OUT/new"], "--max_words says nothing to --corpus"),
        (["--notransport", "--num_iters=3", "--out=OUT/new"], "num_iters must be 1"),
        (["--nolearn_embeddings", "--joint", "--out=OUT/new"], "joint=True would move"),
        (["--memory=0.2", "--out=OUT/new"], "no run takes less than 0.6 GB"),
        (
            ["--corpus=npz", "--path=OUT/wide.npz", "--memory=0.7", "--out=OUT/new"],
            r"take 0.8 GB, .* allows 0.7: 4,\d+ words fit. --min_count=2 .leaves about",
        ),
    ],
    "infer": [
        (["--model=OUT/foreign", "--docs=OUT/a.txt"], "--model: .*foreign"),
        (["--model=RUN"], "--docs or --corpus"),
        (["--model=RUN", "--docs=OUT/none"], "--docs: .*none"),
        (["--model=RUN", "--docs=OUT/a.txt"], "2 words are not in the model: hello"),
        (["--model=RUN", "--docs=OUT/a.txt", "--unknown=drop"], "no document has"),
        (["--model=RUN", "--docs=OUT/a.txt", "--out=OUT/x.xls"], "--out=.*csv or .npz"),
    ],
    "text": [
        (["--data=m10", "--path=OUT/none", "--out=OUT/new"], "--path: .*none"),
        (["--data=20ng", "--path=OUT", "--out=OUT/new"], "--path: .*train_bow"),
        (["--data=m10", "--path=OUT/a.txt", "--out=OUT/new"], "--path: .*a.txt"),
        (["--data=m10", "--path=a", "--change=taw=1", "--out=OUT/new"], "such.* taw"),
    ],
    "inspect": [
        (["--model=RUN", "--neighbours=d_428"], "--neighbours: .*'d_428'. Near it"),
        (["--model=RUN", "--recommend=p_3995"], "--recommend: not diseases: p_3995"),
        (["--model=RUN", "--transport=d_4280"], "--transport: give two documents"),
    ],
}
DRIVER = """
import importlib, json, sys
from absl import flags
from experiments import cli
script = importlib.import_module("experiments." + sys.argv[1])
getattr(script, "define_flags", lambda: None)()
for args in json.loads(sys.argv[2]):
    for name in flags.FLAGS:
        flags.FLAGS[name].unparse()
    print("case", flush=True)
    flags.FLAGS(["x", *args])
    print("code", cli.guarded(script.main)(["x"]), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("script", WRONG)
def test_errors_name_the_flag_before_any_work(run_dir, tmp_path, script):
    (tmp_path / "a.txt").write_text("hello world\n")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.tex").write_text("years of work")
    wide = growth.draw_counts(400, 6_500)
    words, ids = (np.arange(n).astype(str) for n in wide.shape[::-1])
    kinds, none = ("word",) * len(words), ("",) * len(words)
    corpus = data.Corpus(wide, tuple(words), kinds, none, {}, ids)
    data.save(corpus, tmp_path / "wide.npz")
    fill = lambda a: a.replace("OUT", str(tmp_path)).replace("RUN", str(run_dir))
    cases = [[fill(a) for a in args] for args, _ in WRONG[script]]
    code = "import os; os.dup2(1, 2)\n" + DRIVER
    out = processes.python(code, script, json.dumps(cases))
    answers = out.split("case\n")[1:]
    assert len(answers) == len(cases)
    for (args, match), answer in zip(WRONG[script], answers, strict=True):
        errors = [x for x in answer.splitlines() if x.startswith("error: ")]
        assert "code 1" in answer, (args, answer)
        assert len(errors) == 1, (args, answer)
        assert re.search(match, errors[0]), (args, errors)
    assert not (tmp_path / "new" / "settings.json").exists()
    assert [p.name for p in (tmp_path / "foreign").iterdir()] == ["thesis.tex"]


@pytest.mark.slow
def test_flags_that_do_not_parse(tmp_path):
    wrong = (["--mode=fish", f"--out={tmp_path}/r"], ["--nope"], [])
    started = [processes.start("train", *args) for args in wrong]
    for code, out, err in map(processes.finish, started):
        assert code != 0
        assert out == ""
        assert "flag" in err.lower()


LONG = ("--epochs=100", "--keep=2", "--checkpoint_every=3")
ENDS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGKILL)


@pytest.mark.slow
def test_killed_again_and_again_it_ends_with_the_same_bits(tmp_path):
    """SIGKILL and signals at random moments; the moments differ from run to run."""
    args = (*SMALL, *CORPUS, *LONG)
    processes.run("train", *args, f"--out={tmp_path}/whole")
    out, log = tmp_path / "parts", tmp_path / "parts" / "metrics.jsonl"
    moments, codes = random.SystemRandom(), []
    for turn, number in enumerate(ENDS):
        resume = ["--resume"] if (out / "settings.json").exists() else []
        before = log.read_bytes() if log.exists() else b""
        process = processes.start("train", *args, f"--out={out}", *resume)
        if turn:  # wait until it trains; the first is killed while it starts
            changed = lambda b=before: log.exists() and log.read_bytes() != b
            processes.wait_for(changed, process)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(moments.uniform(0.0, 0.5 if turn else 3.0))
        process.send_signal(number)
        code, _, err = processes.finish(process)
        codes.append(code)
        assert code in (-9 if number == signal.SIGKILL else 128 + number, 0), err
        if code > 0:
            assert "--resume goes on" in err
            assert "Traceback" not in err
    assert sum(code != 0 for code in codes) >= 2, codes
    printed = processes.run("train", *args, f"--out={out}", "--resume")
    assert printed.strip() == str(out)
    want, got = processes.arrays(tmp_path / "whole"), processes.arrays(out)
    for name in want:
        np.testing.assert_array_equal(got[name], want[name])
    whole = (tmp_path / "whole" / "metrics.jsonl").read_text()
    assert log.read_text() == whole
    assert not list(out.glob("checkpoints/partial-*"))
    assert len(list(out.glob("checkpoints/epoch-*"))) == 2


@pytest.mark.slow
def test_a_run_that_is_not_finite_says_so_and_keeps_its_state(tmp_path):
    args = (*SMALL, *CORPUS, "--epochs=3", "--rate_theta=1e38", f"--out={tmp_path}/r")
    code, out, err = processes.finish(processes.start("train", *args))
    assert code == 3, err
    assert out == ""
    assert "theta after the embedding step is not finite in epoch 0, batch" in err
    assert "Traceback" not in err
    saved = io.load_model(tmp_path / "r" / "last_good")
    assert np.isfinite(saved.model.X).all()
    assert not (tmp_path / "r" / "model").exists()
