"""What a run will need, said before it: against what its compiled step asks for."""

import jax
import numpy as np
import pytest

from dwl_jax import choose, forecast, presets, stream, train
from experiments import growth

FIELDS = ("temp_size_in_bytes", "output_size_in_bytes")


@pytest.mark.parametrize(
    ("num_words", "changes"),
    [
        (2_500, {}),  # a held kernel
        (1_500, {"step": "proximal"}),  # and plans between all words
        (1_200, {"num_iters": 3}),  # Algorithm 2's own loop on a dense kernel
        (1_500, {"transport": False}),
    ],
)
def test_memory_is_what_the_compiled_step_asks_for(num_words, changes):
    recipe = presets.default(presets.Sizes(9, num_words), num_topics=8, **changes)
    counts = growth.draw_counts(recipe.cfg.batch_size, num_words)
    task = train.prepare(jax.random.key(0), counts, recipe.hyper, cfg=recipe.cfg)
    cfg, rows = choose.of_state(recipe.cfg, task.state, task.hyper), counts.shape[0]
    docs = stream.from_counts(counts).take(np.arange(rows))
    args = task.state, docs, np.ones(rows, "f4"), None, task.hyper
    lowered = stream.step.lower(*args, cfg=cfg, num_words=num_words, num_labels=0)
    found = lowered.compile().memory_analysis()
    asked = sum(getattr(found, name) for name in FIELDS)
    told = forecast.needed(num_words, recipe.cfg) - forecast.needed(0, recipe.cfg)
    assert 0.6 * asked < told + 8e6 < 1.8 * asked + 16e6  # small arrays are not counted


def test_words_that_fit_are_the_most():
    cfg = presets.default(presets.Sizes(9, 2_000)).cfg
    fit = forecast.words_that_fit(2e9, cfg)
    assert forecast.needed(fit, cfg) <= 2e9 < forecast.needed(fit + 1, cfg)
    assert forecast.words_that_fit(1e6, cfg) == 0
    assert 2 * fit > forecast.words_that_fit(2e9, cfg, 8) * 2.5


def test_a_machine_has_memory():
    assert 1e9 < forecast.machine() < 1e14
