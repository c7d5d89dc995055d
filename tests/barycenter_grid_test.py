"""Values and gradients over the grid of tau, epsilon, precision and embeddings.

The judge is the float64 log domain. Float32 errors are relative to the largest entry:
exponents of cost / epsilon reach 400 here, and the last bit of 400 is 3e-5.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest

from dwl_jax import barycenter, cost, data, fit, kernel, presets

NUM_WORDS, NUM_TOPICS, NUM_DOCS, NUM_ITERS = 81, 8, 3, 20
NAMES = ("log_y", "topics", "weights", "cost", "embeddings")


def trained():
    """Embeddings and topic logits of a short run on the embedded admissions."""
    docs = data.synthetic_admissions(600).documents()
    cfg, hyper, _ = presets.default(num_epochs=12, batch_size=64, num_iters=3)
    key = jax.random.key(0)
    state, _ = fit(key, docs, hyper, cfg=cfg, num_epochs=12, num_words=NUM_WORDS)
    return np.asarray(state.params.theta), np.asarray(state.params.R)


@functools.cache
def inputs(embeddings):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(NUM_WORDS, 50))
    R = 2.0 * rng.normal(size=(NUM_TOPICS, NUM_WORDS))
    if embeddings == "clustered":
        X = problems.clustered(0, NUM_WORDS, 50)
    if embeddings == "trained":
        X, R = trained()
    lam = problems.simplex(rng, NUM_DOCS, NUM_TOPICS)
    # What float32 cannot hold is rounded first: both precisions get the same numbers.
    return tuple(x.astype(np.float32) for x in (X, R, lam))


@functools.partial(jax.jit, static_argnames="form")
def value_and_gradients(X, R, lam, tau, epsilon, *, form):
    """log y, and the gradients of a squared loss for all that Algorithm 1 learns."""
    y = jnp.zeros((NUM_WORDS,), X.dtype).at[jnp.array([3, 40, 77])].set(1 / 3)

    def fn(log_B, lam, D, X):
        D = D + cost.scale(cost.distance_matrix(X))
        k = kernel.build(cost.distill(D, tau), epsilon, form=form)
        log_y = barycenter(log_B, lam, k, num_iters=NUM_ITERS).log_y
        return jnp.sum((jnp.exp(log_y) - y[None, :]) ** 2), log_y

    zero = jnp.zeros((NUM_WORDS,) * 2, X.dtype)
    args = (jax.nn.log_softmax(R, axis=-1), lam, zero, X)
    grads, log_y = jax.grad(fn, (0, 1, 2, 3), has_aux=True)(*args)
    return dict(zip(NAMES, (log_y, *grads), strict=True))


@functools.cache
def judged(embeddings, tau, epsilon):
    args = [x.astype(np.float64) for x in inputs(embeddings)]
    return value_and_gradients(*args, tau, epsilon, form="log")


@pytest.mark.parametrize("embeddings", ["random", "clustered", "trained"])
@pytest.mark.parametrize("epsilon", [0.005, 0.01, 0.05, 0.5])
@pytest.mark.parametrize("tau", [0.25, 0.5, 1.0])
def test_both_precisions_are_the_float64_log_domain(tau, epsilon, embeddings):
    want = judged(embeddings, tau, epsilon)
    for dtype, tolerance in ((np.float32, 1e-4), (np.float64, 1e-9)):
        args = [np.asarray(x, dtype) for x in (*inputs(embeddings), tau, epsilon)]
        got = value_and_gradients(*args, form="auto")
        for name in NAMES:
            assert got[name].dtype == dtype
            assert np.isfinite(got[name]).all(), name
            scale = np.abs(want[name]).max()
            error = np.abs(np.asarray(got[name], np.float64) - want[name]).max() / scale
            assert error < tolerance, (name, np.dtype(dtype).name)
