"""The study: settings from flags, and one end-to-end run that goes on where it was."""

import pytest

from dwl_jax import data
from experiments import cli, study, tables


def test_changes_are_numbers_words_and_truths():
    got = cli.settings(["tau=1", "epsilon=0.3", "loss=squared", "joint=False"])
    assert got == {"tau": 1, "epsilon": 0.3, "loss": "squared", "joint": False}
    with pytest.raises(ValueError, match="--change=tau: must be name=value"):
        cli.settings(["tau"])


@pytest.mark.slow
def test_a_study_goes_on_where_it_stopped_and_refuses_other_settings(tmp_path):
    settings = {
        "part": "test",
        "modes": ["scratch", "control", "frozen"],
        "changes": {"num_topics": 2, "dim": 3, "num_iters": 2, "num_epochs": 1},
        "num_steps": 2,
        "learn_baselines": False,
    }
    corpus, out = data.synthetic_admissions(200), str(tmp_path)
    two = study.study(corpus, out, splits=2, **settings)
    three = study.study(corpus, out, splits=3, **settings)
    row, cell = "DWL scratch, distance", "rec/f1@3"
    assert three.values[row][cell][:2] == two.values[row][cell]
    assert len(three.values[row][cell]) == 3
    assert tables.read(f"{out}/study.json").values == three.values
    start = [
        three.values[f"{name}, distance"]
        for name in ("without transport", "frozen embeddings")
    ]
    assert start[0] == start[1]  # both as they are drawn
    told = study.report(three)
    assert "DWL scratch, Wasserstein" in told
    assert "frozen embeddings, topic weights" in told
    settings["modes"] = ["died"]
    with pytest.raises(ValueError, match="holds another study"):
        study.study(corpus, out, splits=3, **settings)
