"""`make demo`: the whole reproduction at small scale, on the embedded admissions.

python -m experiments.demo [any flag of experiments.reproduce]
"""

from absl import flags

from experiments import cli, reproduce

SMALL = {"scale": 0.1, "trials": 2, "splits": 2, "infer_steps": 20, "out": "runs/demo"}


def main(argv):
    print(
        "A tenth of 11,086 synthetic admissions, 2 trials and 2 splits: numbers are "
        "rough. python -m experiments.reproduce makes the real ones.",
        flush=True,
    )
    return reproduce.main(argv)


if __name__ == "__main__":
    reproduce.define_flags()
    for name, value in SMALL.items():
        flags.FLAGS.set_default(name, value)
    cli.run(main)
