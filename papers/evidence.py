"""The page Evidence: sentences and tables whose every number is a file of `papers/results/`.

A result names its question, its command and the place of its number in what the command makes. A
full-size run with `--record` replaces value, commit and date; nothing else writes them.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from adversaries.statistics.intervals import clopper_pearson
from papers.findings import CONFIDENCE, MadeItem

PAPERS = Path(__file__).parent
RESULTS, TEMPLATE = PAPERS / "results", PAPERS / "evidence.md"
PAGE = PAPERS.parent / "docs" / "evidence.md"

NAMED = re.compile(r"\{(row |tree )?([\w-]+)\}")
"""A result in the template: its value, a whole row of a table, or the tree that was measured."""

HEADINGS = "| what was measured | value (95 %) | command and source | tree |\n|---|---|---|---|"


class Result(BaseModel):
    """One number, and how it was measured.

    Attributes:
        place: where the number stands: name of an item's number; or of a study's table how its
            title begins, cells of its row and its column (a title alone holds a count, such as "16
            of 16"); () if copied by hand.
        interval: of 95 %, over random draws; None without randomness.
        unit: what follows the value, such as " %".
        published: the source's own value; None if it has none.
        source: path of the code that measures.
        recorded: whether the value was copied from a page of the documentation.
        seconds: duration of the command; None if it was not noted.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    question: str
    place: tuple[str, ...] = ()
    value: float
    interval: tuple[float, float] | None = None
    unit: str = ""
    published: float | None = None
    command: str
    source: str
    commit: str
    date: date
    seconds: float | None = None
    recorded: bool

    def shown(self) -> str:
        """Return the value with its interval and the published one, as text."""
        ends = "" if self.interval is None else " ({} to {})".format(*map(_end, self.interval))
        theirs = "" if self.published is None else f", published {_number(self.published)}"
        return f"{_number(self.value)}{ends}{self.unit}{theirs}"

    def tree(self) -> str:
        """Return the commit that was measured, and whether it is older than the page."""
        return f"{'older: ' * self.recorded}{self.commit}, {self.date}"

    def row(self) -> str:
        """Return a row of the page's tables."""
        command = f"[`{self.command}`](../{self.source})"
        return f"| {self.question} | {self.shown()} | {command} | {self.tree()} |"


def _number(value: float) -> str:
    """Return four digits, or more where they hide that a number is not whole."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    short = f"{value:.4g}"
    return f"{value:.6g}" if float(short).is_integer() else short


def _end(value: float) -> str:
    return f"{value:.3g}"


def read() -> dict[str, Result]:
    """Return every result by its name."""
    paths = sorted(RESULTS.glob("*.json"))
    return {path.stem: Result.model_validate_json(path.read_bytes()) for path in paths}


def page(results: Mapping[str, Result]) -> str:
    """Return the page as Markdown. Raises KeyError for a number without a file."""

    def told(found: re.Match[str]) -> str:
        result = results[found[2]]
        if found[1] is None:
            return result.shown() + "†" * result.recorded
        return result.row() if found[1] == "row " else result.tree()

    template = TEMPLATE.read_text(encoding="utf-8")
    return NAMED.sub(told, template.replace("{headings}", HEADINGS))


def record_tables(study: str, tables: Sequence[Any], measured: Mapping[str, Any]) -> None:
    """Write the results of a study from its tables, and the page.

    measured: commit, date and seconds.
    """
    for name, result in read().items():
        if result.place and result.command.split()[:3] == ["python", "papers", study]:
            _write(name, result, parsed(_cell(tables, *result.place)), measured)
    PAGE.write_text(page(read()), encoding="utf-8")


def record_item(item: MadeItem, measured: Mapping[str, Any]) -> None:
    """Write the results of an item, and the page."""
    numbers = {one.name: one for one in item.finding.numbers}
    for name, result in read().items():
        if result.place and f"{item.source}/{item.name}" in result.command.split():
            found = numbers[result.place[0]]
            _write(name, result, (found.ours, found.interval), measured)
    PAGE.write_text(page(read()), encoding="utf-8")


Found = tuple[float, tuple[float, float] | None]


def _write(name: str, result: Result, found: Found, measured: Mapping[str, Any]) -> None:
    fresh = {"value": found[0], "interval": found[1], "recorded": False, **measured}
    made = Result.model_validate(result.model_dump() | fresh)
    (RESULTS / f"{name}.json").write_text(made.model_dump_json(indent=1) + "\n", encoding="utf-8")


def _cell(tables: Sequence[Any], title: str, *place: str) -> str:
    table = next(each for each in tables if each.title.startswith(title))
    if not place:
        return str(table.title)
    *row, column = place
    values = next(each for each in table.rows if {*row} <= {*map(str, each)})
    return str(values[table.columns.index(column)])


def parsed(text: str) -> Found:
    """Return the number of a cell, and its interval.

    A count "k of n" becomes a percentage with Clopper and Pearson's interval. Intervals are read
    from "1.2 (1 to 1.4)", "1.2 (1–1.4)" and "1.2 ± 0.2".
    """
    if counted := re.search(r"([\d,]+) of ([\d,]+)", text):
        hits, draws = (int(each.replace(",", "")) for each in counted.groups())
        ends = clopper_pearson(hits, draws, CONFIDENCE).ends
        return 100 * hits / draws, (100 * ends[0], 100 * ends[1])
    values = [float(each) for each in re.findall(r"(?<![\d.])-?\d+(?:\.\d+)?", text)]
    if "±" in text:
        return values[0], (values[0] - values[1], values[0] + values[1])
    return values[0], (values[1], values[2]) if len(values) > 2 else None
