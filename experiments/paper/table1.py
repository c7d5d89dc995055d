"""Table 1: admissions classified by their nearest neighbours.

    python -m experiments.paper.table1 --corpus=nhds --path=FILE --out=DIR

Every row of the paper, with controls; trials on training subsets as in the paper, and
paired differences over random splits.
"""

from experiments import evaluate
from experiments.paper import differences, published, run, units
from experiments.paper.section import Section, Sheet, cell

NAME = "table1"
COLUMNS = {
    "mortality/1nn": "mortality 1-NN",
    "mortality/5nn": "mortality 5-NN",
    "type/1nn": "admission type 1-NN",
    "type/5nn": "admission type 5-NN",
}


def sheet(results) -> Sheet:
    """Ours beside the paper's; the best of each block in bold."""
    columns = {c: t for c, t in COLUMNS.items() if c in results.values["TF-IDF"]}
    rows = []
    for block, listed in published.TABLE1.items():
        rows.append([block])
        mean = lambda row, c: results.interval(row, c).mean
        best = {c: max(mean(r.row, c) for r in listed) for c in columns}
        for r in listed:
            line = [r.word, r.document, r.metric]
            printed = dict(zip(published.ACCURACY, r.paper, strict=False))
            for c in columns:
                found = results.interval(r.row, c)
                half = found.half if found.n > 1 and found.sd > 1e-9 else None
                strong = found.mean == best[c] and "Controls" not in block
                more = {"paper": printed.get(c), "best": strong}
                line.append(cell(found.mean, half, **more))
            rows.append(line)
    head = ["word feature", "document feature", "metric", *columns.values()]
    return Sheet(NAME, "Table 1: accuracy of k-NN classification, %", head, rows)


def _control_text(results) -> str:
    """How far the best row is above random embeddings, in words."""
    gaps = []
    for c in [c for c in COLUMNS if c in results.values["TF-IDF"]]:
        listed = [r.row for rows in published.TABLE1.values() for r in rows]
        best = differences.best_row(results, c, listed)
        control = differences.best_row(
            results, c, [r for r in listed if r.startswith("random")]
        )
        gap = results.interval(best, c).mean - results.interval(control, c).mean
        gaps.append(gap)
    return (
        f"The best row is {min(gaps):.1f} to {max(gaps):.1f} points above random "
        "embeddings, which are among the controls: small gaps mean that the task says "
        "little about embeddings."
    )


def make(current: run.Run) -> Section:
    trials, splits = units.results(current)
    table = sheet(trials)
    table.notes = [
        f"Mean ± 90 % interval over {trials.num_trials} trials (random 80 % of the "
        "training part, one test part); the paper's number in brackets; the best of "
        "each block in bold.",
        evaluate.sample_note(current.problem, trials),
        published.reason(current.spec.corpus),
    ]
    listed = [r.row for rows in published.TABLE1.values() for r in rows]
    mine = [row for row in listed if row.startswith("DWL")]
    others = [row for row in listed if not row.startswith("DWL")]
    paired = differences.sheet("table1_paired", splits, COLUMNS, mine, others)
    name = differences.figure(current, paired, "table1_paired")
    caption = "DWL minus the best of all other rows, 90 % intervals over random splits."
    return Section(
        NAME,
        "Table 1 — telling admissions apart",
        "Can the nearest admissions tell whether a patient died, and how the admission "
        f"came about? {_control_text(trials)}",
        sheets=[table, paired],
        figures=[(name, caption + " Filled where 0 is outside.")],
        findings=[
            differences.finding(paired, "DWL fine-tuned, Wasserstein", "Classification")
        ],
    )


if __name__ == "__main__":
    run.main(make)
