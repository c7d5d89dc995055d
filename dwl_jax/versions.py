"""What a result was made with."""

import importlib.metadata
import platform

_PACKAGES = ("dwl-jax", "jax", "jaxlib", "optax", "ott-jax", "numpy", "scipy")


def versions() -> dict[str, str]:
    """Versions of Python, this package and those it rests on."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
