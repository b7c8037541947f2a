"""The comparison of several runs as a page, with a link to each run's report."""

import os
from collections.abc import Sequence
from pathlib import Path

from fedsim.common import report_directory
from fedsim.common.strict_json import strict_json
from fedsim.report.comparison import TAIL, Row, belief
from fedsim.report.document.blocks import Bullets, Document, Heading, Link, Prose, tabulated
from fedsim.report.document.html import render
from fedsim.report.document.wording import number, percent, span

KIND = "comparison"
"""What report.json says that it is of."""

HEADINGS = (
    *("Run", "Trust", "Vantage", "z", "ε", "δ", "ρβ (but for a tail)", "ρα", "Predicted"),
    *("Measured", "Interval", "Accuracy", "Verdict"),
)


def write(rows: Sequence[Row], directory: Path) -> Path:
    """Write report.html and report.json, and return the page.

    Args:
        rows: of `comparison.side_by_side`.
        directory: of the page; it may hold an earlier comparison.
    """
    runs = {row["number"]: row for row in rows}
    document = Document(
        title=f"Comparison of {len(runs)} runs",
        kind="Comparison",
        heading=f"{len(runs)} runs side by side",
        verdict=(),
        blocks=[
            Heading("To whom the person is identifiable"),
            tabulated(HEADINGS, map(_cells, rows)),
            Prose(f"{TAIL}."),
            Heading("The runs"),
            Bullets([Link(row["run"], _link(row, directory)) for row in runs.values()], True),
        ],
    )
    written = strict_json({"kind": KIND, "runs": list(rows)})
    return report_directory.write_report(directory, written, render(document))


def _link(row: Row, directory: Path) -> str:
    """Return where the report of a row's run lies, as seen from the page."""
    report = Path(row["directory"]).absolute() / "report.html"
    return Path(os.path.relpath(report, directory.absolute())).as_posix()


def _cells(row: Row) -> list[str]:
    collude = f", {row['colluding']} collude" if row["colluding"] else ""
    between = row["interval"]
    interval = f"{span(between, '{:.2f}'.format)} at {percent(row['confidence'])}"
    return [
        f"{row['number']}",
        f"{row['trust']}{collude}",
        str(row["vantage"]),
        *(number(row[key]) for key in ("noise_multiplier", "epsilon")),
        f"{row['delta']:g}",
        " ".join(belief(row)),
        *(number(row[key]) for key in ("rho_alpha", "predicted", "measured")),
        interval if between else "–",
        percent(row["accuracy"]),
        row["verdict"],
    ]
