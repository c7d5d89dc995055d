"""Small problems that several test files share."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dwl_jax import cost


class Problem(NamedTuple):
    """Topics, weights, a mean-scaled distance and a document side to weigh it with."""

    log_B: jax.Array  # [K, N]
    lam: jax.Array  # [s, K]
    D: jax.Array  # [N, N]
    probe: jax.Array  # [s, N] arbitrary direction: a loss is sum(probe * y)


def simplex(rng, *shape):
    """Rows on the simplex, none of them near its border."""
    p = rng.uniform(0.2, 1.0, shape)
    return p / p.sum(axis=-1, keepdims=True)


def problem(seed=0, *, num_words=7, num_topics=3, num_docs=2, dim=3):
    """A generic problem in float64."""
    rng = np.random.default_rng(seed)
    D = cost.scale(cost.distance_matrix(jnp.asarray(rng.normal(size=(num_words, dim)))))
    return Problem(
        jnp.log(simplex(rng, num_topics, num_words)),
        jnp.asarray(simplex(rng, num_docs, num_topics)),
        D,
        jnp.asarray(rng.normal(size=(num_docs, num_words))),
    )


def clustered(seed, num_words, dim, *, num_clusters=6, width=1e-3):
    """Embeddings as training leaves them: clusters whose words nearly coincide."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(num_clusters, dim))
    X = centres[np.arange(num_words) % num_clusters]
    X = X + width * rng.normal(size=(num_words, dim))
    X[num_clusters] = X[0]  # two words that coincide
    return X


def counts(num_docs=22, num_words=12, num_groups=3, seed=0):
    """Documents of a few words each, drawn from one of `num_groups` blocks of words."""
    rng = np.random.default_rng(seed)
    group = np.arange(num_docs) % num_groups
    block = np.arange(num_words) % num_groups
    rate = np.where(group[:, None] == block[None, :], 1.0, 0.08)
    Y = rng.poisson(rate)
    Y[np.arange(num_docs), group] += 1
    return Y, group


def shapes(jaxpr):
    """Shapes of every intermediate of a jaxpr, those of inner jaxprs included."""
    found = set()
    for eqn in equations(jaxpr):
        found |= {v.aval.shape for v in eqn.outvars if hasattr(v.aval, "shape")}
    return found


def equations(jaxpr):
    """Every equation of a jaxpr, depth first into loops, branches and calls."""
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    for eqn in jaxpr.eqns:
        yield eqn
        for value in eqn.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                    yield from equations(inner)


def themes(num_docs=300, num_words=40, seed=0):
    """Counts of documents that each have one of three themes, 8 words of it."""
    rng = np.random.default_rng(seed)
    of = rng.dirichlet(np.full(num_words, 0.2), 3)
    return np.array([rng.multinomial(8, of[m % 3]) for m in range(num_docs)])
