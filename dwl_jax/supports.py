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


def sinkhorn(
    b: Array, docs: Documents, D2: Array, ground: blocks.Ground, *, num_iters: int
) -> tuple[Array, Array]:
    """Plans of some documents with a topic each.

    Args:
      b: masses of each document's topic, [c, n].
      docs: the documents, [c, S].
      D2: squared distances between the words of both, [c, S, n].
      ground: the cost, from `blocks.ground`.
      num_iters: Sinkhorn iterations; static.

    Returns:
      Plans, [c, S, n], rows the document's words; and the masses of their rows, [c, S].
    """
    C = jnp.exp(-jnp.minimum(ground.exponent(D2), _MAX_EXPONENT))
    to_topic = lambda g: jnp.einsum("cj,cjn->cn", g, C)
    to_words = lambda f: jnp.einsum("cn,cjn->cj", f, C)
    body = lambda g, _: (docs.mass / to_words(b / to_topic(g)), None)
    g, _ = jax.lax.scan(body, docs.mass, length=num_iters)
    f = b / to_topic(g)
    return f[:, None, :] * C * g[:, :, None], g * to_words(f)


def heaviest(log_B: Array, number: int) -> tuple[Array, Array]:
    """Each topic's heaviest words and their masses, which sum to 1: [K, n] each."""
    log_b, words = jax.lax.top_k(log_B, min(number, log_B.shape[1]))
    return words, jax.nn.softmax(log_b, axis=-1)


def pull(
    b: Array,
    docs: Documents,
    X: Array,
    ground: blocks.Ground,
    *,
    words: Array | None = None,
    num_iters: int,
    weight: Array,
) -> Pull:
    """L X of the weighted sum of a batch's transports (Eq. 6), L never formed.

    Args:
      b: masses of each document's closest topic, [s, n].
      docs: the documents, [s, S].
      X: embeddings, [N, dim].
      ground: the cost, from `blocks.ground`.
      words: which words the masses are of, [s, n], one maybe twice; all N if None.
      num_iters: Sinkhorn iterations; static.
      weight: of each document in the sum, [s].

    Returns:
      A Pull.
    """
    s, S = docs.mass.shape
    size = max(1, min(s, _AT_ONCE // (S * b.shape[1])))
    number = -(-s // size)
    rows = jnp.arange(number * size).reshape(number, size)
    weight = jnp.where(rows < s, weight[jnp.minimum(rows, s - 1)], 0.0)
    distances = jax.vmap(blocks.squared_distances, (0, None if words is None else 0))

    def some(total, rows_weight):
        rows, w = rows_weight
        rows = jnp.minimum(rows, s - 1)
        docs_s, b_s = Documents(docs.words[rows], docs.mass[rows]), b[rows]
        X_y, X_b = X[docs_s.words], X if words is None else X[words[rows]]
        T, mass = sinkhorn(
            b_s, docs_s, distances(X_y, X_b), ground, num_iters=num_iters
        )
        error = jnp.sum(jnp.abs(mass - docs_s.mass), axis=-1)
        T, mass = w[:, None, None] * T, w[:, None] * mass
        if words is None:
            SX = total[0] + jnp.einsum("cjn,cjd->nd", T, X_y)
            degree = total[1] + w @ b_s
            to_docs = jnp.einsum("cjn,nd->cjd", T, X_b)
        else:
            to_topic = jnp.einsum("cjn,cjd->cnd", T, X_y)
            SX = total[0].at[words[rows]].add(to_topic)
            degree = total[1].at[words[rows]].add(w[:, None] * b_s)
            to_docs = jnp.einsum("cjn,cnd->cjd", T, X_b)
        SX = SX.at[docs_s.words].add(to_docs)
        return (SX, degree.at[docs_s.words].add(mass)), error

    nothing = (jnp.zeros_like(X), jnp.zeros_like(X[:, 0]))
    (SX, degree), error = jax.lax.scan(some, nothing, (rows, weight))
    LX = 0.5 * (degree[:, None] * X - SX)
    return Pull(LX, jnp.sum(X * LX), error.reshape(-1)[:s])
