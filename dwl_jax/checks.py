"""Checks at the boundary, outside `jit`: a ValueError that names the culprit.

Values that are being traced (inside a caller's `jit` or `vmap`) cannot be looked at and
are taken as they are; shapes are checked always.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from dwl_jax.documents import Documents, from_counts
from dwl_jax.types import FAULTS, UNHELD, Config, Hyper, Info, State

Array = jax.Array
_LEAST_BLUR, _MOST_BLUR = 1e-3, 3.0


def documents(docs: Any, num_words: int | None, *per_word) -> tuple[Documents, int]:
    """Documents and N from what the caller gave; ValueError where they disagree."""
    if not isinstance(docs, Documents):
        if num_words not in (None, np.shape(docs)[-1]):
            raise ValueError(
                f"num_words is {num_words}, but counts have {np.shape(docs)[-1]} words."
            )
        num_words = np.shape(docs)[-1]
        docs = from_counts(docs)
    known = [len(w) for w in per_word if w is not None]
    num_words = num_words or (known[0] if known else None)
    if num_words is None:
        raise ValueError("num_words is needed when docs are Documents.")
    if docs.words.shape != docs.mass.shape or docs.mass.ndim != 2:
        raise ValueError(
            f"docs.words {docs.words.shape} and docs.mass {docs.mass.shape} must both "
            "be [M, S]."
        )
    if docs.mass.size == 0:
        raise ValueError(f"there must be documents with words, got {docs.mass.shape}.")
    if not isinstance(docs.words, jax.core.Tracer):
        words = np.asarray(docs.words)
        bad = np.argwhere((words < 0) | (words >= num_words))
        if bad.size:
            m, place = bad[0]
            raise ValueError(
                f"document {m} has word {words[m, place]}, but there are {num_words} "
                "words."
            )
    if not isinstance(docs.mass, jax.core.Tracer):
        mass = np.asarray(docs.mass)
        off = ~(np.abs(mass.sum(axis=1) - 1.0) < 1e-3) | ~(mass >= 0.0).all(axis=1)
        if off.any():
            raise ValueError(
                f"document {np.flatnonzero(off)[0]} is not a distribution: masses must "
                "be finite, not negative, and sum to 1."
            )
    return docs, num_words


def observed(mask: Any, docs: Documents, num_words: int) -> Array | None:
    """Which words can be observed, bool [N]; documents must lie on them."""
    if mask is None:
        return None
    mask = jnp.asarray(mask, bool)
    if mask.shape != (num_words,):
        raise ValueError(f"observed must be [{num_words}], got {mask.shape}.")
    if isinstance(docs.mass, jax.core.Tracer) or isinstance(mask, jax.core.Tracer):
        return mask
    hidden = (np.asarray(docs.mass) > 0) & ~np.asarray(mask)[np.asarray(docs.words)]
    if hidden.any():
        m = np.flatnonzero(hidden.any(axis=1))[0]
        raise ValueError(f"document {m} has words that are not observed.")
    return mask


def known(docs: Documents, vectors: Any) -> None:
    """ValueError where a start is to be found by the host and numbers are traced."""
    if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves((docs, vectors))):
        raise ValueError(
            "Config.start 'spectral' looks at documents and vectors, which must not be "
            "traced here: make the start outside of jit or vmap, or sweep others."
        )


def words(cfg: Config, num_words: int, vectors: Any, features: Any) -> None:
    """ValueError unless starting vectors and word features suit N and cfg."""
    if vectors is not None:
        if np.ndim(vectors) != 2 or np.shape(vectors)[0] != num_words:
            raise ValueError(
                f"vectors must be [{num_words}, dim], got {np.shape(vectors)}."
            )
        wanted, of = cfg.dim, "dim is"
        if cfg.embedding.given is not None:
            wanted, of = cfg.embedding.given, "embedding takes"
        if np.shape(vectors)[1] != wanted:
            raise ValueError(
                f"vectors have {np.shape(vectors)[1]} dimensions, Config.{of} {wanted}."
            )
    if cfg.embedding.uses_features != (features is not None):
        raise ValueError(
            "features are needed by the linear and mlp maps, and by them alone."
        )
    if features is not None and (
        np.ndim(features) != 2 or np.shape(features)[0] != num_words
    ):
        raise ValueError(
            f"features must be [{num_words}, F], got {np.shape(features)}."
        )
    for name, x in (("vectors", vectors), ("features", features)):
        if x is not None and not isinstance(x, jax.core.Tracer):
            bad = np.argwhere(~np.isfinite(np.asarray(x)))
            if bad.size:
                raise ValueError(f"{name} of word {bad[0][0]} are not finite.")


def labels(labels: Any, num_docs: int, cfg: Config) -> tuple[Array | None, int]:
    """Labels as int32 and how many there are; every label needs a topic."""
    if labels is None:
        return None, 0
    values = np.asarray(labels)
    if values.shape != (num_docs,) or not np.issubdtype(values.dtype, np.integer):
        raise ValueError(
            f"labels must be {num_docs} ints, got {values.dtype} {values.shape}."
        )
    if values.min() < -1:
        m = int(np.argmin(values))
        raise ValueError(f"label {values[m]} of document {m}: -1 is for unknown.")
    if values.max() >= cfg.num_topics:
        m = int(np.argmax(values))
        raise ValueError(
            f"label {values[m]} of document {m} has no topic: Config.num_topics is "
            f"{cfg.num_topics}."
        )
    num_labels = int(values.max()) + 1
    if num_labels == 0:
        raise ValueError("labels are all unknown (-1).")
    return jnp.asarray(values, jnp.int32), num_labels


def hyper(hyper: Hyper, cfg: Config, dtype: Any = np.float64) -> None:
    """ValueError for a number out of range or that dtype cannot hold, if not traced."""
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    fits = jnp.finfo(dtype)
    positive = ["tau", "epsilon", "epsilon_transport"]
    if cfg.step == "proximal":
        positive.append("beta")  # else the linear system is singular
    for name, value in hyper._asdict().items():
        if isinstance(value, jax.core.Tracer):
            continue
        if np.ndim(value):
            raise ValueError(
                f"Hyper.{name} must be a number, got shape {np.shape(value)}; sweep "
                "with jax.vmap."
            )
        x = float(value)
        low_ok = x > 0.0 if name in positive else x >= 0.0
        high_ok = x <= 1.0 if name in ("tau", "anchor") else x < math.inf
        if not (low_ok and high_ok):
            low = "(0" if name in positive else "[0"
            high = "1]" if name in ("tau", "anchor") else "inf)"
            raise ValueError(f"Hyper.{name} must be in {low}, {high}, got {x}.")
        if x > float(fits.max) or 0.0 < x < float(fits.tiny):
            raise ValueError(f"Hyper.{name} = {x} does not fit {dtype}.")


def faults(*trees: Any) -> Array:
    """Bit i is set if the i-th tree holds a number that is not finite; traceable."""
    broken = lambda x: jnp.any(~jnp.isfinite(x))
    no = jnp.zeros((), bool)
    bad = jnp.stack([sum(map(broken, jax.tree.leaves(t)), no) > 0 for t in trees])
    return jnp.sum(bad.astype(jnp.int32) << jnp.arange(len(trees), dtype=jnp.int32))


def blurs(info: Info, hyper: Hyper, cfg: Config) -> bool:
    """Whether the kernel does something, and not too much; a warning if not."""
    if isinstance(info.blur, jax.core.Tracer) or not cfg.transport:
        return True
    blur = float(np.asarray(info.blur).reshape(-1)[-1])
    if not (blur < _LEAST_BLUR or blur > _MOST_BLUR):
        return True
    what, how = "swallows the topics: all words go to all others", "smaller"
    if blur < _LEAST_BLUR:
        what, how = "is the identity: nothing is transported, and tau is idle", "larger"
    logging.warning(
        "the kernel %s. A row of C sums to %.2g off its diagonal (the median, "
        "Info.blur); between 0.01 and 1 it learns. Take a %s Hyper.epsilon than %g.",
        what, blur, how, float(hyper.epsilon),
    )  # fmt: skip
    return False


class NonFiniteError(FloatingPointError):
    """A number of a run stopped being finite.

    Attributes:
      state: the last good State: nothing changed from that step on.
      info: of all steps, as `run_epochs` gave it.
    """

    def __init__(self, message: str, state: State, info: Info):
        super().__init__(message)
        self.state, self.info = state, info


def finite(state: State, info: Info, hyper: Hyper, cfg: Config) -> None:
    """NonFiniteError for a run that met a number that is not finite, unless traced."""
    if isinstance(state.finite, jax.core.Tracer) or bool(np.all(state.finite)):
        return
    fault = np.atleast_2d(np.asarray(info.fault))
    place, batch = np.argwhere(fault != 0)[0].tolist()
    epoch = int(state.epoch)  # of the epoch that was not completed
    bits = int(fault[place, batch])
    hyper = hyper.at(state.epsilon)
    what = next(name for i, name in enumerate(FAULTS) if bits >> i & 1)
    if bits & UNHELD:
        raise NonFiniteError(
            f"kernels in the forms {cfg.kernel!r} and {cfg.transport_kernel!r} cannot "
            f"hold the numbers of epoch {epoch}, batch {batch} (both from 0); the "
            "state before that step is kept. Config.kernel and "
            "Config.transport_kernel 'auto' take a form that can.",
            state,
            info,
        )
    raise NonFiniteError(
        f"{what} is not finite in epoch {epoch}, batch {batch} (both from 0); the "
        f"state before that step is kept. What usually helps: a larger Hyper.epsilon "
        f"(now {float(hyper.epsilon):g}), smaller rates, Config.kernel='log' (now "
        f"{cfg.kernel!r}), 64 bit (now {state.params.R.dtype}), or an optimizer "
        "that clips, as optax.chain(optax.clip_by_global_norm(1.0), ...).",
        state,
        info,
    )
