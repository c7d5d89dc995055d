"""Weights of unseen documents: deterministic, independent, and as good as can be."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
from scipy.special import softmax

from dwl_jax import infer, metrics, objective, presets, train
from dwl_jax.barycenter import barycenter
from dwl_jax.documents import Documents, dense, from_counts
from dwl_jax.types import Config, Hyper, Model

M, N = 24, 12
COUNTS, GROUP = problems.counts(num_docs=M, num_words=N)
DOCS = Documents(*map(jnp.asarray, from_counts(COUNTS)))
CFG = Config(
    num_topics=3, dim=4, batch_size=10, num_iters=8, transport_iters=5, loss="kl",
    scale="mean", kernel="plain", step="explicit", joint=True, closest="weight",
    reduction="mean",
    optimizer_A="adam", optimizer_R="adam", optimizer_theta="adam",
)  # fmt: skip
HYPER = Hyper(
    tau=0.5, epsilon=0.2, epsilon_transport=1.0, beta=0.01, rate_A=0.3, rate_R=0.3,
    rate_joint=0.03, rate_theta=0.1, anchor=0.0, decay_epochs=0.0, label_weight=0.0,
)  # fmt: skip


@functools.cache
def trained(num_topics, loss):
    cfg = dataclasses.replace(CFG, num_topics=num_topics, loss=loss)
    state, _ = train.fit(
        jax.random.key(0), DOCS, HYPER, cfg=cfg, num_epochs=20, num_words=N
    )
    return cfg, state, train.model(state, cfg)


@functools.partial(jax.jit, static_argnames="cfg")
def losses_at(A, model, cfg, docs=DOCS, hyper=HYPER):
    """Reconstruction loss of each document at given logits, with the model fixed."""
    y = dense(docs, N).astype(A.dtype)
    k = objective.distilled_kernel(model.X, hyper, cfg)
    lam = jax.nn.softmax(A, axis=-1)
    log_y = barycenter(model.log_B, lam, k, num_iters=cfg.num_iters).log_y
    return objective.document_loss(y, log_y, k, hyper, cfg)


@pytest.mark.parametrize(("num_topics", "loss"), [(3, "kl"), (8, "squared")])
def test_training_documents_get_back_their_own_loss_or_better(num_topics, loss):
    cfg, state, model = trained(num_topics, loss)
    own = np.asarray(losses_at(state.params.A, model, cfg))
    got = infer(DOCS, model, HYPER, cfg=cfg)
    assert (np.asarray(got.loss) <= own * (1 + 1e-5)).all()
    assert got.loss.mean() < 0.97 * own.mean()


def test_training_documents_of_the_papers_own_settings_get_back_their_loss():
    """Trained by plain gradient steps, with 20 iterations, on squared errors."""
    counts, _ = problems.counts(num_docs=40, num_words=N)
    docs = Documents(*map(jnp.asarray, from_counts(counts)))
    preset = presets.paper(
        num_topics=3, dim=5, batch_size=8, scale="mean", epsilon=0.1,
        epsilon_transport=0.1, kernel="plain",
    )  # fmt: skip
    hyper, cfg = preset.hyper, preset.cfg
    state, _ = train.fit(
        jax.random.key(0), docs, hyper, cfg=cfg, num_epochs=20, num_words=N
    )
    model = train.model(state, cfg)
    own = np.asarray(losses_at(state.params.A, model, cfg, docs, hyper))
    got = np.asarray(infer(docs, model, hyper, cfg=cfg).loss)
    assert (got <= own * (1 + 1e-3)).all()
    assert got.mean() < 0.99 * own.mean()


def test_what_trained_the_model_does_not_matter():
    cfg, _, model = trained(3, "kl")
    other = dataclasses.replace(cfg, optimizer_A="sgd", reduction="sum")
    one, two = (infer(DOCS, model, HYPER, cfg=c) for c in (cfg, other))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_is_given_back_belongs_together():
    cfg, _, model = trained(3, "kl")
    got = infer(DOCS, model, HYPER, cfg=cfg)
    np.testing.assert_allclose(got.lam.sum(axis=1), 1.0, rtol=1e-5)
    want = losses_at(jnp.log(got.lam), model, cfg)
    np.testing.assert_allclose(got.loss, want, rtol=1e-5)
    y, log_y = np.asarray(dense(DOCS, N)), np.asarray(got.log_y, np.float64)
    log_y = log_y - np.log(np.exp(log_y).sum(axis=1, keepdims=True))
    kl = np.where(y > 0, y * (np.log(np.where(y > 0, y, 1.0)) - log_y), 0.0).sum(axis=1)
    np.testing.assert_allclose(got.loss, kl, rtol=1e-5)


def test_the_model_has_learned_the_groups_and_beats_saying_the_mean():
    cfg, _, model = trained(3, "kl")
    got = infer(DOCS, model, HYPER, cfg=cfg)
    assert metrics.purity(np.argmax(got.lam, axis=1), GROUP) >= 0.85
    y = np.asarray(dense(DOCS, N), np.float64)
    mean = y.mean(axis=0)
    nothing = np.where(y > 0, y * np.log(np.where(y > 0, y, 1.0) / mean), 0).sum(axis=1)
    assert got.loss.mean() < 0.7 * nothing.mean()


def test_the_same_documents_give_the_same_bits():
    cfg, _, model = trained(3, "kl")
    one, again = (infer(DOCS, model, HYPER, cfg=cfg) for _ in range(2))
    for a, b in zip(one, again, strict=True):
        np.testing.assert_array_equal(a, b)


def test_documents_do_not_depend_on_their_company():
    cfg, _, model = trained(3, "kl")
    whole = infer(DOCS, model, HYPER, cfg=cfg)
    order = np.random.default_rng(0).permutation(M)  # other batches, other fillers
    mixed = infer(jax.tree.map(lambda x: x[order], DOCS), model, HYPER, cfg=cfg)
    np.testing.assert_allclose(mixed.lam, whole.lam[order], atol=1e-4)
    np.testing.assert_allclose(mixed.loss, whole.loss[order], rtol=1e-5)
    counts = infer(COUNTS, model, HYPER, cfg=cfg)
    np.testing.assert_allclose(counts.loss, whole.loss, rtol=1e-5)


@pytest.mark.parametrize(("loss", "masked"), [("kl", True), ("squared", False)])
def test_weights_of_two_topics_are_the_minimum_on_a_grid(masked, loss):
    """Judged on the observed words alone when a mask is given: KL of a conditional."""
    rng = np.random.default_rng(0)
    cfg = dataclasses.replace(CFG, num_topics=2, loss=loss)
    model = Model(
        jnp.log(softmax(2 * rng.normal(size=(2, N)), axis=1)),
        jnp.asarray(rng.normal(size=(N, 4))),
    )
    observed = np.arange(N) < 7 if masked else np.ones(N, bool)
    counts = COUNTS[:6] * observed + (np.arange(N) == 0)
    y = counts / counts.sum(axis=1, keepdims=True)
    mask = observed if masked else None
    got = infer(counts, model, HYPER, cfg=cfg, observed=mask)
    first = np.linspace(0, 1, 2001)
    lam = jnp.asarray(np.stack([first, 1 - first], axis=1))
    k = objective.distilled_kernel(model.X, HYPER, cfg)
    run = jax.jit(functools.partial(barycenter, num_iters=cfg.num_iters))
    y_hat = np.exp(run(model.log_B, lam, k).log_y)
    if masked or loss == "kl":
        y_hat = np.where(observed, y_hat, 0.0)
        y_hat = y_hat / y_hat.sum(axis=1, keepdims=True)
    for m in range(6):
        on = y[m] > 0
        if loss == "kl":
            grid = (y[m, on] * np.log(y[m, on] / y_hat[:, on])).sum(axis=1)
        else:
            grid = ((y_hat - y[m]) ** 2).sum(axis=1)
        np.testing.assert_allclose(got.loss[m], grid.min(), rtol=1e-5)
        np.testing.assert_allclose(got.lam[m, 0], first[grid.argmin()], atol=3e-3)
    if masked:  # the reconstruction is of all words, the unobserved included
        assert np.isfinite(got.log_y).all()
        assert np.exp(got.log_y)[:, ~observed].sum(axis=1).min() > 1e-2


def test_precision_is_that_of_the_model():
    cfg, _, model = trained(3, "kl")
    double = jax.tree.map(lambda x: x.astype(jnp.float64), model)
    everything = [True] * N  # which is no mask at all
    got = infer(DOCS, double, HYPER, cfg=cfg, observed=everything)
    assert {x.dtype for x in got} == {jnp.dtype("float64")}
    want = infer(DOCS, model, HYPER, cfg=cfg)
    assert {x.dtype for x in want} == {jnp.dtype("float32")}
    np.testing.assert_allclose(got.loss, want.loss, rtol=1e-5)


def test_a_strong_prior_holds_weights_at_uniform_and_none_leaves_them_free():
    cfg, _, model = trained(3, "kl")
    lam = lambda prior: np.asarray(
        infer(DOCS, model, HYPER._replace(prior=prior), cfg=cfg, num_steps=60).lam
    )
    np.testing.assert_allclose(lam(1e3), 1 / 3, atol=2e-2)
    spread = [np.abs(lam(prior) - 1 / 3).mean() for prior in (0.0, 0.1, 1.0)]
    assert spread[0] > spread[1] > spread[2]
