"""All speed claims in one run: only ratios of one run mean anything.

python -m experiments.bench [--parts=gradient --parts=epoch] [--quick] [--out=DIR]

Writes bench.json and bench.md. Times are the best of several turns that all rows of a
part take one after the other, after compilation, with block_until_ready.
"""

from absl import flags

from experiments import bench_report, cli
from experiments.bench_timing import QUICK, Size

_PARTS = flags.DEFINE_multi_enum(
    "parts", list(bench_report.PARTS), bench_report.PARTS, "What to measure."
)
_QUICK = flags.DEFINE_bool("quick", False, "Small sizes, two turns: does it run?")
_OUT = flags.DEFINE_string("out", "runs/bench", "Directory for bench.json and .md.")
_SIZES = {
    name: flags.DEFINE_integer(name, None, f"Instead of {default}.", lower_bound=low)
    for name, default, low in (
        ("num_topics", Size().num_topics, 1),
        ("batch_size", Size().batch_size, 1),
        ("num_iters", Size().num_iters, 1),
        ("dim", Size().dim, 1),
        ("num_docs", Size().num_docs, 1),
        ("num_queries", Size().num_queries, 1),
        ("rounds", Size().rounds, 1),
        ("seed", Size().seed, 0),
    )
}


def main(argv) -> None:
    del argv
    changes = {k: f.value for k, f in _SIZES.items() if f.value is not None}
    size = (QUICK if _QUICK.value else Size())._replace(**changes)
    cli.setup_jax()
    parts = _PARTS.value
    print(bench_report.run(size, parts, _OUT.value, quick=_QUICK.value))


if __name__ == "__main__":
    cli.run(main)
