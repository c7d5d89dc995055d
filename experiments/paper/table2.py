"""Table 2: procedures recommended from diseases.

python -m experiments.paper.table2 --corpus=nhds --path=FILE --out=DIR
"""

from experiments.paper import differences, published, run, units
from experiments.paper.section import Section, Sheet, cell

NAME = "table2"
COLUMNS = {
    f"rec/{score}@{n}": f"{text}@{n}"
    for n in (1, 3, 5)
    for score, text in (("p", "P"), ("r", "R"), ("f1", "F1"))
}
F1 = {name: text for name, text in COLUMNS.items() if "f1" in name}


def sheet(results) -> Sheet:
    """Ours beside the paper's; the best of each column among embeddings in bold."""
    listed = [row for rows in published.TABLE2.values() for row in rows]
    mean = lambda row, c: results.interval(row, c).mean
    best = {c: max(mean(row, c) for _, _, row, _ in listed) for c in COLUMNS}
    rows = []
    for block, members in published.TABLE2.items():
        rows.append([block])
        for name, how, row, paper in members:
            printed = dict(zip(published.RECOMMENDED, paper, strict=False))
            line = [f"{name}, {how}" if how else name]
            for c in COLUMNS:
                found = results.interval(row, c)
                half = found.half if found.n > 1 and found.sd > 1e-9 else None
                strong = found.mean == best[c]
                line.append(cell(found.mean, half, paper=printed.get(c), best=strong))
            rows.append(line)
    title = "Table 2: precision, recall and F1 of recommended procedures, %"
    return Sheet(NAME, title, ["method", *COLUMNS.values()], rows)


def make(current: run.Run) -> Section:
    trials, splits = units.results(current)
    table = sheet(trials)
    table.notes = [
        f"Mean ± 90 % interval over {trials.num_trials} trials; the paper's number in "
        "brackets; the best of each column in bold.",
        published.reason(current.spec.corpus),
    ]
    listed = [row for rows in published.TABLE2.values() for _, _, row, _ in rows]
    mine = [row for row in listed if row.startswith("DWL")]
    ours = lambda row: row.startswith("DWL")
    near = [row for row in listed if row.endswith("distance") and not ours(row)]
    paired = differences.sheet("table2_paired", splits, F1, mine, near)
    paired.title = "Paired differences to the best other embedding"
    every = [row for row in listed if not ours(row)]
    control = differences.sheet("table2_controls", splits, F1, mine, every)
    control.title = "Paired differences to the best of all, controls included"
    name = differences.figure(current, paired, "table2_paired")
    caption = (
        "F1 of DWL minus the best other embedding, 90 % intervals over random splits. "
        "Filled where 0 is outside."
    )
    return Section(
        NAME,
        "Table 2 — recommending procedures",
        "Which procedures belong to a patient's diseases? Procedures are ranked by "
        "their mean distance to the diseases, or by the model's own reconstruction. "
        "This task tells embeddings apart; naive Bayes, which needs none, is the bar.",
        sheets=[table, paired, control],
        figures=[(name, caption)],
        findings=[
            differences.finding(sheet, row, "Recommendation")
            for sheet, row in (
                (paired, "DWL fine-tuned, distance"),
                (control, "DWL fine-tuned, reconstruction"),
            )
        ],
    )


if __name__ == "__main__":
    run.main(make)
