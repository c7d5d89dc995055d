"""Rows of C for each topic's words alone, against the dense kernel and a numpy loop."""

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized
from blocks_test import K, N, dense, embeddings, ground, topics

from dwl_jax import kernel_topics
from dwl_jax.barycenter import barycenter


def build(X, log_B, number, epsilon=0.3, **kwargs):
    how = ground(X, epsilon)
    return kernel_topics.build(X, how, log_B, number=number, **kwargs)


def outcome(log_B, lam, k, num_iters, log_scal=None):
    """A number that depends on all that a barycenter gives, and all of it."""
    out = barycenter(log_B, lam, k, num_iters=num_iters, log_scal=log_scal)
    return jnp.sum(jnp.sin(out.log_y)) + jnp.sum(jnp.cos(out.log_scal)), out


def by_hand(B, lam, C, own, num_iters):
    """The equations of `topicwise.py` for one document, in numpy: log_y."""
    own_mass, rest = np.where(own, B, 0.0), np.where(own, 0.0, B)
    row = C.sum(axis=1) - 1.0
    tail = (rest / (1.0 + row)) @ (C - np.eye(N))
    scal = np.ones_like(B)
    for _ in range(num_iters):
        phi = (own_mass / (scal @ C)) @ C + rest / (scal + row) + tail
        y = np.exp(lam @ np.log(phi))
        scal = y / phi
    return np.log(y)


