"""Settings of every test: float64 on, silent broadcasting between ranks an error."""

import jax
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def allow_rank_promotion():
    """OTT broadcasts between ranks."""
    with jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(autouse=True, scope="module")
def forget_what_was_compiled():
    """A thousand tests compile more than a process may map."""
    yield
    jax.clear_caches()
