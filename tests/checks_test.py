"""The boundary: one test per thing that can be wrong with what a caller gives."""

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest

import dwl_jax
from dwl_jax import checks, embedding, train
from dwl_jax.documents import Documents, from_counts
from dwl_jax.types import Config, Hyper

KEY = jax.random.key(0)
COUNTS, GROUP = problems.counts(num_docs=9, num_words=5)
CFG = Config(num_topics=3, dim=2, batch_size=4, num_iters=2, transport_iters=2)
DOCS = from_counts(COUNTS)


def fit(docs=COUNTS, hyper=None, *, cfg=CFG, **kwargs):
    hyper = Hyper() if hyper is None else hyper
    return train.fit(KEY, docs, hyper, cfg=cfg, num_epochs=1, **kwargs)


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_bad_counts_name_the_document(bad):
    counts = COUNTS.astype(float)
    counts[3, 2] = bad
    with pytest.raises(ValueError, match="document 3, word 2"):
        fit(counts)


def test_a_document_without_words_is_named():
    counts = COUNTS.copy()
    counts[4] = 0
    with pytest.raises(ValueError, match="document 4 has none"):
        fit(counts)


@pytest.mark.parametrize("bad", [-0.5, np.nan, np.inf, 0.5])
def test_masses_that_are_no_distribution_name_the_document(bad):
    mass = DOCS.mass.copy()
    mass[5] = 0.0
    mass[5, 0] = bad
    if bad == -0.5:
        mass[5, 1] = 1.5  # sums to 1 all the same
    with pytest.raises(ValueError, match="document 5 is not a distribution"):
        fit(DOCS._replace(mass=mass), num_words=5)


@pytest.mark.parametrize("bad", [-1, 5])
def test_words_that_do_not_exist_name_the_document(bad):
    words = DOCS.words.copy()
    words[6, 0] = bad
    with pytest.raises(ValueError, match=f"document 6 has word {bad}, but there are 5"):
        fit(DOCS._replace(words=words), num_words=5)


def test_supports_of_unequal_shape_are_named():
    bad = Documents(DOCS.words[:, :1], DOCS.mass)
    with pytest.raises(ValueError, match=r"docs.words \(9, 1\) and docs.mass \(9, "):
        fit(bad, num_words=5)


def test_supports_alone_do_not_tell_the_number_of_words():
    with pytest.raises(ValueError, match="num_words is needed"):
        fit(DOCS)
    assert checks.documents(DOCS, None, np.ones((5, 2)))[1] == 5
    assert checks.documents(DOCS, None, None, np.ones((7, 2)))[1] == 7
    assert checks.documents(COUNTS, None)[1] == 5


def test_a_number_of_words_that_is_not_that_of_the_counts_is_named():
    with pytest.raises(ValueError, match="num_words is 12, but counts have 5 words"):
        fit(num_words=12)
    assert checks.documents(COUNTS, 5)[1] == 5


@pytest.mark.parametrize("shape", [(0, 2), (2, 0)])
def test_no_documents_and_no_words_are_named(shape):
    empty = Documents(np.zeros(shape, np.int32), np.zeros(shape, np.float32))
    with pytest.raises(ValueError, match="must be documents with words, got"):
        fit(empty, num_words=5)


def test_vectors_of_another_size_are_named():
    with pytest.raises(ValueError, match=r"vectors must be \[5, dim\], got \(4, 2\)"):
        fit(vectors=np.ones((4, 2)))
    with pytest.raises(ValueError, match="vectors have 3 dimensions, Config.dim is 2"):
        fit(vectors=np.ones((5, 3)))
    beside = Config(num_topics=3, dim=2, embedding=embedding.beside(1, 1.0))
    with pytest.raises(ValueError, match="2 dimensions, Config.embedding takes 1"):
        fit(cfg=beside, vectors=np.ones((5, 2)))
    with pytest.raises(ValueError, match=r"vectors must be \[5, dim\], got \(5,\)"):
        fit(vectors=np.ones(5))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_vectors_and_features_that_are_not_finite_name_the_word(bad):
    X = np.ones((5, 2))
    X[3, 1] = bad
    with pytest.raises(ValueError, match="vectors of word 3 are not finite"):
        fit(vectors=X)
    cfg = Config(num_topics=3, dim=2, embedding=embedding.linear)
    with pytest.raises(ValueError, match="features of word 3 are not finite"):
        fit(cfg=cfg, features=X)


def test_features_are_for_maps_that_use_them():
    linear = Config(num_topics=3, dim=2, embedding=embedding.linear)
    with pytest.raises(ValueError, match="features are needed by the linear and mlp"):
        fit(cfg=linear)
    with pytest.raises(ValueError, match="features are needed by .* by them alone"):
        fit(features=np.ones((5, 2)))
    with pytest.raises(ValueError, match=r"features must be \[5, F\], got \(4, 2\)"):
        fit(cfg=linear, features=np.ones((4, 2)))


@pytest.mark.parametrize("name", Hyper._fields)
@pytest.mark.parametrize("bad", [-0.1, np.nan, np.inf])
def test_numbers_out_of_range_are_named(name, bad):
    with pytest.raises(ValueError, match=rf"Hyper.{name} must be in [\(\[]0, .*got"):
        fit(hyper=Hyper()._replace(**{name: bad}))


@pytest.mark.parametrize("name", ["tau", "epsilon", "epsilon_transport"])
def test_zero_is_out_of_range_for_what_divides_or_exponentiates(name):
    with pytest.raises(ValueError, match=rf"Hyper.{name} must be in \(0, "):
        fit(hyper=Hyper()._replace(**{name: 0.0}))


