"""Scripts as users run them: real processes, with a shared compilation cache."""

import os
import pathlib
import subprocess
import sys
import time

import conftest
import numpy as np

ROOT = pathlib.Path(__file__).parent.parent


def environment(**more):
    """No x64, no odd flags from outside, compiled code shared with all other tests."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_"))}
    env |= {
        "JAX_COMPILATION_CACHE_DIR": os.environ[conftest.CACHE],
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "PYTHONWARNINGS": "ignore",
    }
    return env | more


def start(script, *args, **more):
    """A script as a process, with pipes."""
    return subprocess.Popen(
        [sys.executable, "-m", f"experiments.{script}", *map(str, args)],
        cwd=ROOT,
        env=environment(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process, timeout=240):
    """Exit code, stdout and stderr."""
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err


def run(script, *args, stdin=None):
    """A script to its end; it must succeed. Gives stdout."""
    done = subprocess.run(
        [sys.executable, "-m", f"experiments.{script}", *map(str, args)],
        cwd=ROOT,
        env=environment(),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def python(code, *args, **more):
    """A piece of code in a fresh process; it must succeed. Gives stdout."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, args)],
        cwd=ROOT,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def wait_for(condition, process, timeout=120):
    """Waits until a condition holds; False if the process ended before."""
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        if condition():
            return True
        if process.poll() is not None:
            return False
        time.sleep(0.02)
    raise TimeoutError("waited for too long")


def arrays(run_dir):
    """Topics and embeddings of a run's model."""
    with np.load(pathlib.Path(run_dir) / "model" / "arrays.npz") as found:
        return {name: found[name] for name in found}
