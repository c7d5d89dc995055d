"""The objectives of Algorithm 1: their values, their gradients, the closest topic."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import ot
import problems
import pytest
import reference
from scipy.special import softmax

from dwl_jax import embedding, kernel, objective
from dwl_jax.types import Config, Hyper

N, K, S, DIM = 6, 3, 4, 2
RNG = np.random.default_rng(0)
A, R, X = (jnp.asarray(RNG.normal(size=s)) for s in ((S, K), (K, N), (N, DIM)))
FEATURES = jnp.asarray(RNG.normal(size=(N, 3)))
Y = jnp.asarray(np.eye(N)[[0, 1, 4, 5]] * 0.7 + 0.3 / N)
HYPER = Hyper(
    tau=0.5, epsilon=0.3, epsilon_transport=0.3, beta=0.2, rate_A=0.1, rate_R=0.1,
    rate_joint=0.1, rate_theta=0.1, anchor=0.0, label_weight=0.0,
)  # fmt: skip
CFG = Config(
    num_topics=K, dim=DIM, batch_size=S, num_iters=6, transport_iters=40,
    loss="squared", scale="none", kernel="plain", step="explicit", joint=True,
    closest="weight", reduction="sum",
)  # fmt: skip
change = functools.partial(dataclasses.replace, CFG)


def batch(mask=None, labels=None):
    mask = jnp.ones(S) if mask is None else mask
    return objective.Batch(jnp.arange(S), mask, Y, labels)


def loss(A, R, theta, cfg=CFG, features=None, hyper=HYPER, num_labels=0, **kwargs):
    return objective.topic_loss(
        A, R, theta, batch(**kwargs), features, hyper, cfg=cfg,
        num_labels=num_labels,
    )  # fmt: skip


def test_topic_loss_is_the_sum_over_documents_of_the_numpy_loss():
    total, (each, _, _) = jax.jit(loss)(A, R, X)
    D = reference.distance_matrix(np.asarray(X)) ** 0.5
    want = []
    for m in range(S):
        lam = softmax(np.asarray(A[m]))
        y = reference.barycenter(softmax(np.asarray(R), axis=1), lam, D, 0.3, 6)
        want.append(np.sum((y - np.asarray(Y[m])) ** 2))
    np.testing.assert_allclose(each, want, rtol=1e-9)
    np.testing.assert_allclose(total, sum(want), rtol=1e-9)


def test_places_without_a_document_add_nothing():
    mask = jnp.array([1.0, 0.0, 1.0, 0.0])
    run = jax.jit(jax.value_and_grad(lambda A, R: loss(A, R, X, mask=mask)[0], (0, 1)))
    total, (grad_A, grad_R) = run(A, R)
    each = jax.jit(loss)(A, R, X)[1][0]
    np.testing.assert_allclose(total, each[0] + each[2], rtol=1e-12)
    np.testing.assert_array_equal(np.asarray(grad_A)[[1, 3]], 0.0)
    assert np.abs(grad_A[0]).max() > 1e-4 and np.abs(grad_R).max() > 1e-4


@pytest.mark.parametrize("name", ["squared", "kl", "sinkhorn", "own"])
def test_gradients_of_weights_and_topics_are_finite_differences(name):
    own = lambda y, log_y: jnp.sum(jnp.abs(y) * jnp.cos(log_y), axis=-1)
    iters = 400 if name == "sinkhorn" else 6  # its gradient is that at the optimum
    cfg = change(loss=own if name == "own" else name, num_iters=iters)
    fn = jax.jit(lambda A, R: loss(A, R, X, cfg)[0])
    grads = jax.jit(jax.grad(fn, (0, 1)))(A, R)
    rng = np.random.default_rng(1)
    dA, dR = (jnp.asarray(rng.normal(size=x.shape)) for x in (A, R))
    want = reference.finite_difference(lambda A: fn(A, R), A, dA, step=1e-5)
    np.testing.assert_allclose(jnp.vdot(grads[0], dA), want, rtol=1e-5)
    want = reference.finite_difference(lambda R: fn(A, R), R, dR, step=1e-5)
    np.testing.assert_allclose(jnp.vdot(grads[1], dR), want, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "squared"),
    [("one_hot", False), ("one_hot", True), ("linear", False), ("mlp", False)],
)
def test_joint_gradient_of_theta_is_the_finite_difference_of_the_whole_loss(
    name, squared
):
    g = {"mlp": embedding.mlp(4)}.get(name) or getattr(embedding, name)
    features = None if name == "one_hot" else FEATURES
    theta = g.init(jax.random.key(0), N, DIM, features, dtype=jnp.float64)
    cfg = change(embedding=g, squared=squared, loss="kl")
    fn = jax.jit(lambda theta: loss(A, R, theta, cfg, features)[0])
    rng = np.random.default_rng(2)
    direction = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), theta)
    if name == "mlp":
        direction["base"] = 0.0 * direction["base"]
    move = lambda t: jax.tree.map(lambda x, d: x + t * d, theta, direction)
    want = reference.finite_difference(lambda t: fn(move(t)), 0.0, 1.0)
    grad = jax.jit(jax.grad(fn))(theta)
    got = sum(jax.tree.leaves(jax.tree.map(jnp.vdot, grad, direction)))
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert abs(want) > 1e-4


def test_joint_gradient_with_scaled_distances_holds_the_unit():
    D = reference.distance_matrix(np.asarray(X))
    unit = D.sum() / (N * (N - 1))
    cfg = change(scale="mean", loss="kl")
    grad = jax.jit(jax.grad(lambda X: loss(A, R, X, cfg)[0]))(X)
    held = jax.jit(lambda X: loss(A, R, X / unit, change(loss="kl"))[0])
    direction = jnp.asarray(np.random.default_rng(3).normal(size=X.shape))
    want = reference.finite_difference(held, X, direction)
    np.testing.assert_allclose(jnp.vdot(grad, direction), want, rtol=1e-6)


def test_labels_pull_the_weights_towards_their_topics():
    labels = jnp.array([0, 1, -1, 1])
    hyper = HYPER._replace(label_weight=0.4)
    run = lambda A: loss(A, R, X, hyper=hyper, num_labels=2, labels=labels)[0]
    with_labels = jax.jit(run)(A)
    lam = softmax(np.asarray(A), axis=1)
    # Topics 0 and 2 serve label 0, topic 1 serves label 1; unknown: any topic will do.
    own = [lam[0, 0] + lam[0, 2], lam[1, 1], 1.0, lam[3, 1]]
    want = jax.jit(loss)(A, R, X)[0] - 0.4 * np.sum(np.log(own))
    np.testing.assert_allclose(with_labels, want, rtol=1e-10)


def test_own_topics_gives_every_label_a_topic():
    got = objective.own_topics(jnp.array([0, 1, 2, -1]), 5, 3)
    want = [[1, 0, 0, 1, 0], [0, 1, 0, 0, 1], [0, 0, 1, 0, 0], [1, 1, 1, 1, 1]]
    np.testing.assert_array_equal(got, np.array(want, bool))


def test_slip_closest_topic_by_largest_weight_or_by_smallest_distance():
    p = problems.problem(num_words=N, num_topics=K, num_docs=S)
    k = kernel.build(p.D, 0.02)
    log_B = jnp.log(jnp.asarray(softmax(3 * np.asarray(R), axis=1)))
    lam = jnp.asarray(softmax(np.asarray(A), axis=1))
    by_weight = objective.closest_topic(lam, log_B, Y, k, None, CFG)
    np.testing.assert_array_equal(by_weight, np.argmax(lam, axis=1))
    cfg = change(closest="distance", transport_iters=2000)
    by_distance = jax.jit(
        lambda: objective.closest_topic(lam, log_B, Y, k, None, cfg)
    )()
    B = np.exp(log_B)
    exact = [[ot.emd2(b / b.sum(), y / y.sum(), np.array(p.D)) for b in B] for y in
             np.asarray(Y)]  # fmt: skip
    np.testing.assert_array_equal(by_distance, np.argmin(exact, axis=1))
    assert (np.asarray(by_weight) != np.asarray(by_distance)).any()


@pytest.mark.parametrize("closest", ["weight", "distance"])
def test_labels_choose_the_closest_topic_in_supervised_mode(closest):
    p = problems.problem(num_words=N, num_topics=K, num_docs=S)
    k, cfg = kernel.build(p.D, 0.3), change(closest=closest, transport_iters=5)
    own = objective.own_topics(jnp.array([0, 1, 2, -1]), K, 3)
    got = objective.closest_topic(p.lam, p.log_B, Y, k, own, cfg)
    free = objective.closest_topic(p.lam, p.log_B, Y, k, None, cfg)
    np.testing.assert_array_equal(got, [0, 1, 2, free[3]])


@pytest.mark.parametrize("step", ["explicit", "proximal"])
@pytest.mark.parametrize("name", ["one_hot", "linear"])
def test_embedding_step_dispatches_and_then_anchors(step, name):
    g = getattr(embedding, name)
    features = None if name == "one_hot" else FEATURES
    theta = g.init(jax.random.key(1), N, DIM, features, dtype=jnp.float64)
    theta0 = g.init(jax.random.key(2), N, DIM, features, dtype=jnp.float64)
    L = embedding.laplacian(jnp.asarray(np.random.default_rng(4).uniform(size=(N, N))))
    embed = lambda theta: g.apply(theta, features)
    cfg = change(embedding=g, step=step)
    want = {
        "explicit": lambda: embedding.explicit_step(theta, L, 0.2, 0.1, embed=embed),
        "proximal": lambda: embedding.proximal_step(theta, L, 0.2, features=features),
    }[step]()
    run = lambda hyper: objective.embedding_step(theta, theta0, features, L, hyper, cfg)
    np.testing.assert_allclose(run(HYPER), want, rtol=1e-10)
    anchored = run(HYPER._replace(anchor=0.25))
    np.testing.assert_allclose(anchored, 0.75 * want + 0.25 * theta0, rtol=1e-10)
    np.testing.assert_allclose(run(HYPER._replace(anchor=1.0)), theta0, rtol=1e-12)


def test_without_an_embedding_step_the_anchor_acts_alone():
    theta0 = jnp.asarray(np.random.default_rng(5).normal(size=X.shape))
    hyper, cfg = HYPER._replace(anchor=0.25), change(step="none")
    got = objective.embedding_step(X, theta0, None, None, hyper, cfg)
    np.testing.assert_allclose(got, 0.75 * X + 0.25 * theta0, rtol=1e-12)


def test_kernel_of_the_objective_is_that_of_the_distilled_scaled_distances():
    cfg = change(scale="mean", squared=True)
    k = objective.distilled_kernel(X, HYPER._replace(tau=0.25), cfg)
    D = reference.distance_matrix(np.asarray(X)) ** 2
    unit = D.sum() / (N * (N - 1))
    np.testing.assert_allclose(k.log_C, -((D / unit) ** 0.25) / 0.3, rtol=1e-12)


def test_prior_of_weights_is_half_the_spread_of_the_logits_and_masked():
    hyper = HYPER._replace(prior=0.3)
    mask = jnp.array([1.0, 1.0, 0.0, 1.0])
    with_prior, (each, *_) = loss(A, R, X, hyper=hyper, mask=mask)
    without, (plain, *_) = loss(A, R, X, mask=mask)
    logits = np.asarray(A)
    spread = ((logits - logits.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    np.testing.assert_allclose(
        with_prior - without, 0.15 * spread[[0, 1, 3]].sum(), rtol=1e-9
    )
    np.testing.assert_array_equal(each, plain)  # what is reported has no prior in it
    shifted, _ = loss(A + 5.0, R, X, hyper=hyper, mask=mask)
    np.testing.assert_allclose(shifted, with_prior, rtol=1e-9)  # softmax has no shift
