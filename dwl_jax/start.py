"""Topics that start apart: clusters of documents instead of draws from N(0, 1)."""

import functools

import jax
import jax.numpy as jnp

from dwl_jax.documents import Documents, dense

Array = jax.Array
_SAMPLE = 8_192  # documents that clusters are made of, at most
_ROUNDS = 10  # of k-means
_SMOOTH = 1e-3  # mass that every word has in a topic, as a part of the largest
_OWN = 2.0  # logit of a document's own cluster


def clusters(key: Array, Y: Array, num_topics: int, own: Array | None = None) -> Array:
    """k-means of documents as unit vectors sqrt(y): Hellinger's distance.

    The first centres are drawn far from each other (k-means++, Arthur and Vassilvitskii
    2007); a cluster that loses all its documents keeps its centre.

    Args:
      key: a `jax.random.key`.
      Y: documents, [M, N].
      num_topics: K.
      own: which clusters a document may join, bool [M, K]; all if None.

    Returns:
      The centre of each cluster, the mean of its sqrt(y), [K, N].
    """
    V = jnp.sqrt(Y)
    if own is None:
        own = jnp.ones((Y.shape[0], num_topics), bool)
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
    """Logits of topics that start as clusters of documents.

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
    centres = clusters(key_draw, dense(sample, num_words), num_topics, own_s)
    toward = _unit(centres).T  # [N, K]
    near = lambda doc: jnp.sqrt(doc.mass) @ toward[doc.words]
    near = jax.lax.map(near, docs, batch_size=min(M, 1024))
    near = near if own is None else jnp.where(own, near, -1.0)
    B = centres**2
    B = B + _SMOOTH * jnp.max(B, axis=-1, keepdims=True)
    A = _OWN * jax.nn.one_hot(jnp.argmax(near, -1), num_topics, dtype=B.dtype)
    return A, jnp.log(B / jnp.sum(B, axis=-1, keepdims=True))


def _unit(x: Array) -> Array:
    return x / jnp.maximum(jnp.linalg.norm(x, axis=-1, keepdims=True), 1e-30)
