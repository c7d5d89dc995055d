"""Hostile and odd corpora: a right result or a clear error, never NaN or a hang."""

import dataclasses

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import pytest

from dwl_jax import Config, Documents, Hyper, checks, data, fit, infer, model

# One batch holds any of these corpora. Most have one shape and as many epochs: what is
# compiled for one, the others find.
CFG = Config(num_topics=2, dim=3, batch_size=64, num_iters=10, transport_iters=10)
FAST = dataclasses.replace(CFG, kernel="plain")  # half as long to compile
BASE = np.array(
    [
        [1, 1, 0, 0, 0],
        [1, 0, 2, 0, 0],
        [1, 1, 0, 1, 0],
        [1, 0, 0, 3, 1],
        [1, 1, 1, 1, 1],  # every word: fixes the padded shape
        [1, 0, 2, 0, 1],
    ],
    float,
)


def run(Y, hyper=Hyper(), cfg=CFG, num_epochs=40, **kwargs):  # noqa: B008 - a tuple
    """Trains and infers through the public API; what must hold of any result holds."""
    key = jax.random.key(0)
    state, info = fit(key, Y, hyper, cfg=cfg, num_epochs=num_epochs, **kwargs)
    found = model(state, cfg)
    result = infer(Y, found, hyper, cfg=cfg, num_steps=15)
    for name, tree in (("state", state), ("info", info), ("inference", result)):
        for leaf in jax.tree.leaves(tree):
            assert np.isfinite(np.asarray(leaf)).all(), name
    np.testing.assert_allclose(np.exp(found.log_B).sum(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(result.lam.sum(axis=1), 1.0, rtol=1e-5)
    assert (np.asarray(result.lam) >= 0.0).all()
    assert (np.asarray(result.loss) >= -1e-5).all()  # a KL divergence
    first, last = info.loss[0].mean(), info.loss[-1].mean()
    assert last <= first + 1e-4, (first, last)
    return state, info, result


def entropy_floor(Y):
    """What one topic can reach at best: the mean KL of documents to their mean."""
    P = Y / Y.sum(axis=1, keepdims=True)
    mean = P.mean(axis=0, keepdims=True)
    terms = np.where(P > 0, P * np.log(np.where(P > 0, P, 1.0) / mean), 0.0)
    return terms.sum(axis=1).mean()


@pytest.mark.slow
def test_one_document_is_learned():
    _, info, result = run(BASE[4:5], cfg=FAST)
    assert float(info.loss[-1, 0]) < 0.02
    assert float(result.loss[0]) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("num_docs", [1, 6])
def test_one_word_leaves_nothing_to_learn(num_docs):
    _, info, result = run(BASE[:num_docs, :1], cfg=FAST)
    np.testing.assert_allclose(info.loss, 0.0, atol=1e-6)
    np.testing.assert_allclose(result.loss, 0.0, atol=1e-6)


@pytest.mark.slow
def test_one_topic_has_all_the_weight():
    cfg = dataclasses.replace(FAST, num_topics=1)
    _, info, result = run(BASE, cfg=cfg)
    np.testing.assert_allclose(result.lam, 1.0)
    assert float(info.loss[-1].mean()) >= entropy_floor(BASE) - 1e-4
    assert float(info.loss[-1].mean()) < entropy_floor(BASE) + 0.1


@pytest.mark.slow
def test_more_topics_than_documents():
    cfg = dataclasses.replace(FAST, num_topics=9)
    _, info, _ = run(BASE, cfg=cfg)
    assert float(info.loss[-1].mean()) < 0.1  # a topic for each, if it likes


def none_of(word):
    Y = BASE.copy()
    Y[:, word] = 0.0
    Y[4, word] = 1e-12  # keeps the shape; as mass it is nothing
    return Y


NAMED = {
    "plain": BASE,
    "a word in every document": BASE,  # word 0
    "a word in none": none_of(3),
    "identical documents": np.tile(BASE[4], (6, 1)),
    "weights from 1e-12 to 1": np.tile(np.logspace(-12, 0, 5), (6, 1)),
    "weights each way": np.stack(
        [np.roll(np.logspace(-12, 0, 5), i) for i in range(6)]
    ),
    "huge counts": BASE * 1e300,
    "tiny counts": BASE * 1e-300,
    "10,000 words of which 5 differ": BASE * np.array([[2000.0]]) + (BASE > 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMED)
def test_named_corpora(name):
    run(NAMED[name])


@pytest.mark.slow
def test_a_word_that_never_occurs_keeps_its_place_and_little_mass():
    Y = np.delete(BASE, 4, axis=0)
    Y[:, 4] = 0.0
    state, _, result = run(Y, cfg=FAST)
    mass = np.exp(np.asarray(result.log_y))
    mass /= mass.sum(axis=1, keepdims=True)
    assert mass.shape[1] == 5
    assert (mass[:, 4] < 0.05).all()


@pytest.mark.slow
def test_identical_documents_get_identical_answers():
    _, _, result = run(NAMED["identical documents"])
    np.testing.assert_allclose(result.lam, np.tile(result.lam[:1], (6, 1)), rtol=1e-5)


@pytest.mark.slow
def test_batches_of_any_size():
    """Larger than the corpus is the whole corpus, to the bit."""
    sized = lambda s: dataclasses.replace(FAST, batch_size=s)
    train = lambda s: fit(jax.random.key(0), BASE, cfg=sized(s), num_epochs=3)
    (whole, _), (larger, _), (_, info) = train(6), train(64), train(4)
    for a, b in zip(whole.params, larger.params, strict=True):
        np.testing.assert_array_equal(a, b)
    assert info.loss.shape == (3, 2)  # the last batch has 2 documents
    assert np.isfinite(info.loss).all()


@pytest.mark.slow
@pytest.mark.parametrize("tau", [1e-30, 1e-6, 0.01, 1.0])
@pytest.mark.parametrize("epsilon", [1e-30, 1e-6, 1e-3, 0.2, 1e3, 1e30])
def test_tau_and_epsilon_at_their_limits(tau, epsilon):
    run(BASE, Hyper(tau=tau, epsilon=epsilon))


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1e-30, 1e-3, 1e30])
def test_transport_epsilon_at_its_limits(epsilon):
    run(BASE, Hyper(epsilon_transport=epsilon))


@pytest.mark.parametrize(
    "name, value",
    [
        ("tau", 0.0),
        ("tau", 1.0 + 1e-9),
        ("tau", 1e-45),  # 0 in 32 bit
        ("epsilon", 0.0),
        ("epsilon", -1.0),
        ("epsilon", 1e-39),
        ("epsilon", 1e39),  # infinite in 32 bit
        ("epsilon", np.inf),
        ("epsilon", np.nan),
        ("epsilon_transport", 0.0),
        ("rate_A", -0.1),
        ("rate_R", 1e39),
        ("beta", np.nan),
        ("anchor", 1.5),
    ],
)
def test_numbers_out_of_range_are_named(name, value):
    with pytest.raises(ValueError, match=f"Hyper.{name}"):
        fit(jax.random.key(0), BASE, Hyper(**{name: value}), cfg=CFG, num_epochs=1)


@pytest.mark.parametrize(
    "Y, match",
    [
        (np.zeros((0, 5)), "empty"),
        (np.zeros((3, 0)), "empty"),
        (np.eye(3)[:2, :] * [[1], [0]], "document 1 has none"),
        (BASE * -1, "not negative"),
        (BASE * np.nan, "finite"),
        (np.where(BASE > 2, np.inf, BASE), "document 3"),
        (BASE[0], "shape"),
    ],
)
def test_bad_counts_are_named(Y, match):
    with pytest.raises(ValueError, match=match):
        fit(jax.random.key(0), Y, cfg=CFG, num_epochs=1)


def test_the_data_module_refuses_them_too():
    with pytest.raises(ValueError, match="twice|distinct|both"):
        data.from_matrix(BASE, ["a", "a", "b", "c", "d"])
    with pytest.raises(ValueError, match="no document"):
        data.from_matrix(np.zeros((2, 2)), ["a", "b"])


@pytest.mark.slow
def test_documents_of_ten_thousand_different_words():
    """N = 10,000: D alone has 400 MB. One step, without the embedding update."""
    rng = np.random.default_rng(0)
    Y = rng.integers(1, 5, (2, 10_000)).astype(float)
    cfg = Config(
        num_topics=1,
        dim=2,
        num_iters=1,
        step="none",
        joint=False,
        kernel="plain",
    )
    state, info = fit(jax.random.key(0), Y, cfg=cfg, num_epochs=1)
    assert np.isfinite(info.loss).all()
    assert all(np.isfinite(x).all() for x in state.params)


@pytest.mark.slow
@hypothesis.settings(max_examples=40, deadline=None)
@hypothesis.given(
    logs=st.lists(st.floats(-12.0, 0.0), min_size=30, max_size=30),
    absent=st.sets(st.integers(0, 29), max_size=21),
    log_epsilon=st.floats(-12.0, 12.0),
    log_epsilon_T=st.floats(-12.0, 12.0),
    tau=st.floats(1e-6, 1.0),
    seed=st.integers(0, 2**31 - 1),
)
def test_any_corpus_ends_well(logs, absent, log_epsilon, log_epsilon_T, tau, seed):
    """6 documents over 5 words, as Documents of one shape."""
    mass = 10.0 ** np.array(logs)
    mass[list(absent)] = 0.0
    mass = mass.reshape(6, 5)
    mass[:, 0] += mass.sum(axis=1) == 0.0
    mass /= mass.sum(axis=1, keepdims=True)
    words = np.broadcast_to(np.arange(5, dtype=np.int32), (6, 5))
    docs = Documents(words, mass.astype(np.float32))
    hyper = Hyper(
        tau=tau, epsilon=10.0**log_epsilon, epsilon_transport=10.0**log_epsilon_T
    )
    state, info = fit(
        jax.random.key(seed), docs, hyper, cfg=CFG, num_epochs=40, num_words=5
    )
    result = infer(docs, model(state, CFG), hyper, cfg=CFG, num_steps=15)
    for leaf in jax.tree.leaves((state, info, result)):
        assert np.isfinite(np.asarray(leaf)).all()
    assert bool(state.finite)
    assert checks.faults(state.params) == 0
