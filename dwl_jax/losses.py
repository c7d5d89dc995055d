"""What the reconstruction of a document costs: L(y, y_hat), one number per document."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from dwl_jax import kernel as kernel_lib

Array = jax.Array
Loss = Callable[[Array, Array], Array]


def squared(y: Array, log_y_hat: Array) -> Array:
    """||y_hat - y||^2, the paper's choice: [..., N] -> [...]."""
    return jnp.sum((jnp.exp(log_y_hat) - y) ** 2, axis=-1)


def kl(y: Array, log_y_hat: Array) -> Array:
    """KL(y | y_hat) of the normalised reconstruction: [..., N] -> [...]."""
    log_y_hat = jax.nn.log_softmax(log_y_hat, axis=-1)
    present = y > 0.0
    log_y = jnp.log(jnp.where(present, y, 1.0))
    return jnp.sum(jnp.where(present, y * (log_y - log_y_hat), 0.0), axis=-1)


def sinkhorn_divergence(
    y: Array,
    log_y_hat: Array,
    kernel: kernel_lib.Kernel,
    epsilon: Array | float,
    *,
    num_iters: int = 20,
) -> Array:
    """Debiased entropic distance between y and the normalised y_hat.

    Gradients are those at the optimum (envelope theorem): the Sinkhorn loops are not
    differentiated, the Lagrangian they solve is, with respect to y_hat and the kernel.

    Args:
      y: documents, [..., N].
      log_y_hat: log reconstructions, [..., N].
      kernel: of the cost that the distance is measured with.
      epsilon: its entropic weight.
      num_iters: Sinkhorn iterations; static.

    Returns:
      OT(y, y_hat) - OT(y, y) / 2 - OT(y_hat, y_hat) / 2, [...].
    """
    log_a = jnp.where(y > 0.0, jnp.log(jnp.where(y > 0.0, y, 1.0)), -jnp.inf)
    log_b = jax.nn.log_softmax(log_y_hat, axis=-1)
    apply = lambda log_v: kernel_lib.apply_log(kernel, log_v)

    def solve(log_p, log_q):
        # Averaging two steps is what makes the potentials of OT(p, p) converge fast.
        mix = 0.5 if log_p is log_q else 1.0
        log_p, log_q = jax.lax.stop_gradient((log_p, log_q))

        def body(f_g, _):
            f, g = f_g
            f = f - mix * (f + apply(log_q + g))
            return (f, g - mix * (g + apply(log_p + f))), None

        zero = jnp.zeros_like(log_b)
        (f, g), _ = jax.lax.scan(body, (zero, zero), length=num_iters)
        return jax.lax.stop_gradient((f, -apply(log_p + f)))

    def lagrangian(log_p, log_q):
        f, g = solve(log_p, log_q)
        mass = jnp.sum(jnp.exp(log_p + f + apply(log_q + g)), axis=-1)
        linear = jnp.sum(jnp.exp(log_p) * f + jnp.exp(log_q) * g, axis=-1)
        return linear - mass + 1.0

    halves = 0.5 * (lagrangian(log_a, log_a) + lagrangian(log_b, log_b))
    return epsilon * (lagrangian(log_a, log_b) - halves)


def neighbours(F: Array, labels: Array, weight: Array, blur: float = 0.1) -> Array:
    """How seldom the nearest documents have the same label, in logs.

    Neighbourhood components analysis (Goldberger et al. 2004), as supervised Word
    Mover's Distance learns its metric (Huang et al. 2016): a document draws a neighbour
    by exp(-distance^2), and the loss is minus the log of the chance of its own label.
    All labels weigh the same, however rare, as drawn and as drawing.

    Args:
      F: features of documents, [s, dim]; their scale does not matter.
      labels: [s] ints, negative where unknown.
      weight: [s] 1, or 0 for a place without a document.
      blur: width of the draw, in units of the mean squared distance.

    Returns:
      [], the mean over labels of the mean over their documents; 0 without any pair.
    """
    known = jnp.where(labels >= 0, weight, 0.0)
    both = known[:, None] * known[None, :] * (1.0 - jnp.eye(len(F), dtype=F.dtype))
    same = both * (labels[:, None] == labels[None, :])
    D2 = jnp.sum((F[:, None, :] - F[None, :, :]) ** 2, axis=-1)
    unit = jax.lax.stop_gradient(jnp.sum(both * D2) / jnp.maximum(jnp.sum(both), 1.0))
    share = 1.0 / jnp.maximum(jnp.sum(same, axis=1) + known, 1.0)  # of a document
    log_share = jnp.broadcast_to(jnp.log(share)[None, :], D2.shape)
    score = log_share - D2 / (blur * jnp.where(unit > 0.0, unit, 1.0))
    log_sum = lambda pairs: jax.nn.logsumexp(
        jnp.where(pairs > 0.0, score, -1e30), axis=1
    )
    able = known * share * (jnp.sum(same, axis=1) > 0.0)
    gap = jnp.where(able > 0.0, log_sum(both) - log_sum(same), 0.0)
    return jnp.sum(able * gap) / jnp.maximum(jnp.sum(able), 1e-30)
