"""Transport between documents and topics where a document has words, and nowhere else.

A plan between a topic and a document has as many columns as the document has words. The
batch's plans are summed into what the embedding step asks of them, the product of their
Laplacian with X: no matrix of N x N words is formed, for a document or for the batch.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dwl_jax import blocks
from dwl_jax.documents import Documents

Array = jax.Array
_AT_ONCE = 1 << 22  # entries of all plans of some documents
_MAX_EXPONENT = 60.0  # costs of more epsilons count as this: all sums stay finite


class Pull(NamedTuple):
    """What the transports of a batch ask of the embeddings."""

    LX: Array  # [N, dim] the Laplacian of their symmetrised sum, times X
    energy: Array  # [] Tr(X' L X)
    error: Array  # [s] L1 error of each plan's document side; its topic side is exact


def plans(
    log_b: Array, docs: Documents, X: Array, ground: blocks.Ground, *, num_iters: int
) -> tuple[Array, Array]:
    """Sinkhorn plans of some documents with a topic each.

    Args:
      log_b: log distribution of each document's topic, [c, N].
      docs: the documents, [c, S].
      X: embeddings, [N, dim].
      ground: the cost, from `blocks.ground`.
      num_iters: Sinkhorn iterations; static.

    Returns:
      Plans, [c, S, N], rows the document's words; and the masses of their rows, [c, S].
    """
    places = X[docs.words].reshape(-1, X.shape[1])
    D2 = blocks.squared_distances(places, X).reshape(*docs.words.shape, -1)
    return sinkhorn(jnp.exp(log_b), docs, D2, ground, num_iters=num_iters)


def sinkhorn(
    b: Array, docs: Documents, D2: Array, ground: blocks.Ground, *, num_iters: int
) -> tuple[Array, Array]:
    """`plans` between masses b [c, n] and documents that are D2 [c, S, n] apart."""
    C = jnp.exp(-jnp.minimum(ground.exponent(D2), _MAX_EXPONENT))
    to_topic = lambda g: jnp.einsum("cj,cjn->cn", g, C)
    to_words = lambda f: jnp.einsum("cn,cjn->cj", f, C)
    body = lambda g, _: (docs.mass / to_words(b / to_topic(g)), None)
    g, _ = jax.lax.scan(body, docs.mass, length=num_iters)
    f = b / to_topic(g)
    return f[:, None, :] * C * g[:, :, None], g * to_words(f)


def pull(
    log_b: Array,
    docs: Documents,
    X: Array,
    ground: blocks.Ground,
    *,
    num_iters: int,
    weight: Array,
) -> Pull:
    """L X of the weighted sum of a batch's transports (Eq. 6), L never formed.

    Args:
      log_b: log distribution of each document's closest topic, [s, N].
      docs: the documents, [s, S].
      X: embeddings, [N, dim].
      ground: the cost, from `blocks.ground`.
      num_iters: Sinkhorn iterations; static.
      weight: of each document in the sum, [s].

    Returns:
      A Pull.
    """
    N, dim = X.shape
    s, S = docs.mass.shape
    size = max(1, min(s, _AT_ONCE // (S * N)))
    number = -(-s // size)
    rows = jnp.arange(number * size).reshape(number, size)
    weight = jnp.where(rows < s, weight[jnp.minimum(rows, s - 1)], 0.0)

    def some(total, rows_weight):
        rows, w = rows_weight
        rows = jnp.minimum(rows, s - 1)
        docs_s = Documents(docs.words[rows], docs.mass[rows])
        T, mass = plans(log_b[rows], docs_s, X, ground, num_iters=num_iters)
        error = jnp.sum(jnp.abs(mass - docs_s.mass), axis=-1)
        T = (w[:, None, None] * T).reshape(-1, N)
        words, mass = docs_s.words.reshape(-1), (w[:, None] * mass).reshape(-1)
        SX, degree = total
        SX = SX + T.T @ X[words]
        SX = SX.at[words].add(T @ X)
        degree = degree + w @ jnp.exp(log_b[rows])
        return (SX, degree.at[words].add(mass)), error

    nothing = (jnp.zeros_like(X), jnp.zeros((N,), X.dtype))
    (SX, degree), error = jax.lax.scan(some, nothing, (rows, weight))
    LX = 0.5 * (degree[:, None] * X - SX)
    return Pull(LX, jnp.sum(X * LX), error.reshape(-1)[:s])


def pull_of_few(
    few: Array,
    b: Array,
    docs: Documents,
    X: Array,
    ground: blocks.Ground,
    *,
    num_iters: int,
    weight: Array,
) -> Pull:
    """`pull` where each topic is a few words, which have all its mass.

    Args:
      few: words of each document's closest topic, [s, n]; one may be there twice.
      b: their masses, [s, n].
      docs: the documents, [s, S].
      X: embeddings, [N, dim].
      ground: the cost, from `blocks.ground`.
      num_iters: Sinkhorn iterations; static.
      weight: of each document in the sum, [s].

    Returns:
      A Pull.
    """
    X_b, X_y = X[few], X[docs.words]
    D2 = jax.vmap(blocks.squared_distances)(X_y, X_b)
    T, mass = sinkhorn(b, docs, D2, ground, num_iters=num_iters)
    error = jnp.sum(jnp.abs(mass - docs.mass), axis=-1)
    T, b, mass = (weight.reshape(-1, *[1] * (x.ndim - 1)) * x for x in (T, b, mass))
    SX = jnp.zeros_like(X).at[few].add(jnp.einsum("sjn,sjd->snd", T, X_y))
    SX = SX.at[docs.words].add(jnp.einsum("sjn,snd->sjd", T, X_b))
    degree = jnp.zeros_like(X[:, 0]).at[few].add(b).at[docs.words].add(mass)
    LX = 0.5 * (degree[:, None] * X - SX)
    return Pull(LX, jnp.sum(X * LX), error)
