"""The control: a kernel that moves no mass, C = I, so that nothing is transported.

A barycenter is then the geometric mean of the topics themselves, for any number of
iterations, and embeddings have no part in it.
"""

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp

Array = jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class IdentityKernel:
    """C = I of N words."""

    reach: Array  # [] 0: no two words that it compares are apart
    num_words: int = dataclasses.field(metadata={"static": True})

    form: Literal["identity"] = dataclasses.field(
        metadata={"static": True}, default="identity"
    )

    def row_sums(self) -> Array:
        """Of C off its diagonal, [N]."""
        return jnp.zeros((self.num_words,), self.reach.dtype)

    def vertices(self, log_B: Array) -> Array:
        """Log documents of the topics: themselves, finite, [K, N]."""
        return jnp.maximum(log_B, jnp.finfo(log_B.dtype).min)
