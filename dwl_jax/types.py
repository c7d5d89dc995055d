"""What training takes and gives: Config, Hyper, Params, State, Info, Model.

`Config` is static: sizes, loop lengths and choices, a change recompiles. `Hyper` is
traced: every number in it can be swept by `jax.vmap` with one compilation.
"""

import dataclasses
from typing import Any, Literal, NamedTuple, get_args

import jax
import numpy as np
import optax

from dwl_jax import removed
from dwl_jax.cost import Scale
from dwl_jax.embedding import EmbeddingMap, one_hot
from dwl_jax.losses import Loss

Array = jax.Array
Step = Literal["explicit", "proximal", "none"]
Closest = Literal["weight", "distance"]
KernelForm = Literal["auto", "plain", "scaled", "log"]
TransportForm = Literal["auto", "plain", "log"]
Reduction = Literal["mean", "sum"]
Start = Literal["normal", "documents", "spectral"]
Optimizer = str | optax.GradientTransformation
FEW_WORDS = 1_000  # up to so many, all of them take part in everything

FAULTS = (  # what can stop being finite, in the order of a step, or be too large
    "the loss",
    "A or its gradient",
    "R or its gradient",
    "theta or its gradient",
    "theta after the embedding step",
    "a number that the kernel's form cannot hold",
)
UNHELD = 1 << FAULTS.index("a number that the kernel's form cannot hold")
LOSSES = ("kl", "squared", "sinkhorn")
OPTIMIZERS = {
    "adam": optax.scale_by_adam,
    "sgd": optax.identity,
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Static sizes and choices of Algorithm 1."""

    num_topics: int = 8
    dim: int = 50
    batch_size: int = 256
    num_iters: int = 10  # L of Algorithm 2
    transport_iters: int = 10  # Sinkhorn iterations of the plans T

    loss: str | Loss = "kl"
    scale: Scale = "mean"
    squared: bool = False  # squared distances as ground cost
    kernel: KernelForm = "auto"  # how the numbers of D^tau's kernel are held
    transport_kernel: TransportForm = "auto"  # the same for D's, of the plans T
    transport: bool = True  # False: C is the identity, the control
    renew: int = 1  # steps from one making of the kernel of D^tau to the next, at most
    topic_words: int = 192  # of each topic, that transports move where words are many
    start: Start = "normal"  # draws; clusters of documents; embeddings and clusters

    embedding: EmbeddingMap = one_hot
    step: Step = "explicit"
    joint: bool = True  # theta also follows the topic loss through D^tau
    closest: Closest = "weight"
    reduction: Reduction = "mean"  # of a batch, for R, theta and T

    optimizer_A: Optimizer = "adam"
    optimizer_R: Optimizer = "adam"
    optimizer_theta: Optimizer = "adam"

    def __new__(cls, *args, **settings):
        """Says what became of a field that is gone."""
        removed.refuse(settings)
        return super().__new__(cls)

    def __post_init__(self):
        sizes = ("num_topics", "dim", "batch_size", "num_iters", "transport_iters")
        for name in (*sizes, "renew", "topic_words"):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or value < 1:
                raise ValueError(f"Config.{name} must be an int >= 1, got {value!r}.")
        choices = {
            "scale": get_args(Scale),
            "kernel": get_args(KernelForm),
            "transport_kernel": get_args(TransportForm),
            "step": get_args(Step),
            "closest": get_args(Closest),
            "reduction": get_args(Reduction),
            "start": get_args(Start),
        }
        if not callable(self.loss):
            choices["loss"] = LOSSES
        for name in ("optimizer_A", "optimizer_R", "optimizer_theta"):
            if not isinstance(getattr(self, name), optax.GradientTransformation):
                choices[name] = tuple(OPTIMIZERS)
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"Config.{name} must be one of {', '.join(allowed)}; "
                    f"got {getattr(self, name)!r}."
                )
        moves = self.joint or self.step != "none"
        if not self.transport and (self.num_iters > 1 or moves):
            raise ValueError(
                "Config.transport False: all iterations are alike and nothing moves "
                "embeddings, so num_iters must be 1, joint False and step 'none'."
            )
        if not self.transport and self.loss == "sinkhorn":
            raise ValueError("Config.loss 'sinkhorn' is a transport: it needs one.")
        if self.step == "proximal" and not self.embedding.linear:
            raise ValueError("Config.step 'proximal' needs a linear embedding map.")
        given = self.embedding.given
        if given is not None and not 1 <= given < self.dim:
            raise ValueError(
                f"Config.embedding has {given} given coordinates; Config.dim, which is "
                f"{self.dim}, must leave room beside them."
            )


class Hyper(NamedTuple):
    """Numbers of Algorithm 1; each may be a traced scalar."""

    tau: Array | float = 0.5  # distillation power
    epsilon: Array | float = 0.2  # of the barycenter, in units of the scaled D^tau
    blur: Array | float = 0.0  # of the first kernel, epsilon found for it; 0: as it is
    epsilon_transport: Array | float = 1.0  # of the plans T, in units of the scaled D
    beta: Array | float = 0.01  # weight of ||theta - theta_c||^2
    rate_A: Array | float = 0.3
    rate_R: Array | float = 0.3
    rate_joint: Array | float = 0.03  # of theta on the topic loss
    rate_theta: Array | float = 0.1  # rho of theta on E(theta)
    anchor: Array | float = 0.0  # pull of theta towards its start, per step
    decay_epochs: Array | float = 0.0  # all rates fall to 0 over so many; 0: never
    prior: Array | float = 0.0  # of Lambda: pull of the logits A towards their mean
    label_weight: Array | float = 0.0  # supervised: pull of Lambda towards the label
    metric_weight: Array | float = 0.0  # supervised: of `losses.neighbours`

    def at(self, epsilon: Array | None) -> "Hyper":
        """With the epsilon that was found for a blur, if one was."""
        return self if epsilon is None else self._replace(epsilon=epsilon, blur=0.0)


class Params(NamedTuple):
    """What is learned."""

    A: Array  # [M, K] logits of Lambda
    R: Array  # [K, N] logits of B
    theta: Any  # [N, dim] for the one-hot map


class State(NamedTuple):
    """Everything Algorithm 1 carries from batch to batch."""

    params: Params
    opt_A: Any  # one optimiser state per document, leading axis M
    opt_R: Any
    opt_theta: Any
    theta_start: Any  # what the anchor refers to
    features: Array | None  # [N, F] word features of the embedding map
    epoch: Array  # [] int32, epochs done
    batch: Array  # [] int32, batches done of the next one: 0 but after a fault
    finite: Array  # [] bool, False once a step was not: then nothing moves any more
    epsilon: Array | None = None  # [] found for Hyper.blur, or None: Hyper's own


class Info(NamedTuple):
    """Diagnostics of a step; `fit` stacks them as [epochs, batches]."""

    loss: Array  # mean of L(y, y_hat) over the batch's documents
    energy: Array  # Tr(X' L X) before the embedding step
    error: Array  # mean disagreement of the barycenter's plans
    transport_error: Array  # mean L1 error of the plans T
    blur: Array  # median over words of what a row of C sums to off its diagonal
    likeness: Array  # of distances between words to those at the start: a correlation
    fast: Array  # the barycenter is by matrix products, not in the log domain
    grad_norm: Array  # of R
    fault: Array  # int32, 0 in a good step; bit i says that FAULTS[i] came up


class Model(NamedTuple):
    """What a trained run is to others: topics and embeddings."""

    log_B: Array  # [K, N]
    X: Array  # [N, dim]
    epsilon: Array | None = None  # [] found for Hyper.blur, or None: Hyper's own


def reading(cfg: Config) -> Config:
    """What inference depends on: Configs that differ elsewhere share what compiles."""
    names = ("batch_size", "num_iters", "loss", "scale", "squared", "kernel")
    kept = {name: getattr(cfg, name) for name in (*names, "transport")}
    return Config(**kept, transport_kernel="plain", joint=False, step="none")


def optimizer(choice: Optimizer) -> optax.GradientTransformation:
    """An optax transformation that gives directions; `Hyper` has the rates."""
    return OPTIMIZERS[choice]() if isinstance(choice, str) else choice
