"""One change at a time: every row is its own recipe, and a stopped run goes on."""

import pytest

from dwl_jax import data, presets
from experiments import choices, study, tables

TINY = "num_topics=2 dim=3 num_iters=2 num_epochs=1"


def test_every_choice_is_a_recipe_other_than_the_default():
    for mode in ("scratch", "finetune"):
        default = presets.default(mode=mode), True
        for choice in (*choices.CHOICES, *choices.OF_MODE[mode]):
            changes, by_kind = choices.parse(choice, mode)
            assert (presets.default(mode=mode, **changes), by_kind) != default
    with pytest.raises(ValueError, match="no such setting: taw"):
        choices.parse("taw=1.0", "scratch")


@pytest.mark.slow
def test_rows_differ_by_their_change_and_are_computed_once(tmp_path, monkeypatch):
    corpus, out = data.synthetic_admissions(200), str(tmp_path)
    rows = (TINY, f"{TINY} step=none joint=False")
    settings = {"mode": "scratch", "splits": 2, "choices": rows}
    found = choices.compare(corpus, out, **settings)
    score = [found.values[row]["effective rank"] for row in rows]
    assert len(score[0]) == len(score[1]) == 2 and score[0] != score[1]
    monkeypatch.setattr(study, "train", lambda *_: pytest.fail("learned again"))
    assert choices.compare(corpus, out, **settings).values == found.values
    assert tables.read(f"{out}/choices.json").values == found.values
    with pytest.raises(ValueError, match="holds other choices"):
        choices.compare(corpus, out, mode="finetune", splits=2, choices=rows)
