"""C as each topic meets it: the rows of the topic's own words, and little else.

A topic has most of its mass on few words, those that are its own. What it sends through
C and what it asks of C is exact for these: their rows of C are kept, each step anew.
Of the topic's other words, which have little mass, a product keeps the unit diagonal;
what they take from others is as if all scalings were 1 (`row`), and what they give to
others is what they give at the first iteration (`tail`). Both are sums over all words,
found by blocks of rows every few steps, so that nothing of size N^2 is kept.

This form multiplies no vector but that of a topic: it is for barycenters, see
`topicwise.py`. Gradients in X are those of C itself at the entries that are kept.
"""

import dataclasses
import math
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from dwl_jax import blocks, topicwise

Array = jax.Array
_RENEW = 8  # training steps between two looks at all of C
_SAMPLE = 128  # words that stand for all others of a topic in transports
_PROBES = 256  # words at which the error of products is measured
_MAX_EXPONENT = 60.0  # costs of more epsilons count as this: no product is 0


class Basis(NamedTuple):
    """What a kernel goes on from."""

    words: Array  # [K, m] int32, each topic's own
    row: Array  # [N] sums of C without its diagonal
    tail: Array  # [K, N] what a topic's other words give to others, at scalings of 1
    error: Array  # [] of products, see `measure`
    fits: Array  # [] bool: no entry of its words' rows is the least there is
    age: Array  # [] int32: kernels made before


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TopicKernel:
    """Rows of C for each topic's own words; gradients flow through `rows`."""

    rows: Array  # [K, m, N] of C, diagonal included
    basis: Basis

    form: Literal["topics"] = dataclasses.field(
        metadata={"static": True}, default="topics"
    )

    @property
    def num_words(self) -> int:
        """N."""
        return self.rows.shape[-1]

    @property
    def words(self) -> Array:
        """Each topic's own, [K, m]."""
        return self.basis.words

    @property
    def next_basis(self) -> Basis:
        """The same, one step older."""
        return self.basis._replace(age=self.basis.age + 1)

    @property
    def error(self) -> Array:
        """Of products, when the basis was found."""
        return self.basis.error

    @property
    def fits(self) -> Array:
        """No entry is smaller than can be held, or was not when the basis was found."""
        return self.basis.fits


def build(
    X: Array,
    ground: blocks.Ground,
    log_B: Array,
    *,
    number: int,
    basis: Basis | None = None,
) -> TopicKernel:
    """The kernel of embeddings, for given topics.

    Args:
      X: embeddings, [N, dim]; differentiable.
      ground: the cost, from `blocks.ground`.
      log_B: topics, [K, N]; they decide which words are their own.
      number: m, how many these are, at most N; static.
      basis: of a kernel near it, found again if it is old; found if None.

    Returns:
      The kernel.
    """
    Z, log_B = jax.lax.stop_gradient((X, log_B))
    if basis is None:
        row = blocks.products(Z, ground, jnp.ones((X.shape[0], 1), X.dtype))[:, 0]
        basis = find(Z, ground, log_B, row, number)
    else:
        basis = jax.lax.cond(
            (basis.age > 0) & (basis.age % _RENEW == 0),
            lambda basis: find(Z, ground, log_B, basis.row, number)._replace(
                age=basis.age
            ),
            lambda basis: basis,
            basis,
        )
    return TopicKernel(entries(basis.words, X, ground), basis)


@jax.custom_vjp
def entries(words: Array, X: Array, ground: blocks.Ground) -> Array:
    """Rows of C, diagonal included: words [K, m] -> [K, m, N], a topic at a time.

    Differentiable in X alone; its gradient keeps how fast each entry falls.
    """
    return _entries(words, X, ground)[0]


def _entries(words: Array, X: Array, ground: blocks.Ground) -> tuple[Array, Array]:
    """Rows of C, and minus their derivatives by squared distances, [K, m, N] each."""

    def topic(words):
        D2 = blocks.squared_distances(X[words], X)
        exponent = ground.exponent(D2)
        own = words[:, None] == jnp.arange(X.shape[0])[None, :]
        C = jnp.where(own, 1.0, jnp.exp(-jnp.minimum(exponent, _MAX_EXPONENT)))
        moves = ~own & (exponent < _MAX_EXPONENT) & (D2 > 0.0)
        fall = C * (ground.power * exponent) / jnp.where(moves, D2, 1.0)
        return C, jnp.where(moves, fall, 0.0)

    return jax.lax.map(topic, words)


def _entries_fwd(words, X, ground):
    C, fall = _entries(words, X, ground)
    return C, (words, X, fall)


