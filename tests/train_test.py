"""Algorithm 1: against numpy, and what holds for every document, batch and key."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import problems
import pytest
import reference

from dwl_jax import embedding, objective, presets, simplex, train
from dwl_jax.barycenter import barycenter
from dwl_jax.documents import Documents, dense, from_counts
from dwl_jax.types import Config, Hyper

M, N, K = 13, 8, 3
COUNTS, GROUP = problems.counts(num_docs=M, num_words=N)
DOCS = Documents(*map(jnp.asarray, from_counts(COUNTS, dtype=np.float64)))
KEY = jax.random.key(7)
CFG = Config(
    num_topics=K, dim=3, batch_size=5, num_iters=4, transport_iters=4, loss="kl",
    scale="mean", kernel="plain", step="explicit", joint=True, closest="weight",
    reduction="mean",
    optimizer_A="adam", optimizer_R="adam", optimizer_theta="adam",
)  # fmt: skip
HYPER = Hyper(
    tau=0.5, epsilon=0.2, epsilon_transport=1.0, beta=0.01, rate_A=0.3, rate_R=0.3,
    rate_joint=0.03, rate_theta=0.1, anchor=0.0, decay_epochs=0.0, label_weight=0.0,
)  # fmt: skip
change = functools.partial(dataclasses.replace, CFG)


def fit(key=KEY, docs=DOCS, hyper=HYPER, *, cfg=CFG, num_epochs=2, **kwargs):
    return train.fit(
        key, docs, hyper, cfg=cfg, num_epochs=num_epochs, num_words=N, **kwargs
    )


def starts(cfg, key=KEY, num_docs=M, num_words=N):
    """The State that `fit` starts from, and the key of its epochs."""
    key_init, key_run = jax.random.split(key)
    state = train.init(key_init, num_docs, num_words, cfg=cfg, dtype=jnp.float64)
    return state, key_run


def orders(key_run, num_docs, num_epochs):
    shuffle = lambda e: jax.random.permutation(jax.random.fold_in(key_run, e), num_docs)
    return [np.asarray(shuffle(e)) for e in range(num_epochs)]


def close(a, b, rtol=1e-9):
    """Trees of arrays, keys apart, to a relative tolerance of their largest entry."""
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        scale = max(float(np.abs(np.asarray(y, np.float64)).max()), 1e-300)
        np.testing.assert_allclose(x, y, rtol=0, atol=rtol * scale)


def test_paper_preset_is_the_numpy_transcription_of_algorithm_1():
    counts, _ = problems.counts(num_docs=7, num_words=5)
    docs = from_counts(counts, dtype=np.float64)
    preset = presets.paper(num_topics=2, dim=2, batch_size=3)
    state, info = train.fit(
        KEY, docs, preset.hyper, cfg=preset.cfg, num_epochs=2, num_words=5
    )
    first, key_run = starts(preset.cfg, num_docs=7, num_words=5)
    Y = counts / counts.sum(axis=1, keepdims=True)
    A, R, X, losses = reference.algorithm1(
        *first.params, Y, orders(key_run, 7, 2), tau=0.5, epsilon=0.01, beta=0.01,
        rho=0.05, batch_size=3, num_iters=20,
    )  # fmt: skip
    np.testing.assert_allclose(info.loss.ravel(), losses, rtol=1e-8)
    close(state.params, (A, R, X), rtol=1e-7)
    for got, start in zip(state.params, first.params, strict=True):
        assert np.abs(got - start).max() > 1e-4


def test_every_document_is_used_once_in_every_epoch_with_its_own_adam_state():
    first, _ = starts(CFG)
    state, info = fit(num_epochs=1)
    assert info.loss.shape == (1, 3) and state.epoch == 1
    np.testing.assert_array_equal(state.opt_A.count, np.ones(M))
    # The first step of a fresh Adam is the sign of the gradient, for every row.
    moved = np.abs(np.asarray(state.params.A - first.params.A))
    np.testing.assert_allclose(moved, 0.3, rtol=1e-3)
    state, info = fit(num_epochs=2)
    assert info.loss.shape == (2, 3) and state.epoch == 2
    np.testing.assert_array_equal(state.opt_A.count, np.full(M, 2))
    assert state.opt_R.count == 6  # shared: one step per batch


def test_the_last_partial_batch_is_what_a_batch_of_that_size_gives():
    state, key_run = starts(CFG)
    (order,) = orders(key_run, M, 1)
    Y, losses = dense(DOCS, N), []
    step = jax.jit(functools.partial(train.step, cfg=CFG))
    for rows in (order[:5], order[5:10], order[10:]):
        batch = objective.Batch(jnp.asarray(rows), jnp.ones(len(rows)), Y[rows], None)
        state, info = step(state, batch, HYPER)
        losses.append(info.loss)
    got, got_info = fit(num_epochs=1)
    close(got.params, state.params)
    close(got.opt_A, state.opt_A)
    close(got.opt_R, state.opt_R)
    np.testing.assert_allclose(got_info.loss[0], losses, rtol=1e-10)


def test_a_batch_larger_than_the_corpus_is_the_corpus():
    big, _ = fit(cfg=change(batch_size=1000, step="none"), num_epochs=1)
    exact, _ = fit(cfg=change(batch_size=M, step="none"), num_epochs=1)
    chex.assert_trees_all_equal(big.params, exact.params)


def test_a_step_is_its_parts_put_together():
    """A, R, theta by optax on the loss; then the embedding step, with the new A, R."""
    state, _ = starts(CFG)
    Y = dense(DOCS, N)
    rows = jnp.array([4, 0, 9])
    batch = objective.Batch(rows, jnp.ones(3), Y[rows], None)
    got, info = jax.jit(functools.partial(train.step, cfg=CFG))(state, batch, HYPER)

    A_s, R, X = state.params.A[rows], state.params.R, state.params.theta
    fn = lambda A, R, X: objective.topic_loss(A, R, X, batch, None, HYPER, cfg=CFG)
    (total, _), grads = jax.jit(jax.value_and_grad(fn, (0, 1, 2), has_aux=True))(
        A_s, R, X
    )
    adam = lambda g: optax.scale_by_adam().update(g, optax.scale_by_adam().init(g))[0]
    A_s = A_s - 0.3 * adam(grads[0])
    R = R - 0.3 * adam(grads[1] / 3)
    X = X - 0.03 * adam(grads[2] / 3)
    D = reference.distance_matrix(np.asarray(X))
    D = D / (D.sum() / (N * (N - 1)))
    B = np.exp(simplex.log_topics(R))
    T = sum(
        reference.plan(B[np.argmax(a)], np.asarray(y), D, 1.0, 4) / 3
        for a, y in zip(A_s, Y[rows], strict=True)
    )
    L = reference.laplacian(T)
    np.testing.assert_allclose(info.energy, np.trace(X.T @ L @ X), rtol=1e-9)
    np.testing.assert_allclose(info.loss, total / 3, rtol=1e-10)
    np.testing.assert_allclose(info.grad_norm, np.linalg.norm(grads[1]) / 3, rtol=1e-9)
    np.testing.assert_allclose(got.params.theta, X - 0.1 * 2 * L @ X, rtol=1e-8)
    np.testing.assert_allclose(got.params.R, R, rtol=1e-9)
    np.testing.assert_allclose(got.params.A[rows], A_s, rtol=1e-9)
    others = np.setdiff1d(np.arange(M), rows)
    np.testing.assert_array_equal(got.params.A[others], state.params.A[others])
    np.testing.assert_array_equal(got.opt_A.count, np.isin(np.arange(M), rows))


def test_same_key_same_bits_and_another_key_another_run():
    one, again, other = fit(), fit(), fit(jax.random.key(8))
    chex.assert_trees_all_equal(one, again)
    assert np.abs(one[0].params.R - other[0].params.R).max() > 0.1


def test_a_resumed_run_is_the_uninterrupted_one():
    state, key_run = starts(CFG)
    run = functools.partial(train.run_epochs, key_run, docs=DOCS, hyper=HYPER, cfg=CFG)
    half, _ = run(state, num_epochs=1)
    whole, _ = run(half, num_epochs=1)
    close(whole.params, fit(num_epochs=2)[0].params, rtol=1e-12)


def test_numbers_compile_once_and_a_vmapped_sweep_is_its_single_runs():
    single = {tau: fit(hyper=HYPER._replace(tau=tau)) for tau in (0.25, 1.0)}
    size = train.run_epochs._cache_size()
    fit(jax.random.key(1), hyper=HYPER._replace(tau=0.33, epsilon=0.4, rate_R=0.01))
    assert train.run_epochs._cache_size() == size

    @jax.jit
    @jax.vmap
    @functools.partial(chex.assert_max_traces, n=1)
    def sweep(tau):
        state, info = fit(hyper=HYPER._replace(tau=tau))
        return state.params, info.loss

    params, losses = sweep(jnp.array([0.25, 1.0]))
    again, _ = sweep(jnp.array([1.0, 0.25]))
    for place, (state, info) in enumerate(single.values()):
        close(jax.tree.map(lambda x, i=place: x[i], params), state.params, rtol=1e-7)
        close(jax.tree.map(lambda x, i=place: x[1 - i], again), state.params, 1e-7)
        np.testing.assert_allclose(losses[place], info.loss, rtol=1e-7)
    assert np.abs(losses[0] - losses[1]).max() > 1e-4  # tau matters


def test_info_tells_how_far_the_plans_disagree():
    still = HYPER._replace(rate_A=0.0, rate_R=0.0)
    cfg = change(joint=False, step="none")
    state, info = fit(hyper=still, cfg=cfg, num_epochs=1)
    k = objective.distilled_kernel(state.params.theta, HYPER, cfg)
    want = barycenter(
        simplex.log_topics(state.params.R), simplex.weights(state.params.A), k,
        num_iters=cfg.num_iters,
    )  # fmt: skip
    sizes = np.array([5, 5, 3]) / M
    np.testing.assert_allclose(info.error[-1] @ sizes, want.error.mean(), rtol=1e-8)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_reduction_of_a_batch_is_for_what_documents_share(reduction):
    cfg = change(
        reduction=reduction, batch_size=M, optimizer_A="sgd", optimizer_R="sgd",
        optimizer_theta="sgd",
    )  # fmt: skip
    share = 1 / M if reduction == "mean" else 1.0
    state, _ = starts(cfg)
    got, _ = fit(cfg=cfg, num_epochs=1, hyper=HYPER._replace(rate_theta=0.0))
    batch = objective.Batch(jnp.arange(M), jnp.ones(M), dense(DOCS, N), None)
    fn = lambda *p: objective.topic_loss(*p, batch, None, HYPER, cfg=cfg)[0]
    grads = jax.jit(jax.grad(fn, (0, 1, 2)))(*state.params)
    rates = (0.3, 0.3 * share, 0.03 * share)  # documents do not share a row of A
    want = [x - r * g for x, r, g in zip(state.params, rates, grads, strict=True)]
    close(got.params, want, rtol=1e-9)


def test_supervised_mode_gives_every_labelled_document_a_topic_of_its_label():
    labels = np.where(np.arange(M) == 4, -1, GROUP % 2)
    cfg = change(num_topics=4, closest="distance", step="proximal")
    hyper = HYPER._replace(label_weight=1.0, beta=1.0)
    state, info = fit(cfg=cfg, hyper=hyper, num_epochs=25, labels=labels)
    lam = np.asarray(simplex.weights(state.params.A))
    own = np.stack([lam[:, 0] + lam[:, 2], lam[:, 1] + lam[:, 3]], axis=1)
    known = labels >= 0
    assert (own[known, labels[known]] > 0.8).all()
    assert info.loss[-1].mean() < 0.7 * info.loss[0].mean()


def test_the_anchor_acts_on_a_joint_step_without_an_embedding_step():
    hyper, cfg = HYPER._replace(rate_joint=0.3), change(step="none")
    state, _ = fit(hyper=hyper, cfg=cfg)
    assert np.abs(state.params.theta - state.theta_start).max() > 0.1
    state, _ = fit(hyper=hyper._replace(anchor=1.0), cfg=cfg)
    close(state.params.theta, state.theta_start)


@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_maps_with_features_start_from_vectors_and_learn(name):
    g = embedding.linear if name == "linear" else embedding.mlp(6)
    features = np.eye(N)
    vectors = np.random.default_rng(0).normal(size=(N, 3))
    cfg = change(embedding=g, loss="squared")
    state, info = fit(cfg=cfg, num_epochs=12, features=features, vectors=vectors)
    start = g.apply(state.theta_start, jnp.asarray(features))
    np.testing.assert_allclose(start, vectors, rtol=1e-9, atol=1e-9)
    assert np.abs(train.model(state, cfg).X - vectors).max() > 1e-2
    assert info.loss[-1].mean() < 0.8 * info.loss[0].mean()


def test_rates_fall_as_a_cosine_or_not_at_all():
    at = lambda epoch, decay: train.decayed(
        HYPER._replace(decay_epochs=jnp.asarray(decay)), jnp.asarray(epoch)
    )
    rates = ("rate_A", "rate_R", "rate_joint", "rate_theta")
    for name in rates:
        rate = getattr(HYPER, name)
        got = [getattr(at(e, 4.0), name) for e in (0, 1, 2, 4, 9)]
        half = 0.5 + 0.25 * np.sqrt(2)
        np.testing.assert_allclose(
            got, rate * np.array([1, half, 0.5, 0, 0]), atol=1e-15
        )
        np.testing.assert_allclose(getattr(at(9, 0.0), name), rate)
    fixed = set(Hyper._fields) - {*rates, "decay_epochs"}
    assert all(getattr(at(2, 4.0), name) == getattr(HYPER, name) for name in fixed)


def test_no_step_ever_holds_a_plan_per_document():
    cfg = change(batch_size=5, closest="distance", kernel="auto", num_topics=2)
    state, _ = starts(cfg, num_words=11)
    batch = objective.Batch(jnp.arange(5), jnp.ones(5), jnp.full((5, 11), 1 / 11), None)
    jaxpr = jax.make_jaxpr(functools.partial(train.step, cfg=cfg))(state, batch, HYPER)
    found = problems.shapes(jaxpr)
    assert (5, 2, 11) in found and (11, 11) in found
    assert not [s for s in found if s.count(11) >= 2 and 5 in s]


def test_documents_start_at_given_vectors_and_precision_follows_the_documents():
    vectors = np.random.default_rng(1).normal(size=(N, 3))
    state = train.init(KEY, M, N, cfg=CFG, vectors=vectors, dtype=jnp.float32)
    chex.assert_trees_all_equal(state.params.theta, vectors.astype(np.float32))
    assert {x.dtype for x in state.params} == {jnp.dtype("float32")}
    assert state.params.A.shape == (M, K) and state.params.R.shape == (K, N)
    big = train.init(KEY, 4000, 300, cfg=change(dim=50))
    for x in big.params:
        np.testing.assert_allclose([np.mean(x), np.std(x)], [0.0, 1.0], atol=0.05)


def test_a_start_is_the_same_with_and_without_64_bit():
    double = train.init(KEY, M, N, cfg=CFG)
    with jax.enable_x64(False):
        single = train.init(KEY, M, N, cfg=CFG)
    assert {x.dtype for x in double.params} == {jnp.dtype("float32")}
    chex.assert_trees_all_equal(double.params, single.params)
