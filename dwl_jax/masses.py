"""Masses as a settled kernel takes them: numbers in the plain form, else logs."""

from typing import Any

import jax
import jax.numpy as jnp

Array = jax.Array
Kernel = Any  # anything with a `form`


def enter(kernel: Kernel, log_v: Array) -> Array:
    """Masses as a settled kernel takes them."""
    return jnp.exp(log_v) if kernel.form == "plain" else log_v


def leave(kernel: Kernel, v: Array) -> Array:
    """Logs of what a settled kernel gives back."""
    return jnp.log(v) if kernel.form == "plain" else v


def number(kernel: Kernel, v: Array) -> Array:
    """Masses that a settled kernel gives back, as numbers."""
    return v if kernel.form == "plain" else jnp.exp(v)


def ratio(kernel: Kernel, v: Array, u: Array) -> Array:
    """Of masses as a settled kernel takes them."""
    return v / u if kernel.form == "plain" else v - u
