"""Every table and figure of the paper, and a page to read them on.

    python -m experiments.reproduce                                  # embedded corpus
    python -m experiments.reproduce --corpus=nhds --path=FILE [--twitter=FILE]
    python -m experiments.reproduce --scale=0.2 --trials=3 --splits=2 --parts=graph,tau

The run directory gets tables/ (CSV, Markdown), figures/ (PNG, SVG), models/, and
report.html, one page that needs no network. The same command goes on where it stopped
and computes nothing twice; --parts chooses parts, the page shows all that are there.
"""

import time

from absl import flags

from experiments import cli, rundir
from experiments.paper import (
    graph,
    report,
    section,
    table1,
    table2,
    table3,
    tau,
    transport,
    twitter,
)
from experiments.paper import run as run_lib

PARTS = {
    part.NAME: part for part in (table1, table2, table3, transport, graph, tau, twitter)
}


def reproduce(run: run_lib.Run, parts: list[str]) -> str:
    """Makes the parts that are not there yet, then the page; gives its path."""
    made_for = {"trials": run.trials, "splits": run.splits}
    for place, name in enumerate(parts):
        wanted = getattr(PARTS[name], "DEPENDS", lambda run: made_for)(run)
        found = section.load(run, name)
        if found is not None and found.made_for == wanted:
            run_lib.say(f"{name}: is there already")
            continue
        run_lib.say(f"{name}: part {place + 1} of {len(parts)}")
        start = time.monotonic()
        found = PARTS[name].make(run)
        found.made_for = wanted
        found.save(run)
        run_lib.say(f"{name}: took {time.monotonic() - start:.0f} s")
    return report.write(run, list(PARTS))


def main(argv):
    del argv
    parts = flags.FLAGS.parts
    unknown = sorted(set(parts) - set(PARTS))
    if unknown or not parts:
        raise ValueError(f"--parts={','.join(parts)}: choose among {', '.join(PARTS)}.")
    run = run_lib.open_run()

    def work():
        path = reproduce(run, [name for name in PARTS if name in parts])
        rundir.finish(run.out)
        print(f"\nThe report: {path}")
        return 0

    return run_lib.stoppable(work)


def define_flags():
    flags.DEFINE_list("parts", list(PARTS), "Which, apart by commas; all if not given.")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
