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
