"""Kernels without a matrix of N x N, against the dense one and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

from dwl_jax import blocks, cost, kernel, kernel_lowrank, kernel_neighbours
from dwl_jax.barycenter import barycenter

N, K, DIM = 40, 3, 6


def embeddings(seed=0, num_words=N, dtype=jnp.float64):
    """Words in clusters: near and far pairs, as trained embeddings have."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((5, DIM))
    X = centres[rng.integers(0, 5, num_words)] + 0.5 * rng.standard_normal(
        (num_words, DIM)
    )
    return jnp.asarray(X, dtype)


def ground(X, epsilon=0.3, tau=0.75, **choices):
    return blocks.ground(X, tau, epsilon, **({"squared": True} | choices))


def dense(X, epsilon=0.3, tau=0.75, squared=True, scale="mean"):
    D = cost.scale(cost.distance_matrix(X, squared=squared), scale)
    return kernel.build(cost.distill(D, tau), epsilon)


def lowrank(X, rank, epsilon=0.3, hubs=4, **kwargs):
    return kernel_lowrank.build(X, ground(X, epsilon), rank=rank, hubs=hubs, **kwargs)


def neighbours(X, number, epsilon=0.3):
    return kernel_neighbours.build(X, ground(X, epsilon), neighbours=number)


def topics(seed=1, dtype=jnp.float64):
    rng = np.random.default_rng(seed)
    log_B = jax.nn.log_softmax(jnp.asarray(2 * rng.standard_normal((K, N)), dtype))
    return log_B, jnp.asarray(rng.dirichlet(np.ones(K), 4), dtype)


def loss(X, log_B, lam, make):
    return jnp.sum(jnp.sin(barycenter(log_B, lam, make(X), num_iters=4).log_y))


class BlocksTest(parameterized.TestCase):
    @parameterized.product(
        squared=[True, False], scale=["mean", "median", "max", "none"]
    )
    def test_entries_are_those_of_the_dense_kernel(self, squared, scale):
        X = embeddings()
        C = jnp.exp(dense(X, squared=squared, scale=scale).log_C) - jnp.eye(N)
        rows = jnp.array([3, 0, 39])
        how = ground(X, squared=squared, scale=scale)
        got = blocks.off_diagonal(rows, X[rows], X, how)
        np.testing.assert_allclose(got, C[rows], atol=1e-12)

    def test_a_power_of_one_needs_no_power(self):
        X = embeddings()
        rows = jnp.arange(N)
        entries = lambda tau: blocks.off_diagonal(rows, X, X, ground(X, tau=tau))
        np.testing.assert_allclose(entries(1.0), entries(jnp.asarray(1.0)), rtol=1e-10)

    def test_gradient_is_finite_where_words_coincide(self):
        X = embeddings().at[1].set(embeddings()[0])
        rows = jnp.arange(N)
        f = lambda X: jnp.sum(blocks.off_diagonal(rows, X, X, ground(X)))
        self.assertTrue(bool(jnp.isfinite(jax.grad(f)(X)).all()))


