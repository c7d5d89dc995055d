"""The public names, and the ten lines that a new user would write first."""

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest

import dwl_jax


def test_public_names_exist_and_are_sorted():
    assert dwl_jax.__all__ == sorted(dwl_jax.__all__)
    for name in dwl_jax.__all__:
        assert getattr(dwl_jax, name) is not None
    for module in (
        "cost", "embedding", "kernel", "losses", "metrics", "presets", "transport",
    ):  # fmt: skip
        assert getattr(dwl_jax, module).__name__ == f"dwl_jax.{module}"
    for fn in ("barycenter", "epoch", "fit", "infer", "init", "model", "step"):
        assert callable(getattr(dwl_jax, fn))


def test_the_first_ten_lines_of_a_new_user():
    counts, group = problems.counts(num_docs=20, num_words=9)
    preset = dwl_jax.presets.default(
        num_topics=3,
        dim=4,
        batch_size=8,
        num_iters=5,
        transport_iters=5,
        kernel="plain",
    )
    fit = lambda hyper: dwl_jax.fit(
        jax.random.key(0), docs, hyper, cfg=preset.cfg, num_epochs=6, num_words=9
    )
    docs = dwl_jax.documents.from_counts(counts)
    state, info = fit(preset.hyper)
    model = dwl_jax.model(state, preset.cfg)
    tops = dwl_jax.metrics.top_words(model.log_B, 3)
    new = dwl_jax.infer(counts[:2], model, preset.hyper, cfg=preset.cfg)
    taus = jnp.array([0.25, 0.5, 1.0], jnp.float32)
    swept = jax.vmap(lambda tau: fit(preset.hyper._replace(tau=tau))[1].loss)(taus)

    assert tops.shape == (3, 3) and set(tops.ravel()) <= set(range(9))
    np.testing.assert_allclose(new.lam.sum(axis=1), 1.0, rtol=1e-5)
    assert swept.shape == (3, *info.loss.shape)
    at_preset = jnp.abs(taus - preset.hyper.tau).argmin()
    if float(taus[at_preset]) == preset.hyper.tau:
        np.testing.assert_allclose(swept[at_preset], info.loss, rtol=1e-3)
    assert np.abs(swept[0] - swept[2]).max() > 1e-4


def test_epochs_and_steps_can_be_called_one_by_one_without_jit():
    counts, _ = problems.counts(num_docs=5, num_words=4)
    cfg = dwl_jax.Config(
        num_topics=2, dim=2, batch_size=3, num_iters=2, transport_iters=2,
        kernel="plain", joint=False, step="none",
    )  # fmt: skip
    hyper = dwl_jax.Hyper(tau=0.5, epsilon=0.2, rate_A=0.1, rate_R=0.1)
    docs = dwl_jax.documents.from_counts(counts)
    state = dwl_jax.init(jax.random.key(0), 5, 4, cfg=cfg)
    got, info = dwl_jax.epoch(jax.random.key(1), state, docs, hyper, cfg=cfg)
    want, _ = dwl_jax.run_epochs(
        jax.random.key(1), state, docs, hyper, cfg=cfg, num_epochs=1
    )
    assert info.loss.shape == (2,) and got.epoch == 1
    np.testing.assert_allclose(got.params.R, want.params.R, rtol=1e-5)


def test_counts_of_a_typo_are_not_swallowed():
    with pytest.raises(TypeError, match="num_epoch"):
        dwl_jax.fit(jax.random.key(0), np.ones((2, 2)), num_epoch=3)
