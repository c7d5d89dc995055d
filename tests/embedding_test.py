"""Embedding maps, the Laplacian energy and every way of descending it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

from dwl_jax import embedding

RNG = np.random.default_rng(0)
FEATURES = jnp.asarray(RNG.normal(size=(6, 4)))
T = jnp.asarray(RNG.uniform(size=(6, 6)))
L = embedding.laplacian(T)
KEY = jax.random.key(3)
MAPS = {
    "one_hot": embedding.one_hot,
    "linear": embedding.linear,
    "mlp": embedding.mlp(5),
}
VECTORS = RNG.normal(size=(6, 2))


def start(name, vectors=None):
    """A map, its features and a theta in float64."""
    g = MAPS[name]
    features = None if name == "one_hot" else FEATURES
    theta = g.init(KEY, 6, 3, features, vectors, dtype=jnp.float64)
    return g, lambda theta: g.apply(theta, features), theta


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.integers(0, 10_000))
def test_trap_trace_is_half_the_double_sum_of_squared_distances(seed):
    rng = np.random.default_rng(seed)
    T, X = rng.uniform(size=(5, 5)), rng.normal(size=(5, 2))
    double_sum = sum(
        T[n, m] * np.sum((X[n] - X[m]) ** 2) for n in range(5) for m in range(5)
    )
    got = embedding.spread_energy(jnp.asarray(X), embedding.laplacian(jnp.asarray(T)))
    np.testing.assert_allclose(got, 0.5 * double_sum, rtol=1e-12)
    unsquared = sum(
        T[n, m] * np.linalg.norm(X[n] - X[m]) for n in range(5) for m in range(5)
    )
    assert abs(got - 0.5 * unsquared) > 1e-6  # not the D_theta of the definition


def test_laplacian_has_zero_rows_and_is_that_of_the_symmetrised_aggregate():
    np.testing.assert_allclose(L, reference.laplacian(np.asarray(T)), rtol=1e-14)
    np.testing.assert_allclose(np.sum(L, axis=1), 0.0, atol=1e-14)
    np.testing.assert_array_equal(L, L.T)
    assert np.linalg.eigvalsh(L).min() > -1e-12


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("beta", [0.0, 0.7])
def test_energy_gradient_is_the_finite_difference(name, beta):
    _, embed, theta_c = start(name)
    flat, back = jax.flatten_util.ravel_pytree(theta_c)
    rng = np.random.default_rng(1)
    here, direction = (jnp.asarray(rng.normal(size=flat.shape)) for _ in range(2))
    if name == "mlp":  # `base` is what the map was given: it is not learned
        fixed = jax.tree.map(jnp.ones_like, theta_c) | {
            "base": jnp.zeros_like(theta_c["base"])
        }
        direction = direction * jax.flatten_util.ravel_pytree(fixed)[0]
    fn = jax.jit(lambda x: embedding.energy(back(x), theta_c, L, beta, embed=embed))
    X = embed(back(here))
    drift = beta * np.sum((np.asarray(here) - np.asarray(flat)) ** 2)
    np.testing.assert_allclose(fn(here), np.trace(X.T @ L @ X) + drift, rtol=1e-12)
    want = reference.finite_difference(fn, here, direction)
    np.testing.assert_allclose(jnp.vdot(jax.grad(fn)(here), direction), want, rtol=1e-6)


def test_explicit_step_in_closed_form():
    _, embed, X = start("one_hot")
    got = embedding.explicit_step(X, L, 0.3, 0.05, embed=embed)
    np.testing.assert_allclose(got, X - 0.05 * 2 * L @ X, rtol=1e-12)
    _, embed, theta = start("linear")
    got = embedding.explicit_step(theta, L, 0.3, 0.05, embed=embed)
    want = theta - 0.05 * 2 * FEATURES.T @ L @ FEATURES @ theta
    np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize("name", MAPS)
def test_trap_beta_does_nothing_in_one_explicit_step(name):
    _, embed, theta = start(name)
    step = jax.jit(
        lambda beta: embedding.explicit_step(theta, L, beta, 0.1, embed=embed)
    )
    jax.tree.map(np.testing.assert_array_equal, step(0.0), step(1e6))
    moved = jax.tree.map(lambda a, b: jnp.abs(a - b).max(), step(0.0), theta)
    assert max(jax.tree.leaves(moved)) > 1e-2


@pytest.mark.parametrize("name", ["one_hot", "linear"])
@pytest.mark.parametrize("beta", [0.01, 1.0])
def test_proximal_step_is_the_minimiser(name, beta):
    _, embed, theta = start(name)
    W = np.eye(6) if name == "one_hot" else np.asarray(FEATURES)
    got = embedding.proximal_step(
        theta, L, beta, features=None if name == "one_hot" else FEATURES
    )
    G = W.T @ np.asarray(L) @ W + beta * np.eye(W.shape[1])
    np.testing.assert_allclose(got, np.linalg.solve(G, beta * theta), rtol=1e-9)
    grad = jax.grad(embedding.energy)(got, theta, L, beta, embed=embed)
    np.testing.assert_allclose(grad, 0.0, atol=1e-10)


def test_beta_acts_in_the_proximal_step():
    X = start("one_hot")[2]
    near = embedding.proximal_step(X, L, 1e9, features=None)
    np.testing.assert_allclose(near, X, rtol=1e-6)
    far = embedding.proximal_step(X, L, 1e-9, features=None)
    np.testing.assert_allclose(
        far, np.mean(X, axis=0, keepdims=True) + 0 * X, rtol=1e-6
    )


def test_collapse_repeated_laplacian_steps_bring_all_words_together_unless_anchored():
    _, embed, X0 = start("one_hot")
    free = anchored = X0
    step = jax.jit(lambda X: embedding.explicit_step(X, L, 0.01, 0.1, embed=embed))
    for _ in range(60):
        free = step(free)
        anchored = (lambda X: X + 0.3 * (X0 - X))(step(anchored))
    variance = lambda X: float(jnp.sum((X - X.mean(axis=0, keepdims=True)) ** 2))
    assert variance(free) < 1e-6 * variance(X0)
    assert variance(anchored) > 0.05 * variance(X0)


@pytest.mark.parametrize("name", MAPS)
def test_maps_start_from_given_vectors(name):
    vectors = np.random.default_rng(4).normal(size=(6, 3))
    if name == "linear":  # what a linear map of these features can reach
        vectors = np.asarray(FEATURES) @ np.random.default_rng(5).normal(size=(4, 3))
    _, embed, theta = start(name, vectors)
    np.testing.assert_allclose(embed(theta), vectors, rtol=1e-9, atol=1e-12)


def test_linear_map_starts_as_near_to_the_vectors_as_it_can():
    vectors = np.random.default_rng(4).normal(size=(6, 3))
    theta = embedding.linear.init(KEY, 6, 3, FEATURES, vectors)
    want = np.linalg.lstsq(np.asarray(FEATURES), vectors, rcond=None)[0]
    np.testing.assert_allclose(theta, want, rtol=1e-9)


@pytest.mark.parametrize("name", MAPS)
def test_maps_start_at_random_with_the_scale_of_a_normal(name):
    g = MAPS[name] if name != "mlp" else embedding.mlp(64)
    features = None if name == "one_hot" else jnp.eye(200)
    theta = g.init(KEY, 200, 50, features)
    X = np.asarray(g.apply(theta, features))
    assert X.shape == (200, 50)
    if name == "mlp":  # not a normal: tanh of something small, mixed
        assert 0.05 < X.std() < 1.5 and np.linalg.matrix_rank(X) == 50
    else:
        np.testing.assert_allclose([X.mean(), X.std()], [0.0, 1.0], atol=0.03)
    again = g.apply(g.init(KEY, 200, 50, features), features)
    np.testing.assert_array_equal(X, again)
    other = g.apply(g.init(jax.random.key(4), 200, 50, features), features)
    assert np.abs(X - other).max() > 0.1


def test_mlp_is_what_it_says_and_is_made_once():
    _, embed, theta = start("mlp")
    inner = np.tanh(FEATURES @ theta["first"] + theta["bias"][None])
    want = theta["base"] + inner @ theta["second"]
    np.testing.assert_allclose(embed(theta), want, rtol=1e-12)
    assert embedding.mlp(5) is MAPS["mlp"]  # else each Config would compile anew


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_beside_keeps_the_given_vectors_and_draws_the_rest(dtype):
    g = embedding.beside(2, 0.25)
    theta = g.init(KEY, 6, 5, None, VECTORS, dtype=dtype)
    drawn = embedding.one_hot.init(KEY, 6, 5, dtype=dtype)
    want = np.hstack([0.25 * VECTORS, drawn[:, 2:]])
    X = g.apply(theta, None)
    assert X.dtype == dtype
    np.testing.assert_allclose(X, want, rtol=1e-6)
    np.testing.assert_array_equal(g.init(KEY, 6, 5, dtype=dtype), drawn)
    assert embedding.beside(2, 0.25) is g  # else each Config would compile anew


def test_beside_moves_what_is_learned_and_nothing_that_was_given():
    g = embedding.beside(2, 0.25)
    embed = lambda theta: g.apply(theta, None)
    theta = g.init(KEY, 6, 5, None, VECTORS, dtype=jnp.float64)
    new = embedding.explicit_step(theta, L, 0.3, 0.05, embed=embed)
    np.testing.assert_array_equal(new[:, :2], theta[:, :2])
    # The gradient of Tr(X' L X) is 2 L X, in each coordinate alone.
    want = theta[:, 2:] - 0.05 * 2.0 * L @ theta[:, 2:]
    np.testing.assert_allclose(new[:, 2:], want, rtol=1e-12)


def test_squared_distances_of_beside_are_the_sum_of_both_parts():
    g = embedding.beside(2, 0.5)
    theta = g.init(KEY, 6, 5, None, VECTORS, dtype=jnp.float64)
    square = lambda X: reference.distance_matrix(np.asarray(X)) ** 2
    want = 0.25 * square(VECTORS) + square(theta[:, 2:])
    np.testing.assert_allclose(square(g.apply(theta, None)), want, rtol=1e-12)


@pytest.mark.parametrize("g", [*MAPS.values(), embedding.beside(2, 0.25)])
def test_shown_undoes_ground(g):
    X = jnp.asarray(RNG.normal(size=(6, 5)))
    np.testing.assert_allclose(embedding.shown(embedding.ground(X, g), g), X)
    stored = embedding.ground(np.asarray(X), g)  # as a saved model holds them
    np.testing.assert_allclose(stored, embedding.ground(X, g), rtol=1e-15)
    moved = np.asarray(embedding.ground(X, g) / X)
    assert (moved[:, 2:] == 1.0).all()
    np.testing.assert_allclose(moved[:, :2], 1.0 if g.given is None else 0.25)