class FactoredTest(parameterized.TestCase):
    @parameterized.product(epsilon=[0.3, 0.05], form=["lowrank", "neighbours"])
    def test_all_hubs_or_neighbours_are_the_dense_kernel(self, epsilon, form):
        """With all gradients."""
        X, (log_B, lam) = embeddings(), topics()
        make = {
            "lowrank": lambda X: lowrank(X, 2, epsilon, hubs=N),
            "neighbours": lambda X: neighbours(X, N - 1, epsilon),
        }[form]
        run = lambda make: jax.value_and_grad(loss, (0, 1, 2))(X, log_B, lam, make)
        close = lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-8)
        want = run(lambda X: dense(X, epsilon))
        jax.tree.map(close, run(make), want)

    @parameterized.parameters(("lowrank", 5), ("neighbours", 6))
    def test_incomplete_factors_have_the_gradient_of_what_they_compute(self, form, r):
        X, (log_B, lam) = embeddings(), topics()
        k = {"lowrank": lowrank, "neighbours": neighbours}[form](X, r)
        rng, h = np.random.default_rng(3), 1e-6
        d_B, d_lam = (jnp.asarray(rng.standard_normal(x.shape)) for x in (log_B, lam))
        f = lambda t: loss(X, log_B + t * d_B, lam + t * d_lam, lambda _: k)
        np.testing.assert_allclose(
            jax.grad(f)(0.0), (f(h) - f(-h)) / (2 * h), rtol=1e-6
        )

    def test_lowrank_gradient_of_embeddings_is_that_of_the_kernel_itself(self):
        """With all words in the sample: sum of a_i v_j over the true entries."""
        X, how = embeddings(), ground(embeddings())
        rng = np.random.default_rng(5)
        a, v = (jnp.asarray(rng.random((2, N))) for _ in range(2))
        k = lowrank(X, 5)
        u = k.forward(v)[0]
        bar = k.outer(a * u, u, v, ())
        got = jax.vjp(lambda X: lowrank(X, 5).entries, X)[1](bar)[0]
        entries = lambda X: blocks.off_diagonal(jnp.arange(N), X, X, how)
        want = jax.grad(lambda X: jnp.sum((a @ entries(X)) * v))(X)
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)

    def test_hubs_give_and_take_by_their_own_entries(self):
        X, v = embeddings(), np.random.default_rng(6).random(N)
        share = np.random.default_rng(7).dirichlet(np.ones(N))
        C = np.exp(np.asarray(dense(X).log_C))
        k = lowrank(X, 2, share=jnp.asarray(share))
        hubs = np.argsort(-share)[:4]
        np.testing.assert_array_equal(k.hubs, hubs)
        got = k.forward(jnp.asarray(v))[0]
        np.testing.assert_allclose(got[hubs], (C @ v)[hubs], rtol=1e-10)
        on_hubs = np.where(np.isin(np.arange(N), hubs), v, 0.0)
        got = k.forward(jnp.asarray(on_hubs))[0]
        np.testing.assert_allclose(got, C @ on_hubs, rtol=1e-10)

    def test_rows_of_the_factors_have_the_sums_of_the_kernel(self):
        X = embeddings(num_words=300)
        W = kernel_lowrank.find(X, ground(X), 8).W
        want = jnp.sum(jnp.exp(dense(X).log_C), axis=1) - 1.0
        np.testing.assert_allclose(kernel_lowrank.row_sums(W)[:, 0], want, rtol=0.02)

    def test_a_sample_counts_each_word_once_in_the_mean(self):
        share = jnp.asarray(np.random.default_rng(7).dirichlet(np.full(600, 0.05)))
        other = jnp.ones(600).at[jnp.arange(0, 600, 5)].set(0.0)
        draw = jax.vmap(lambda i: kernel_lowrank.draw(i, share, other))
        sample, counted = draw(jnp.arange(8_000))
        mean = jnp.zeros(600).at[sample.ravel()].add(counted.ravel()) / 8_000
        np.testing.assert_allclose(mean, other, atol=0.25)
        large = jnp.argsort(-share * other)[:10]
        np.testing.assert_allclose(mean[large], 1.0, atol=0.02)
        self.assertLessEqual(float(counted.max()), 2 * 600 / sample.shape[1])

    def test_steps_of_the_factorisation_come_nearer_to_the_kernel(self):
        X = embeddings(num_words=300)
        off = np.asarray(jnp.exp(dense(X).log_C)) - np.eye(300)
        how, errors = ground(X), []
        W = jnp.asarray(np.random.default_rng(8).random((300, 8))) + 0.1
        for _ in range(40):
            near = np.asarray(W @ W.T)
            errors.append(((near - off)[~np.eye(300, dtype=bool)] ** 2).sum())
            W = kernel_lowrank.improve(X, how, W)
        self.assertTrue(bool((W > 0).all()))
        self.assertTrue((np.diff(errors[1:]) < 0).all())
        value = np.linalg.eigvalsh(off)
        least = (value**2).sum() - (np.sort(value**2)[-8:]).sum()
        self.assertLess(errors[-1], 2.0 * least)

    def test_a_basis_follows_embeddings_that_move(self):
        X = embeddings(num_words=300, dtype=jnp.float32)
        k, rng = lowrank(X, 16), np.random.default_rng(9)
        build = jax.jit(lambda X, basis: lowrank(X, 16, basis=basis))
        start = float(k.error)
        for _ in range(60):
            X = X + 0.03 * jnp.asarray(rng.standard_normal(X.shape), X.dtype)
            k = build(X, k.next_basis)
        self.assertEqual(int(k.basis.age), 60)
        self.assertLess(float(k.error), 1.2 * max(float(lowrank(X, 16).error), start))

    def test_lowrank_error_falls_with_rank_and_says_so(self):
        X = embeddings(num_words=400)
        C = jnp.exp(dense(X).log_C)
        y, told = blocks.probes(400, X.dtype)[1], []
        for rank in (1, 6, 40):
            k = jax.jit(lambda X, rank=rank: lowrank(X, rank))(X)
            near = kernel.apply_log(k, jnp.log(y.T))
            want = jnp.abs(jnp.exp(near).T - C @ y).sum() / (C @ y).sum()
            np.testing.assert_allclose(k.error, want, rtol=1e-9)
            told.append(float(k.error))
        self.assertEqual(told, sorted(told, reverse=True))
        self.assertLess(told[2], 0.3 * told[0])

    def test_lowrank_gradient_of_embeddings_is_near_the_dense_one(self):
        rng, M = np.random.default_rng(4), 600
        X = jnp.asarray(rng.standard_normal((M, 10)))
        log_B = jax.nn.log_softmax(jnp.asarray(2 * rng.standard_normal((K, M))))
        y = jnp.asarray(rng.dirichlet(np.full(M, 0.02), 32))
        lam = jnp.asarray(rng.dirichlet(np.ones(K), 32))

        def f(X, make):
            log_y = barycenter(log_B, lam, make(X), num_iters=2).log_y
            return -jnp.sum(y * jax.nn.log_softmax(log_y))

        grad = lambda make: jax.jit(jax.grad(lambda X: f(X, make)))(X)
        share = jnp.mean(jnp.exp(log_B), axis=0)
        want, got = grad(dense), grad(lambda X: lowrank(X, 16, hubs=64, share=share))
        cosine = jnp.sum(got * want) / jnp.linalg.norm(got) / jnp.linalg.norm(want)
        self.assertGreater(cosine, 0.97)

    @parameterized.product(
        form=["lowrank", "neighbours"], dtype=[jnp.float32, jnp.float64]
    )
    def test_no_logarithm_of_a_negative_number(self, form, dtype):
        """Rank 2 at a small epsilon; documents of one word."""
        X = embeddings(dtype=dtype)
        make = {"lowrank": lowrank, "neighbours": neighbours}[form]
        k = make(X, 2, 0.05)
        log_v = jnp.where(jnp.eye(N, dtype=bool), 0.0, -jnp.inf).astype(dtype)
        got = kernel.apply_log(k, log_v)
        self.assertTrue(bool(jnp.isfinite(got).all()))
        log_B, lam = topics(dtype=dtype)
        value, grad = jax.value_and_grad(loss)(
            X, log_B, lam, lambda X: make(X, 2, 0.05)
        )
        self.assertTrue(bool(jnp.isfinite(value)) and bool(jnp.isfinite(grad).all()))

    def test_neighbours_hold_at_the_papers_epsilon_in_float32(self):
        X, (log_B, lam) = embeddings(), topics()
        want = barycenter(log_B, lam, dense(X, 0.01), num_iters=10).log_y
        X, log_B, lam = (x.astype(jnp.float32) for x in (X, log_B, lam))
        got = barycenter(log_B, lam, neighbours(X, 25, 0.01), num_iters=10).log_y
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)

    def test_neighbour_rows_have_the_sums_of_the_kernel(self):
        X = embeddings()
        k = neighbours(X, 4)
        got = jnp.exp(k.forward(jnp.zeros((N,)))[0])
        want = jnp.exp(dense(X).log_C).sum(axis=1)
        np.testing.assert_allclose(got, want, rtol=0.25)


if __name__ == "__main__":
    absltest.main()
