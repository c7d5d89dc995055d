"""The control without transport: geometric means, and embeddings that have no part."""

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
from scipy.special import logsumexp, softmax

import dwl_jax
from dwl_jax import barycenter, identity, presets
from dwl_jax.types import Config

RECIPE = presets.default(
    transport=False, num_topics=3, dim=4, batch_size=11, num_epochs=4
)


def test_barycenters_are_geometric_means():
    p = problems.problem()
    p = p._replace(lam=p.lam.at[0].set(jnp.array([0.0, 0.5, 0.5])))
    log_B = p.log_B.at[0, 1].set(-jnp.inf)  # a topic without a word
    got = barycenter(
        log_B, p.lam, identity.IdentityKernel(jnp.zeros(()), 7), num_iters=1
    )
    B = np.exp(np.asarray(log_B))
    want = np.prod(B[None] ** np.asarray(p.lam)[:, :, None], axis=1)
    np.testing.assert_allclose(np.exp(got.log_y), want, rtol=1e-12)


def test_its_run_is_the_numpy_model_and_leaves_embeddings_alone():
    """The reported loss is that of log_softmax(Lambda log B) in numpy."""
    Y, _ = problems.counts()
    key = jax.random.key(0)
    fit = lambda n: dwl_jax.fit(key, Y, RECIPE.hyper, cfg=RECIPE.cfg, num_epochs=n)
    (start, info), (end, infos) = fit(1), fit(4)
    np.testing.assert_array_equal(start.params.theta, end.params.theta)
    assert not np.allclose(start.params.R, end.params.R)
    assert infos.loss[-1].mean() < info.loss[0].mean()

    model = dwl_jax.model(end, RECIPE.cfg)
    found = dwl_jax.infer(Y, model, RECIPE.hyper, cfg=RECIPE.cfg)
    y, log_B = Y / Y.sum(1, keepdims=True), np.asarray(model.log_B, np.float64)
    log_y = np.asarray(found.lam, np.float64) @ log_B
    log_y -= logsumexp(log_y, axis=1, keepdims=True)
    entropy = np.where(y > 0, y * np.log(np.where(y > 0, y, 1)), 0).sum(1)
    np.testing.assert_allclose(found.loss, entropy - (y * log_y).sum(1), atol=1e-5)

    documents = dwl_jax.topic_documents(model, RECIPE.hyper, cfg=RECIPE.cfg)
    B = softmax(np.asarray(end.params.R, np.float64), axis=1)
    np.testing.assert_allclose(np.exp(documents), B, rtol=1e-5)


def test_frozen_embeddings_stay_and_topics_are_still_transported():
    Y, _ = problems.counts()
    recipe = presets.default(learn_embeddings=False, num_topics=3, dim=4)
    assert recipe.cfg.transport and recipe.cfg.step == "none"
    of = lambda X: (
        dwl_jax.fit(
            jax.random.key(0), Y, recipe.hyper, cfg=recipe.cfg, num_epochs=2, vectors=X
        )[0].params
    )
    X = np.random.default_rng(0).normal(size=(Y.shape[1], 4)).astype(np.float32)
    one, other = of(X), of(X[::-1])
    np.testing.assert_array_equal(one.theta, X)
    assert np.abs(one.R - other.R).max() > 1e-2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_iters": 3}, "num_iters must be 1"),
        ({"joint": True}, "joint=True would move embeddings"),
        ({"step": "explicit"}, "step='explicit' would move embeddings"),
        ({"loss": "sinkhorn"}, "'sinkhorn' is a transport"),
    ],
)
def test_settings_that_contradict_the_control_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        presets.default(transport=False, **changes)


def test_config_names_what_the_control_needs():
    with pytest.raises(ValueError, match="num_iters must be 1, joint False"):
        Config(transport=False, num_iters=1)
