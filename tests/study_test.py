"""The study: settings from flags, and one end-to-end run that goes on where it was."""

import pytest
from absl import flags
from absl.testing import flagsaver

from experiments import study, tables


def test_changes_are_numbers_words_and_truths():
    got = study.parse(["tau=1", "epsilon=0.3", "loss=squared", "debias=True"])
    assert got == {"tau": 1, "epsilon": 0.3, "loss": "squared", "debias": True}
    with pytest.raises(ValueError, match="--change=tau: must be name=value"):
        study.parse(["tau"])


@pytest.fixture(name="settings", scope="module")
def _settings():
    if "modes" not in flags.FLAGS:
        study.define_flags()
    if not flags.FLAGS.is_parsed():
        flags.FLAGS(["study", "--out=unused"])
    small = {"num_topics": 2, "dim": 3, "num_iters": 2, "num_epochs": 1}
    return {
        "corpus": "synthetic",
        "num_docs": 200,
        "modes": ["scratch"],
        "num_steps": 0,
        "baselines": False,
        "change": [f"{name}={value}" for name, value in small.items()],
    }


@pytest.mark.slow
def test_a_study_goes_on_where_it_stopped_and_refuses_other_settings(
    tmp_path, settings, capsys
):
    out = str(tmp_path / "study")
    with flagsaver.flagsaver(out=out, splits=2, **settings):
        study.main([])
        two = tables.read(f"{out}/study.json").values
    with flagsaver.flagsaver(out=out, splits=3, **settings):
        study.main([])
        three = tables.read(f"{out}/study.json").values
    cell = "DWL scratch, distance", "rec/f1@3"
    assert three[cell[0]][cell[1]][:2] == two[cell[0]][cell[1]]
    assert len(three[cell[0]][cell[1]]) == 3
    assert "DWL scratch, Wasserstein" in capsys.readouterr().out
    with (
        flagsaver.flagsaver(out=out, splits=3, **(settings | {"modes": ["died"]})),
        pytest.raises(ValueError, match="holds another study"),
    ):
        study.main([])
