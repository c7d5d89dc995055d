"""What the scripts share: errors without tracebacks, devices by flag, quiet logs.

Exit codes: 0 done, 1 a wrong flag or bad input, 3 a number that is not finite, 128 + n
stopped by signal n with a checkpoint.
"""

import ast
import logging as std_logging
import os
import sys

import jax
from absl import app, flags, logging

from dwl_jax import checkpoint, checks, parallel, removed

NON_FINITE = 3
EXPECTED = (ValueError, OSError, ImportError, checkpoint.CheckpointError)

_DEVICE = flags.DEFINE_enum(
    "device", "auto", ["auto", "cpu", "gpu", "tpu"], "Where to compute."
)
_X64 = flags.DEFINE_bool("x64", False, "Compute in 64 bit.")
_DEBUG = flags.DEFINE_bool("debug", False, "Show tracebacks of expected errors.")


class QuietLibraries(std_logging.Filter):
    """Keeps the progress of orbax and its kin out of our log, not their warnings."""

    def filter(self, record):
        ours = {"dwl_jax", "experiments"} & set(record.pathname.split(os.sep))
        return bool(ours) or record.levelno >= std_logging.WARNING


def guarded(main):
    """A main that turns expected errors into one line on stderr and an exit code."""

    def call(argv):
        if len(argv) > 1:
            raise app.UsageError(f"unexpected argument: {argv[1]}")
        try:
            return main(argv)
        except checks.NonFiniteError as error:
            code, message = NON_FINITE, str(error)
        except EXPECTED as error:
            if _DEBUG.value:
                raise
            code, message = 1, str(error) or repr(error)
        print(f"error: {message}", file=sys.stderr)
        return code

    return call


def run(main) -> None:
    """Runs a script: main(argv) with absl flags, jax flags and tidy errors."""
    logging.set_verbosity(logging.INFO)
    logging.set_stderrthreshold("info")
    logging.get_absl_handler().addFilter(QuietLibraries())
    jax.config.config_with_absl()
    if told := removed_flag(sys.argv[1:]):
        sys.exit(f"error: {told}")
    app.run(guarded(main))


def removed_flag(arguments) -> str | None:
    """What became of a flag of `Config` that is gone, if one is among the arguments."""
    for argument in arguments:
        if argument.startswith("-"):
            name, _, value = argument.lstrip("-").partition("=")
            for known in (name, name.removeprefix("no")):
                mine = known in removed.FIELDS and known in flags.FLAGS
                if not mine and (told := removed.sentence(known, value)):
                    return told
    return None


def setup_jax(num_devices: int | None = None) -> None:
    """Applies --device and --x64; before anything else uses jax."""
    if _X64.value:
        jax.config.update("jax_enable_x64", True)
    if _DEVICE.value == "cpu":  # the others come first by themselves, if there
        jax.config.update("jax_platforms", "cpu")
        if num_devices and "XLA_FLAGS" not in os.environ:
            jax.config.update("jax_num_cpu_devices", num_devices)
    found = jax.devices()[0].platform
    if _DEVICE.value not in ("auto", found):
        raise ValueError(f"--device={_DEVICE.value}: jax finds {found} alone.")


def mesh(num_devices: int | None):
    """The mesh for --num_devices; None for one device of one process."""
    available = jax.devices()
    if jax.process_count() > 1:
        if num_devices not in (None, len(available)):
            raise ValueError(
                f"--num_devices={num_devices}: {jax.process_count()} processes "
                f"use all their {len(available)} devices."
            )
        return parallel.make_mesh()
    if num_devices in (None, 1):
        return None
    if not 1 <= num_devices <= len(available):
        raise ValueError(
            f"--num_devices={num_devices}: there are {len(available)} "
            f"({available[0].platform}); --device=cpu makes as many as asked for."
        )
    return parallel.make_mesh(available[:num_devices])


def settings(changes: list[str]) -> dict:
    """["tau=1", "loss=squared"] as settings of a preset."""
    out = {}
    for change in changes:
        name, equals, value = change.partition("=")
        if not equals:
            raise ValueError(f"--change={change}: must be name=value.")
        try:
            out[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            out[name] = value  # a word, such as a loss
    return out