@pytest.mark.parametrize("name", ["tau", "anchor"])
def test_more_than_one_is_out_of_range_for_powers_and_shares(name):
    with pytest.raises(ValueError, match=rf"Hyper.{name} must be in .0, 1\], got 1.5"):
        fit(hyper=Hyper()._replace(**{name: 1.5}))


def test_proximal_steps_need_a_positive_beta():
    cfg = Config(num_topics=3, dim=2, step="proximal")
    with pytest.raises(ValueError, match=r"Hyper.beta must be in \(0, inf\)"):
        fit(hyper=Hyper(beta=0.0), cfg=cfg)
    checks.hyper(Hyper(beta=0.0), CFG)  # inert in an explicit step, so allowed


@pytest.mark.parametrize("name", Hyper._fields)
def test_an_array_of_numbers_is_named_and_vmap_recommended(name):
    several = Hyper()._replace(**{name: np.linspace(0.1, 1.0, 5)})
    with pytest.raises(ValueError, match=rf"Hyper.{name} .*\(5,\); sweep .*jax.vmap"):
        fit(hyper=several)


def test_traced_numbers_pass_and_values_at_the_edge_are_allowed():
    checks.hyper(Hyper(tau=1.0, rate_A=0.0, anchor=1.0, beta=0.0), CFG)
    jax.jit(lambda tau: (checks.hyper(Hyper(tau=tau), CFG), tau)[1])(-1.0)


@pytest.mark.parametrize("num_epochs", [0, -3])
def test_no_epochs_is_named(num_epochs):
    with pytest.raises(ValueError, match="num_epochs must be at least 1, got"):
        train.fit(KEY, COUNTS, cfg=CFG, num_epochs=num_epochs)


def test_labels_that_no_topic_has_name_the_document():
    labels = GROUP.copy()
    labels[7] = 3
    with pytest.raises(ValueError, match="label 3 of document 7 has no topic: .* is 3"):
        fit(labels=labels)
    labels[7] = -2
    with pytest.raises(ValueError, match="label -2 of document 7: -1 is for unknown"):
        fit(labels=labels)


def test_labels_of_another_shape_or_kind_are_named():
    with pytest.raises(ValueError, match=r"labels must be 9 ints, got int64 \(8,\)"):
        fit(labels=GROUP[:8])
    with pytest.raises(ValueError, match="labels must be 9 ints, got float64"):
        fit(labels=GROUP.astype(float))
    with pytest.raises(ValueError, match="labels are all unknown"):
        fit(labels=np.full(9, -1))


def test_labels_are_counted_by_the_largest():
    labels, num = checks.labels([0, -1, 2], 3, Config(num_topics=4))
    assert num == 3 and labels.dtype == jnp.int32
    assert checks.labels(None, 3, CFG) == (None, 0)


def test_inference_checks_its_documents_against_the_model():
    model = dwl_jax.Model(jnp.log(jnp.full((3, 5), 0.2)), jnp.eye(5, 2))
    run = lambda docs, **kwargs: dwl_jax.infer(docs, model, Hyper(), cfg=CFG, **kwargs)
    with pytest.raises(ValueError, match="documents have 4 words, the model 5"):
        run(COUNTS[:, :4] + 1)
    with pytest.raises(ValueError, match="document 0 has word 9, but there are 5"):
        run(Documents(np.array([[9]]), np.array([[1.0]])))
    with pytest.raises(ValueError, match="num_steps must be at least 1, got 0"):
        run(COUNTS, num_steps=0)
    with pytest.raises(ValueError, match=r"observed must be \[5\], got \(4,\)"):
        run(COUNTS, observed=np.ones(4, bool))
    with pytest.raises(ValueError, match="document 0 has words that are not observed"):
        run(COUNTS, observed=np.zeros(5, bool))
    with pytest.raises(ValueError, match="document 1 has words that are not observed"):
        run(np.eye(5)[[0, 1]], observed=np.arange(5) != 1)
    with pytest.raises(ValueError, match="Hyper.epsilon must be in"):
        dwl_jax.infer(COUNTS, model, Hyper(epsilon=0.0), cfg=CFG)


def test_faults_are_bits_in_the_order_of_their_trees():
    bad, good = {"x": jnp.array([1.0, jnp.nan])}, [jnp.ones(2), jnp.zeros(())]
    assert checks.faults(good, good) == 0
    assert checks.faults(bad, good, (good, jnp.inf)) == 0b101
    assert jax.jit(checks.faults)(good, bad) == 0b10


def test_a_run_that_stops_being_finite_says_where_and_keeps_the_last_good_state():
    cfg = Config(
        num_topics=3, dim=2, batch_size=4, num_iters=2, transport_iters=2,
        kernel="plain", joint=False, step="none",
        loss=lambda y, log_y: jnp.sum(y / (log_y + 1e9), axis=-1) * jnp.nan,
    )  # fmt: skip
    with pytest.raises(
        checks.NonFiniteError, match="the loss .* epoch 0, batch 0"
    ) as e:
        fit(cfg=cfg)
    want = train.init(jax.random.split(KEY)[0], 9, 5, cfg=cfg, dtype=jnp.float32)
    for got, start in zip(e.value.state.params, want.params, strict=True):
        np.testing.assert_array_equal(got, start)
    assert not e.value.state.finite and e.value.info.fault.shape == (1, 3)
