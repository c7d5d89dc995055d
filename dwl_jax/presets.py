"""Named settings: the paper's, read literally, and those that were found to learn."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from dwl_jax import embedding, removed
from dwl_jax.types import Config, Hyper

Mode = Literal["scratch", "finetune", "supervised"]
_STEPS = 400  # whatever the corpus, but for _EPOCHS at least
_EPOCHS = 3
_FROZEN = {"joint": False, "step": "none"}
_GIVEN = 0.7  # of all coordinates, in fine-tuning: the others are learned
_SHARE = 0.3  # of the given ones in the ground cost
_LENGTH = 8.0  # of their rows there, where what is learned starts from N(0, 1)
_PROCEDURES = 1.25  # times that for procedures
# Rates of fine-tuning, over those from scratch.
_JOINT_BESIDE, _THETA_BESIDE = 20 / 3, 2.5


class Sizes(NamedTuple):
    """What the recipe depends on."""

    num_docs: int = 4_457  # M
    num_words: int = 81  # N

    @classmethod
    def of(cls, corpus: Any) -> "Sizes":
        """Of a Corpus, of counts [M, N], or Sizes themselves; the paper's for None."""
        if corpus is None:
            return cls()
        if isinstance(corpus, Sizes):
            return corpus
        shape = np.shape(getattr(corpus, "counts", corpus))
        if len(shape) != 2:
            raise ValueError(f"a recipe is for a corpus, counts or Sizes, not {shape}.")
        return cls(*shape)


def sized(num_words: int) -> dict[str, Any]:
    """What the recipe has for N words: powers of N through what 81 codes have.

    More words need more dimensions to have neighbours of their own, and each then needs
    few of them: less blur. A batch's transports touch a smaller part of the words, and
    fewer documents hold each of them: smaller steps.

    Args:
      num_words: N.

    Returns:
      Fields of Config and Hyper.
    """
    more = max(1.0, num_words / Sizes().num_words)
    renew = min(max(round(num_words / 700), 1), 8)
    return {
        "dim": round(min(50 * more ** (1 / 3), 200)),
        "batch_size": round(64 * more ** (1 / 6)),
        "renew": renew,
        "transport_iters": 2,
        "blur": 0.8 * more**-0.5,
        "rate_R": 0.3 * more**-0.25,
        "rate_theta": 0.6 * more**-0.5,
        "rate_joint": 0.03 * renew * more**-0.8,
    }


class Preset(NamedTuple):
    """Settings of a run."""

    cfg: Config
    hyper: Hyper
    num_epochs: int


def paper(*, pretrained: bool = False, **changes) -> Preset:
    """The published settings (Sec. 5): they do not learn, see BUILD_NOTES.md.

    Squared loss, unscaled distances, plain gradient steps of rate 0.05 on sums over
    batches of 256, epsilon = beta = 0.01, tau = 0.5, 50 epochs (5 when pretrained).

    Args:
      pretrained: embeddings start from given vectors.
      **changes: any field of Config or Hyper.

    Returns:
      A Preset.
    """
    cfg = Config(
        num_iters=20,
        transport_iters=20,
        loss="squared",
        scale="none",
        step="explicit",
        joint=False,
        reduction="sum",
        optimizer_A="sgd",
        optimizer_R="sgd",
        optimizer_theta="sgd",
    )
    hyper = Hyper(
        tau=0.5,
        epsilon=0.01,
        epsilon_transport=0.01,
        beta=0.01,
        rate_A=0.05,
        rate_R=0.05,
        rate_joint=0.0,
        rate_theta=0.05,
    )
    return _change(Preset(cfg, hyper, 5 if pretrained else 50), changes)


