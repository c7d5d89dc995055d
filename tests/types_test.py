"""Config and Hyper: what they refuse, and that they are fit for jit and vmap."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dwl_jax import embedding
from dwl_jax.types import Config, Hyper, optimizer

SIZES = (
    "num_topics", "dim", "batch_size", "num_iters", "transport_iters",
)  # fmt: skip
CHOICES = (
    "scale", "kernel", "step", "closest", "reduction", "loss",
    "optimizer_A", "optimizer_R", "optimizer_theta",
)  # fmt: skip


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("bad", [0, -1, 2.0, None, "3"])
def test_sizes_out_of_range_are_named(name, bad):
    with pytest.raises(ValueError, match=f"Config.{name} must be an int >= 1, got"):
        Config(**{name: bad})


@pytest.mark.parametrize("name", CHOICES)
def test_unknown_choices_are_named_with_what_is_allowed(name):
    with pytest.raises(ValueError, match=f"Config.{name} must be one of .*'nonsense'"):
        Config(**{name: "nonsense"})


def test_choices_that_do_not_go_together_are_named():
    with pytest.raises(ValueError, match="'proximal' needs a linear embedding map"):
        Config(step="proximal", embedding=embedding.mlp(4))
    assert Config(step="proximal", embedding=embedding.linear).step == "proximal"
    with pytest.raises(ValueError, match="5 given coordinates; Config.dim, which is 5"):
        Config(dim=5, embedding=embedding.beside(5, 1.0))


def test_config_is_a_static_argument_and_equal_ones_share_a_compilation():
    traces = []

    def fn(x, cfg):
        traces.append(cfg)
        return x * cfg.num_topics

    run = jax.jit(fn, static_argnames="cfg")
    assert run(1.0, cfg=Config(num_topics=3)) == run(1.0, cfg=Config(num_topics=3)) == 3
    assert len(traces) == 1
    assert run(1.0, cfg=Config(num_topics=4)) == 4 and len(traces) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().num_topics = 2


def test_callers_own_loss_and_optimizers_are_accepted():
    own = lambda y, log_y: jnp.sum(y * log_y, axis=-1)
    cfg = Config(loss=own, optimizer_A=optax.sgd(0.1), optimizer_R="sgd")
    assert cfg.loss is own and hash(cfg) == hash(dataclasses.replace(cfg))


def test_hyper_is_a_tree_of_numbers_that_vmap_can_sweep():
    sweep = Hyper()._replace(tau=jnp.array([0.25, 1.0]))
    axes = Hyper(*(None,) * len(Hyper._fields))._replace(tau=0)
    got = jax.vmap(lambda h: h.tau * h.epsilon, (axes,))(sweep._replace(epsilon=0.5))
    np.testing.assert_allclose(got, [0.125, 0.5])


@pytest.mark.parametrize(("name", "want"), [("sgd", 3.0), ("adam", 1.0)])
def test_optimizers_give_directions_without_a_rate(name, want):
    opt = optimizer(name)
    delta, _ = opt.update(jnp.array(3.0), opt.init(jnp.array(0.0)))
    np.testing.assert_allclose(delta, want, rtol=1e-6)  # `descend` subtracts
