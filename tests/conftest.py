"""Settings of every test: float64 on, silent broadcasting between ranks an error.

What one test compiles another may load: workers and the scripts that tests start share
a folder of compiled code, which is empty when the tests begin and gone when they end.
"""

import os
import tempfile

import jax
import pytest

# Files that compile a lot, or start processes: `make quick` leaves them out.
SLOW = (
    "api", "barycenter", "barycenter_edges", "barycenter_grid", "baselines",
    "bench", "blocks", "blur", "info_blur", "checkpoint", "checks", "choices", "choose",
    "data_nhds", "determinism", "embedding", "evaluate", "greenkhorn", "growth",
    "hostile", "identity", "infer", "io", "kernel", "large", "losses", "objective",
    "paper_parts", "parallel", "protocol", "readme", "renewal", "reproduce",
    "runner", "scripts", "spectral_start", "start", "stream", "study", "supports",
    "text", "train", "transport",
)  # fmt: skip
# Files of few and long tests begin, so that no worker waits for one at the end.
LONG = ("parallel", "reproduce", "scripts", "readme", "paper_parts", "determinism")
CACHE = "DWL_JAX_TEST_CACHE"  # the folder's name, for workers and for `processes`

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="Leave out slow files.")


def pytest_ignore_collect(collection_path, config):
    name = collection_path.name.removesuffix("_test.py")
    return True if config.getoption("--quick") and name in SLOW else None


def pytest_collection_modifyitems(items):
    name = lambda item: item.path.name.removesuffix("_test.py")
    items.sort(key=lambda item: name(item) not in LONG)


def pytest_configure(config):
    if CACHE not in os.environ:
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        os.environ[CACHE] = folder.name
    jax.config.update("jax_compilation_cache_dir", os.environ[CACHE])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


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
