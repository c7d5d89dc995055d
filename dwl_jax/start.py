"""Topics that start apart: clusters of documents instead of draws from N(0, 1).

Documents are alike by their words, as points sqrt(y); or by what their words mean, as
points in the space of the embeddings, where documents without a common word may be one
topic. The second way starts topics and embeddings in one space.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from dwl_jax.documents import Documents, dense

Array = jax.Array
_SAMPLE = 8_192  # documents that clusters are made of, at most
_ROUNDS = 10  # of k-means
_TRIES = 4  # of k-means among pooled documents, of which the best counts
_SMOOTH = 1e-3  # mass that every word has in a topic, as a part of the largest
_SHARED = 0.3  # of a topic of pooled documents: the mean of all documents
_OWN = 2.0  # logit of a document's own cluster


def clusters(key: Array, V: Array, num_topics: int, own: Array | None = None) -> Array:
    """k-means of unit vectors.

    The first centres are drawn far from each other (k-means++, Arthur and Vassilvitskii
    2007); a cluster that loses all its vectors keeps its centre.

    Args:
      key: a `jax.random.key`.
      V: vectors of length 1, [M, dim].
      num_topics: K.
      own: which clusters a vector may join, bool [M, K]; all if None.

    Returns:
      The centre of each cluster, the mean of its vectors, [K, dim].
    """
    if own is None:
        own = jnp.ones((V.shape[0], num_topics), bool)
    gap = lambda centre: jnp.sum((V - centre[None, :]) ** 2, axis=-1)

    def draw(far, key_and_own):
        key, own_k = key_and_own
        chance = jnp.where(own_k & (far > 0.0), far, 1e-30)
        chosen = V[jax.random.categorical(key, jnp.log(chance))]
        return jnp.minimum(far, gap(chosen)), chosen

    keys = jax.random.split(key, num_topics)
    _, centres = jax.lax.scan(draw, jnp.ones_like(V[:, 0]), (keys, own.T))

    def improve(centres, _):
        near = jnp.where(own, V @ _unit(centres).T, -1.0)
        member = jax.nn.one_hot(jnp.argmax(near, axis=-1), num_topics, dtype=V.dtype)
        size = jnp.sum(member, axis=0)[:, None]
        mean = member.T @ V / jnp.maximum(size, 1.0)
        return jnp.where(size > 0.0, mean, centres), None

    return jax.lax.scan(improve, centres, length=_ROUNDS)[0]


@functools.partial(jax.jit, static_argnames=("num_words", "num_topics"))
def from_documents(
    key: Array,
    docs: Documents,
    own: Array | None = None,
    *,
    num_words: int,
    num_topics: int,
) -> tuple[Array, Array]:
    """Logits of topics that start as clusters of documents as sqrt(y).

    At most `_SAMPLE` documents, drawn at random, make the clusters; all then join one.

    Args:
      key: a `jax.random.key`.
      docs: M documents.
      own: which topics a document may start in (supervised mode), bool [M, K], or None.
      num_words: N.
      num_topics: K.

    Returns:
      A [M, K] and R [K, N].
    """
    key_sample, key_draw = jax.random.split(key)
    M = docs.mass.shape[0]
    rows = jax.random.permutation(key_sample, M)[:_SAMPLE]
    sample, own_s = jax.tree.map(lambda x: x[rows], (docs, own))
    V = jnp.sqrt(dense(sample, num_words))
    centres = clusters(key_draw, V, num_topics, own_s)
    toward = _unit(centres).T  # [N, K]
    near = lambda doc: jnp.sqrt(doc.mass) @ toward[doc.words]
    near = jax.lax.map(near, docs, batch_size=min(M, 1024))
    near = near if own is None else jnp.where(own, near, -1.0)
    B = centres**2
    B = B + _SMOOTH * jnp.max(B, axis=-1, keepdims=True)
    A = _OWN * jax.nn.one_hot(jnp.argmax(near, -1), num_topics, dtype=B.dtype)
    return A, jnp.log(B / jnp.sum(B, axis=-1, keepdims=True))


def pooled(Y: sp.csr_array, X: np.ndarray) -> np.ndarray:
    """Documents as sums of their words' embeddings, rare words first: unit rows.

    Args:
      Y: documents, [M, N].
      X: embeddings, [N, dim].

    Returns:
      sum_n y_mn idf_n x_n over its length, [M, dim].
    """
    M, count = Y.shape[0], (Y > 0.0).sum(axis=0)
    idf = 1.0 + np.log((1.0 + M) / (1.0 + count))
    Z = np.asarray(Y @ (idf[:, None] * X))
    return Z / np.maximum(np.linalg.norm(Z, axis=1, keepdims=True), 1e-30)


@functools.partial(jax.jit, static_argnames=("num_words", "num_topics"))
def from_pooled(
    key: Array,
    docs: Documents,
    Z: Array,
    own: Array | None = None,
    *,
    num_words: int,
    num_topics: int,
) -> tuple[Array, Array]:
    """Logits of topics that start as clusters of documents in the embeddings' space.

    The best of a few tries on at most `_SAMPLE` documents; then all join a cluster. A
    topic is the mean of its documents, and in part that of all.

    Args:
      key: a `jax.random.key`.
      docs: M documents.
      Z: the same as unit vectors, from `pooled`, [M, dim].
      own: which topics a document may start in (supervised mode), bool [M, K], or None.
      num_words: N.
      num_topics: K.

    Returns:
      A [M, K] and R [K, N].
    """
    M, K = Z.shape[0], num_topics
    key_sample, *keys = jax.random.split(key, 1 + _TRIES)
    rows = jax.random.permutation(key_sample, M)[:_SAMPLE]

    def nearness(centres, rows):
        near = Z[rows] @ _unit(centres).T
        return near if own is None else jnp.where(own[rows], near, -1.0)

    def attempt(key):
        own_s = None if own is None else own[rows]
        centres = clusters(key, Z[rows], K, own_s)
        return centres, jnp.sum(jnp.max(nearness(centres, rows), axis=-1))

    centres, score = jax.lax.map(attempt, jnp.stack(keys))
    member = jnp.argmax(nearness(centres[jnp.argmax(score)], jnp.arange(M)), axis=-1)
    total = jnp.zeros((K, num_words), docs.mass.dtype)
    total = total.at[member[:, None], docs.words].add(docs.mass)
    size = jnp.sum(total, axis=1, keepdims=True)
    mean = jnp.sum(total, axis=0, keepdims=True) / M
    B = jnp.where(size > 0.0, total / jnp.maximum(size, 1e-30), mean)
    B = (1.0 - _SHARED) * B + _SHARED * mean
    least = _SMOOTH * jnp.min(jnp.where(mean > 0.0, mean, 1.0))  # of unseen words
    B = jnp.maximum(B, least)
    A = _OWN * jax.nn.one_hot(member, K, dtype=B.dtype)
    return A, jnp.log(B / jnp.sum(B, axis=1, keepdims=True))


def _unit(x: Array) -> Array:
    return x / jnp.maximum(jnp.linalg.norm(x, axis=-1, keepdims=True), 1e-30)