def _entries_back(residuals, C_bar):
    words, X, fall = residuals
    ones, ones_own = jnp.ones(X.shape[0], X.dtype), jnp.ones(words.shape[1], X.dtype)

    def topic(X_bar, args):
        words, fall, C_bar = args
        pull, X_own = 2.0 * fall * C_bar, X[words]  # pull on x is along x' - x
        X_bar = X_bar + pull.T @ X_own - (ones_own @ pull)[:, None] * X
        return X_bar.at[words].add(pull @ X - (pull @ ones)[:, None] * X_own), None

    return None, jax.lax.scan(topic, jnp.zeros_like(X), (words, fall, C_bar))[0], None


entries.defvjp(_entries_fwd, _entries_back)


def find(
    X: Array, ground: blocks.Ground, log_B: Array, row: Array, number: int
) -> Basis:
    """Each topic's own words, and sums over all of C for the others.

    Args:
      X: embeddings, [N, dim].
      ground: the cost.
      log_B: topics, [K, N].
      row: sums of C without its diagonal, [N]; those of embeddings near X will do.
      number: m.

    Returns:
      The basis; its age is that of a first one.
    """
    words = jax.lax.top_k(log_B, min(number, X.shape[0]))[1].astype(jnp.int32)
    others = topicwise.rest(jnp.exp(log_B), words) / (1.0 + row)[None, :]
    ones = jnp.ones((1, X.shape[0]), X.dtype)
    found = blocks.products(X, ground, jnp.concatenate([ones, others]).T).T
    unknown = jnp.zeros((), X.dtype), jnp.ones((), bool)
    basis = Basis(words, found[0], found[1:], *unknown, jnp.zeros((), jnp.int32))
    kernel = TopicKernel(entries(words, X, ground), basis)
    fits = jnp.min(kernel.rows) > 1.01 * math.exp(-_MAX_EXPONENT)
    return basis._replace(error=measure(kernel, X, ground, jnp.exp(log_B)), fits=fits)


def measure(kernel: TopicKernel, X: Array, ground: blocks.Ground, B: Array) -> Array:
    """Relative L1 error of both products of the second iteration, added.

    For a document with all topics alike, at words spread evenly over the vocabulary:
    of b / u against the u that all of C gives, and of phi against C times this b / u.
    """
    words, basis, N = kernel.words, kernel.basis, X.shape[0]
    log_phi = topicwise.first(kernel, B)[..., 0]
    scal = jnp.exp(jnp.mean(log_phi, axis=0, keepdims=True) - log_phi)
    own, rest = topicwise.own(B, words), topicwise.rest(B, words)
    send = lambda *topic: topicwise.send(*topic[:4], basis.row, topic[4])
    phi, u = jax.vmap(send)(kernel.rows, own, rest, basis.tail, scal[..., None])
    topics = jnp.arange(B.shape[0])[:, None]
    q = (rest / (scal + basis.row[None, :])).at[topics, words].set(own / u[..., 0])
    few = jnp.arange(0, N, -(-N // _PROBES))
    C = blocks.off_diagonal(few, X[few], X, ground).T
    exact_q = B[:, few] / (scal[:, few] + scal @ C)
    exact_phi = q[:, few] + q @ C
    missed = lambda near, exact, of: (
        jnp.sum(jnp.abs(near - exact)) * (N / few.size) / jnp.sum(of)
    )
    return missed(q[:, few], exact_q, q) + missed(phi[:, few, 0], exact_phi, phi)


def stand_ins(basis: Basis, B: Array) -> tuple[Array, Array]:
    """Few words for each topic, and what mass they have, for transports: [K, n] each.

    Its own words, and a sample of all others, drawn anew in each step by their mass at
    evenly spaced places, so that each stands for an equal part of it.
    """
    words, others = basis.words, topicwise.rest(B, basis.words)
    K, N = B.shape
    line = jnp.cumsum(others, axis=1)
    key = jax.random.fold_in(jax.random.key(0), basis.age)
    places = jnp.arange(_SAMPLE)[None, :] + jax.random.uniform(key, (K, _SAMPLE))
    places = places.astype(B.dtype) / _SAMPLE * line[:, -1:]
    drawn = jnp.minimum(jax.vmap(jnp.searchsorted)(line, places), N - 1)
    mass = jnp.broadcast_to(line[:, -1:] / _SAMPLE, drawn.shape)
    few = jnp.concatenate([words, drawn.astype(words.dtype)], axis=1)
    return few, jnp.concatenate([topicwise.own(B, words), mass], axis=1)
