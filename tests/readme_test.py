"""The README's Python runs as it stands, block after block."""

import pathlib
import re

import jax

README = pathlib.Path(__file__).parents[1] / "README.md"


def test_python_blocks_run_in_order(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert len(blocks) == 2
    names = {}
    with jax.numpy_rank_promotion("allow"), jax.enable_x64(False):
        for block in blocks:
            exec(compile(block, "README.md", "exec"), names)
    shown = capsys.readouterr().out
    assert "(3, 2, 4)" in shown  # the sweep: tau, epochs, batches
    assert "(30, 8)" in shown  # the gradient: words, dim
    assert names["state"].params.A.shape == (500, 4)
