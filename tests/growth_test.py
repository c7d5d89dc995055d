"""What experiments.growth measures and draws."""

import numpy as np
import pytest

from experiments import growth


def test_exponent_of_a_power_law():
    cells = [{"N": N, "processor": 2.0 * N**1.7} for N in (100, 300, 900)]
    assert growth.exponent(cells) == pytest.approx(1.7)


def test_drawn_words_are_as_frequent_as_one_over_their_rank():
    counts = growth.draw_counts(4_000, 30)
    share = counts.sum(axis=0) / counts.sum()
    want = 1.0 / np.arange(1, 31)
    np.testing.assert_array_equal(counts.sum(axis=1), 9)
    np.testing.assert_allclose(share, want / want.sum(), atol=0.01)


def test_measured_cells_are_drawn(tmp_path):
    changes = {"num_topics": 2, "batch_size": 4, "num_iters": 1}
    cells = growth.measure([40], changes, repeats=1)
    assert [c["N"] for c in cells] == [40]
    assert all(0.0 < c["clock"] < np.inf and c["temporary_GB"] > 0 for c in cells)
    cells += [cell | {"N": 50} for cell in cells]
    growth.figure(cells, tmp_path / "growth.svg")
    drawn = (tmp_path / "growth.svg").read_text()
    assert "<!-- N^" in drawn
    assert "<!-- 40 -->" in drawn
    assert "<!-- 50 -->" not in drawn  # would touch the label of 40