def default(
    corpus: Any = None,
    *,
    mode: Mode = "scratch",
    transport: bool = True,
    learn_embeddings: bool = True,
    **changes,
) -> Preset:
    """Settings that learn, chosen on validation data: docs/recipe.md has the tables.

    KL loss by one Sinkhorn iteration, squared distances divided by their mean,
    embeddings that start from the spectrum of co-occurrence and topics as clusters of
    documents in them, epsilon from the blur, a weak prior on the topics' weights, Adam,
    the joint update beside the paper's Laplacian step, all rates falling to 0 over a
    number of steps. `sized` says what depends on the number of words.

    Args:
      corpus: what will be learned: a Corpus, counts [M, N] or Sizes.
      mode: `scratch`; `finetune`, which keeps vectors, made by `starting_vectors`, and
        learns beside them; or `supervised`, in which topic weights are also pulled to
        the label's topics.
      transport: False is the control, in which no mass moves: topics alone are learned.
      learn_embeddings: False keeps them as they start.
      **changes: any field of Config or Hyper, num_epochs, or the num_steps that they
        are to have. `decay_epochs` is num_epochs unless given. Who gives epsilon does
        not get one for a blur.

    Returns:
      A Preset.
    """
    if mode not in get_args(Mode):
        raise ValueError(f"mode must be one of {get_args(Mode)}, got {mode!r}.")
    sizes, asked = Sizes.of(corpus), changes
    cfg = Config(squared=True, start="spectral", num_iters=1)
    hyper = Hyper(tau=0.75, epsilon=0.15, rate_A=1.0, prior=0.02)
    own = sized(sizes.num_words)
    if "epsilon" in changes:
        if changes.get("blur"):
            raise ValueError("epsilon and blur: a recipe is given one of them.")
        own["blur"] = 0.0
    if mode == "finetune":
        own["rate_joint"] *= _JOINT_BESIDE
        own["rate_theta"] *= _THETA_BESIDE
    elif mode == "supervised":
        own |= {"label_weight": 1.0, "metric_weight": 2.0}
    changes = own | changes
    if not (transport and learn_embeddings):
        for name in _FROZEN.keys() & asked.keys():
            if asked[name] != _FROZEN[name]:
                raise ValueError(f"{name}={asked[name]!r} would move embeddings.")
        changes = changes | _FROZEN
    if not transport:
        changes = {"transport": False} | changes
    num_steps = changes.pop("num_steps", None)
    found = _change(Preset(cfg, hyper, 0), changes)
    if "num_epochs" not in changes:
        batches = -(-sizes.num_docs // min(sizes.num_docs, found.cfg.batch_size))
        least = -(-(num_steps or _STEPS) // batches)
        found = found._replace(num_epochs=least if num_steps else max(_EPOCHS, least))
    if mode == "finetune" and "embedding" not in changes:
        beside = embedding.beside(round(_GIVEN * found.cfg.dim), _SHARE)
        found = _change(found, {"embedding": beside})
    if "decay_epochs" in changes:
        return found
    decay = found.hyper._replace(decay_epochs=float(found.num_epochs))
    return found._replace(hyper=decay)


def starting_vectors(
    vectors: np.ndarray, cfg: Config, kinds: Sequence[str] | None = None
) -> np.ndarray:
    """Vectors to fine-tune: what `embedding.beside` keeps of them, [N, given].

    Each kind of words has coordinates of its own, as many as its share of the words:
    the principal ones of its vectors. So vectors say which diseases are alike and which
    procedures are, and nothing about which procedure goes with which disease, which is
    to be learned. Procedures get one length: none is nearer to all diseases by itself.

    Args:
      vectors: [N, any].
      cfg: whose map is `beside`.
      kinds: of the words, N of "disease", "procedure" and "word"; one kind if None.

    Returns:
      Vectors; a root mean square length of _LENGTH as the ground cost sees them.
    """
    vectors, (given, share) = np.asarray(vectors, np.float64), cfg.embedding[-2:]
    if given is None:
        raise ValueError("cfg.embedding keeps no vectors: see embedding.beside.")
    if not np.isfinite(vectors).all():
        raise ValueError("vectors must be finite.")
    if not np.ptp(vectors, axis=0).max() > 1e-12 * np.abs(vectors).max():
        raise ValueError("vectors must not all be the same.")
    kinds = np.asarray(["word"] * len(vectors) if kinds is None else kinds)
    names, sizes = np.unique(kinds, return_counts=True)
    if len(names) > given:  # no room for a coordinate each
        names, sizes, kinds = names[:1], [len(kinds)], np.full(len(kinds), names[0])
    ends = np.round(np.cumsum(sizes) / len(kinds) * given).astype(int)
    out = np.zeros((len(vectors), given))
    for name, begin, end in zip(names, [0, *ends[:-1]], ends, strict=True):
        own = kinds == name
        part = _principal(vectors[own], end - begin)
        if name == "procedure":
            part = _PROCEDURES * _over(part, np.linalg.norm(part, axis=1)[:, None])
        out[own, begin : begin + part.shape[1]] = part
    return out * (_LENGTH / share)


def _principal(vectors: np.ndarray, number: int) -> np.ndarray:
    """Centred vectors in their first principal coordinates, of length 1 (rms)."""
    U, size, _ = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
    found = (U * size)[:, :number]
    return _over(found, np.sqrt(np.mean(np.sum(found**2, axis=1))))


def _over(x: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Rows over their length, or as they are: all of a kind may be alike."""
    return x / np.where(length > 1e-12, length, 1.0)


def _change(preset: Preset, changes: dict) -> Preset:
    """A preset with some fields of its Config, Hyper or num_epochs replaced."""
    removed.refuse(changes)
    in_cfg = {f.name for f in dataclasses.fields(Config)}
    unknown = set(changes) - in_cfg - set(Hyper._fields) - {"num_epochs"}
    if unknown:
        raise ValueError(f"no such setting: {', '.join(sorted(unknown))}.")
    pick = lambda names: {k: v for k, v in changes.items() if k in names}
    return Preset(
        dataclasses.replace(preset.cfg, **pick(in_cfg)),
        preset.hyper._replace(**pick(Hyper._fields)),
        changes.get("num_epochs", preset.num_epochs),
    )