class TopicKernelTest(parameterized.TestCase):
    @parameterized.parameters((1, False), (2, False), (3, False), (2, True))
    def test_with_all_words_it_is_the_dense_kernel(self, num_iters, warm):
        """With all gradients."""
        X, (log_B, lam) = embeddings(), topics()
        shape, rng = (lam.shape[0], K, N), np.random.default_rng(2)
        h = jnp.asarray(0.3 * rng.standard_normal(shape)) if warm else None

        @jax.jit
        def run(X, log_B, lam):
            def grads(make):
                f = lambda X, b, lam: outcome(b, lam, make(X), num_iters, h)
                return jax.value_and_grad(f, (0, 1, 2), has_aux=True)(X, log_B, lam)

            return grads(lambda X: build(X, log_B, N)), grads(dense)

        got, want = run(X, log_B, lam)
        close = lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-10)
        jax.tree.map(close, got, want)

    @parameterized.product(num_iters=[1, 3], dtype=[jnp.float32, jnp.float64])
    def test_few_words_are_the_equations(self, num_iters, dtype):
        X, (log_B, lam) = embeddings(), topics()
        C, B = np.exp(np.asarray(dense(X).log_C)), np.exp(np.asarray(log_B))
        own = np.argsort(np.argsort(-B, axis=1), axis=1) < 6
        want = [by_hand(B, row, C, own, num_iters) for row in np.asarray(lam)]

        @jax.jit
        def run(X, log_B, lam):
            k = build(X, log_B, 6)
            return barycenter(log_B, lam, k, num_iters=num_iters).log_y

        got = run(*(x.astype(dtype) for x in (X, log_B, lam)))
        rtol = 1e-10 if dtype == jnp.float64 else 1e-4
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)

    @parameterized.parameters(2, 4)
    def test_few_words_have_the_gradient_of_what_they_compute(self, num_iters):
        """Topics, weights and embeddings, at given words, sums and tails."""
        X, (log_B, lam) = embeddings(), topics()
        how, basis = ground(X), jax.jit(build, static_argnums=2)(X, log_B, 5).next_basis
        rng, h = np.random.default_rng(3), 1e-6
        moves = [jnp.asarray(rng.standard_normal(x.shape)) for x in (X, log_B, lam)]

        def f(t):
            Z, b, w = (x + t * d for x, d in zip((X, log_B, lam), moves, strict=True))
            k = kernel_topics.build(Z, how, b, number=5, basis=basis)
            return outcome(b, w, k, num_iters)[0]

        f = jax.jit(jax.value_and_grad(f))
        want = (f(h)[0] - f(-h)[0]) / (2 * h)
        np.testing.assert_allclose(f(0.0)[1], want, rtol=1e-6)

    def test_few_words_are_near_the_dense_kernel_where_topics_have_their_mass(self):
        rng, M = np.random.default_rng(4), 600
        X = jnp.asarray(rng.standard_normal((M, 10)))
        log_B = jax.nn.log_softmax(jnp.asarray(3 * rng.standard_normal((K, M))))
        y = jnp.asarray(rng.dirichlet(np.full(M, 0.02), 32))
        lam = jnp.asarray(rng.dirichlet(np.ones(K), 32))

        def f(X, log_B, lam, make):
            log_y = barycenter(log_B, lam, make(X), num_iters=2).log_y
            return -jnp.sum(y * jax.nn.log_softmax(log_y))

        run = jax.jit(
            lambda make: jax.value_and_grad(f, (0, 1, 2))(X, log_B, lam, make),
            static_argnums=0,
        )
        want, want_grads = run(dense)
        got, grads = run(lambda X: build(X, log_B, 64))
        np.testing.assert_allclose(got, want, rtol=0.01)
        for a, b in zip(grads, want_grads, strict=True):
            cosine = jnp.sum(a * b) / jnp.linalg.norm(a) / jnp.linalg.norm(b)
            self.assertGreater(cosine, 0.98)

    def test_error_is_that_of_both_products_and_falls_with_words(self):
        X, (log_B, _) = embeddings(), topics()
        C, B, told = np.exp(np.asarray(dense(X).log_C)), np.exp(np.asarray(log_B)), []
        row = C.sum(axis=1) - 1.0
        for number in (2, 12, N):
            own = np.argsort(np.argsort(-B, axis=1), axis=1) < number
            rest = np.where(own, 0.0, B)
            tail = (rest / (1.0 + row)) @ (C - np.eye(N))
            near = lambda scal, rest=rest, own=own: np.where(
                own, B / (scal @ C), rest / (scal + row)
            )
            q = near(np.ones_like(B))
            phi = (q * own) @ C + q * ~own + tail
            scal = np.exp(np.log(phi).mean(axis=0)) / phi
            q, exact = near(scal), B / (scal @ C)
            phi = (q * own) @ C + q * ~own + tail
            want = np.abs(q - exact).sum() / q.sum()
            want += np.abs(phi - q @ C).sum() / phi.sum()
            k = jax.jit(build, static_argnums=2)(X, log_B, number)
            np.testing.assert_allclose(k.error, want, rtol=1e-8, atol=1e-12)
            told.append(float(k.error))
        self.assertEqual(told, sorted(told, reverse=True))

    def test_a_basis_follows_topics_and_embeddings_every_eighth_step(self):
        X, (log_B, _) = embeddings(), topics()
        k = jax.jit(build, static_argnums=2)(X, log_B, 5)
        moved, other = X + 0.2, jnp.flip(log_B, axis=1)
        moved = moved.at[:, 0].multiply(1.5)
        step = jax.jit(lambda basis: build(moved, other, 5, basis=basis))
        for age in range(1, 9):
            k = step(k.next_basis)
            self.assertEqual(int(k.basis.age), age)
            topic_words = np.argsort(-np.asarray(other if age == 8 else log_B))[:, :5]
            np.testing.assert_array_equal(k.words, topic_words)
        want = jnp.exp(dense(moved).log_C).sum(axis=1) - 1.0
        np.testing.assert_allclose(k.basis.row, want, rtol=1e-9)
        rows = jnp.exp(dense(moved).log_C)[k.words]
        np.testing.assert_allclose(k.rows, rows, rtol=1e-9)

    @parameterized.product(dtype=[jnp.float32, jnp.float64], epsilon=[0.05, 0.002])
    def test_everything_is_finite(self, dtype, epsilon):
        """At an epsilon too small for it, which it says, and with words of no mass."""
        X, (log_B, lam) = embeddings(dtype=dtype), topics(dtype=dtype)
        log_B = log_B.at[:, :7].set(-jnp.inf).at[0, :30].set(-jnp.inf)
        lam = lam.at[0].set(jnp.eye(K, dtype=dtype)[1])

        def f(X, b, lam):
            k = build(X, b, 3, epsilon)
            value, out = outcome(b, lam, k, 3)
            return value, (out, k.fits)

        grads = jax.jit(jax.grad(f, (0, 1, 2), has_aux=True))
        grads, (out, fits) = grads(X, log_B, lam)
        for x in jax.tree.leaves((grads, out)):
            self.assertTrue(np.isfinite(x).all())
        self.assertEqual(bool(fits), epsilon == 0.05)
        np.testing.assert_array_equal(grads[1][:, :7], 0.0)

    def test_stand_ins_have_the_mass_of_all_words_in_the_mean(self):
        X, (log_B, _) = embeddings(), topics()
        basis, B = jax.jit(build, static_argnums=2)(X, log_B, 5).basis, jnp.exp(log_B)

        @jax.jit
        @jax.vmap
        def drawn(age):
            words, mass = kernel_topics.stand_ins(basis._replace(age=age), B)
            return jnp.zeros_like(B).at[jnp.arange(K)[:, None], words].add(mass)

        found = drawn(jnp.arange(2_000))
        np.testing.assert_allclose(found.sum(axis=2), 1.0, rtol=1e-9)
        np.testing.assert_allclose(found.mean(axis=0), B, atol=2.5e-4)
        own = jnp.take_along_axis(found[7], basis.words, axis=1)
        np.testing.assert_allclose(own, jnp.sort(B)[:, :-6:-1], rtol=1e-9)


if __name__ == "__main__":
    absltest.main()
