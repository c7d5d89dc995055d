"""Runs that start in one space: embeddings, topics and the epsilon of a blur."""

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest

import dwl_jax
from dwl_jax import io, spectral, start, train
from dwl_jax.documents import from_counts, sparse
from dwl_jax.types import Config, Hyper

DOCS = from_counts(problems.themes(num_docs=60, num_words=12))
CFG = Config(
    num_topics=3, dim=4, batch_size=20, num_iters=1, squared=True, start="spectral"
)
HYPER = Hyper(tau=0.75, blur=0.5)
KEY = jax.random.key(0)


def fit(hyper=HYPER, cfg=CFG, **kwargs):
    how = {"num_epochs": 2, "num_words": 12} | kwargs
    return train.fit(KEY, DOCS, hyper, cfg=cfg, **how)


def test_it_starts_at_the_spectrum_in_topics_of_pooled_documents():
    state = train.prepare(KEY, DOCS, HYPER, cfg=CFG, num_words=12).state
    X = spectral.spectral(DOCS, 12, 4)
    np.testing.assert_array_equal(state.params.theta, X.astype(np.float32))
    Z = start.pooled(sparse(DOCS, 12), X).astype(np.float32)
    own = np.asarray(state.params.A).argmax(1)
    centres = np.stack([Z[own == k].mean(0) for k in range(3)])
    centres /= np.linalg.norm(centres, axis=1)[:, None]
    np.testing.assert_array_equal(own, (Z @ centres.T).argmax(1))


def test_given_vectors_are_where_documents_are_pooled():
    X = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
    task = train.prepare(KEY, DOCS, HYPER, cfg=CFG, num_words=12, vectors=X)
    np.testing.assert_array_equal(task.state.params.theta, X)
    Z = start.pooled(sparse(DOCS, 12), X).astype(np.float32)
    A, _ = start.from_pooled(
        jax.random.split(KEY)[0], DOCS, Z, num_words=12, num_topics=3
    )
    np.testing.assert_array_equal(task.state.params.A, A)


def test_the_first_kernel_has_the_blur_and_epsilon_stays():
    state, info = fit()
    np.testing.assert_allclose(info.blur[0, 0], 0.5, rtol=1e-3)
    same, _ = fit(HYPER._replace(epsilon=float(state.epsilon), blur=0.0))
    assert same.epsilon is None
    np.testing.assert_array_equal(same.params.R, state.params.R)
    np.testing.assert_array_equal(same.params.theta, state.params.theta)


def test_a_model_carries_its_epsilon_and_a_saved_one_gives_the_same_bits(tmp_path):
    state, _ = fit()
    model = dwl_jax.model(state, CFG)
    want = dwl_jax.infer(DOCS, model, HYPER, cfg=CFG)
    words = [f"w{n}" for n in range(12)]
    io.save_model(tmp_path / "m", model, cfg=CFG, hyper=HYPER, vocab=words)
    saved = io.load_model(tmp_path / "m")
    assert saved.hyper.epsilon == state.epsilon and saved.hyper.blur == 0.0
    got = dwl_jax.infer(DOCS, saved.model, saved.hyper, cfg=saved.cfg)
    np.testing.assert_array_equal(got.lam, want.lam)
    shown = dwl_jax.topic_documents(model, HYPER, cfg=CFG)
    np.testing.assert_array_equal(
        shown, dwl_jax.topic_documents(saved.model, saved.hyper, cfg=saved.cfg)
    )


def test_tau_can_be_swept_and_each_lane_has_its_blur():
    taus = jnp.array([0.5, 1.0])
    state, info = jax.vmap(lambda tau: fit(HYPER._replace(tau=tau)))(taus)
    np.testing.assert_allclose(info.blur[:, 0, 0], 0.5, rtol=1e-3)
    one, _ = fit(HYPER._replace(tau=1.0))
    np.testing.assert_allclose(state.epsilon[1], one.epsilon, rtol=1e-5)
    np.testing.assert_allclose(state.params.R[1], one.params.R, rtol=1e-3, atol=1e-4)


def test_what_cannot_be_looked_at_is_said():
    run = lambda mass: (
        train.fit(
            KEY, DOCS._replace(mass=mass), HYPER, cfg=CFG, num_epochs=1, num_words=12
        )[1].loss
    )
    with pytest.raises(ValueError, match="'spectral' looks at documents"):
        jax.jit(run)(jnp.asarray(DOCS.mass))
    same = np.ones((12, 4), np.float32)
    with pytest.raises(ValueError, match="no epsilon gives a blur of 0.5"):
        fit(vectors=same)


def test_the_control_starts_in_the_same_topics_and_needs_no_epsilon():
    control = Config(
        num_topics=3, dim=4, batch_size=20, num_iters=1, start="spectral",
        transport=False, joint=False, step="none",
    )  # fmt: skip
    ours = train.prepare(KEY, DOCS, HYPER, cfg=CFG, num_words=12).state
    its = train.prepare(KEY, DOCS, HYPER, cfg=control, num_words=12).state
    assert its.epsilon is None
    np.testing.assert_array_equal(its.params.R, ours.params.R)
    np.testing.assert_array_equal(its.params.A, ours.params.A)
