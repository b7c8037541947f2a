"""The answer that every command and function returns."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adversaries.errors import InputError

if TYPE_CHECKING:  # slow to import
    from matplotlib.figure import Figure
    from rich.console import RenderableType

    from fedsim.audits.judgement.claim import Verdict
    from fedsim.audits.judgement.report import AuditReport
    from fedsim.audits.results.rows import Row
    from fedsim.reports.document.blocks import Block, Told

PAGE = '<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8"><title>fedsim</title>{}</html>\n'
"""The page of an answer that has none of its own."""

CONTRADICTED = 4
"""Exit status where a measurement contradicts theory, or a claim is not supported."""


class Rows(Mapping[str, "Row"]):
    """The observers by name, also as attributes: `rows.participant`, `rows.released_model`."""

    def __init__(self, rows: Mapping[str, "Row"] | None = None) -> None:
        self._rows = dict(rows or {})

    def __getitem__(self, name: str) -> "Row":
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getattr__(self, name: str) -> "Row":
        if not name.startswith("_") and (row := self._rows.get(name.replace("_", "-"))):
            return row
        names = ", ".join(each.replace("-", "_") for each in self._rows)
        raise AttributeError(f"there is no observer '{name}'; the observers are: {names or 'none'}")

    def __repr__(self) -> str:
        return f"Rows({', '.join(self._rows)})"

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(name.replace("-", "_") for name in self._rows)]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Answer:
    """The answer to a question.

    Attributes:
        report: content of report.json, and of the command's --json.
        rows: what each observer learns; without rows where the question has no observers.
        table: the table of the answer, a mapping from column to value for each line.
        verdict: on a claim; None where the question has no verdict.
        status: exit status of the command: 0, 1 nothing was found, 3 cannot tell, 4 contradicted.
        path: directory of the result; None until it is saved.
        page: path of the page; None until it is written.
        place: directory in which the command saves it; None where it is saved or has no page.
        warnings: what a reader should know before the answer.
        replaces: whether it may be saved where an earlier one stands.
        details: all other results, of the type that the command's documentation names.
    """

    report: Mapping[str, Any]
    rows: Rows = field(default_factory=Rows)
    table: Sequence[Mapping[str, Any]] = ()
    verdict: "Verdict | None" = None
    status: int = 0
    path: Path | None = None
    page: Path | None = None
    place: Path | None = None
    warnings: Sequence[str] = ()
    replaces: bool = False
    details: Any = None
    _told: "Callable[[], Told] | None" = None
    _blocks: "Callable[[], Sequence[Block]] | None" = None
    _terminal: "Callable[[], RenderableType] | None" = None
    _write: Callable[[Path], Path] | None = None

    @cached_property
    def told(self) -> "Told | None":
        """What the answer says; None where it is a list or a line."""
        return None if self._told is None else self._told()

    def figures(self) -> "dict[str, Figure]":
        """Return the figures by name, the same objects at each call."""
        from fedsim.reports.document.blocks import figures_in  # noqa: PLC0415

        found = figures_in(self._sections)
        return {name: figure.drawing.figure for name, figure in found.items()}

    @cached_property
    def _sections(self) -> "Sequence[Block]":
        return [] if self.told is None else self.told.sections()

    def plot(self, name: str | None = None) -> "Figure":
        """Return one figure.

        Args:
            name: a key of `figures()`; None for the first.

        Raises:
            InputError: the answer has no such figure.
        """
        figures = self.figures()
        if name is None and figures:
            return next(iter(figures.values()))
        if name is None or name not in figures:
            of_name = "" if name is None else f" '{name}'"
            names = ", ".join(figures) or "none"
            raise InputError(f"this answer has no figure{of_name}; its figures are {names}")
        return figures[name]

    def frame(self) -> Any:
        """Return the table as a pandas data frame.

        Raises:
            InputError: pandas is not installed.
        """
        try:
            import pandas as pd  # type: ignore[import-untyped]  # noqa: PLC0415
        except ImportError:
            raise InputError("frame() needs pandas; install it with: pip install pandas") from None
        return pd.DataFrame([dict(row) for row in self.table])

    def save(self, out: Path | str) -> "Answer":
        """Write report.json and the page into a new directory; return the answer with its path.

        Raises:
            InputError: the directory holds a run or a report, or cannot be written.
        """
        from fedsim.common import report_directory  # noqa: PLC0415

        directory = Path(out)
        own = str(self.report.get("kind", "")) if self.replaces else None
        report_directory.check_new(directory, replacing=own)
        page = (self._write or self._written)(directory)
        return replace(self, path=directory, page=page, place=None)

    def _written(self, directory: Path) -> Path:
        """Write report.json and the page; return the page."""
        from fedsim.common import report_directory  # noqa: PLC0415
        from fedsim.common.strict_json import report_json  # noqa: PLC0415
        from fedsim.reports.document import html  # noqa: PLC0415

        told = self.told
        page = PAGE.format(html.fragment(self.blocks)) if told is None else html.page(told)
        return report_directory.write_report(directory, report_json(self.report), page)

    @property
    def blocks(self) -> "Sequence[Block]":
        """The answer in words and tables."""
        from fedsim.reports.document import blocks, first_screen, wording  # noqa: PLC0415

        if self.told is not None:
            return first_screen.in_short(self.told)
        if self._blocks is not None or not self.table:
            return [] if self._blocks is None else self._blocks()
        rows = [[wording.plain(value) for value in row.values()] for row in self.table]
        return [blocks.tabulated(list(self.table[0]), rows)]

    def terminal(
        self, command: str = "", seconds: float | None = None, *, verbose: bool = False
    ) -> "RenderableType":
        """Return the answer as the command prints it.

        Args:
            command: command that was typed; "" in Python.
            seconds: time that it took; None if unknown.
            verbose: whether all that a screen has no room for follows.
        """
        from fedsim.reports.document import terminal  # noqa: PLC0415

        if self.told is not None:
            return terminal.told(self.told, command, seconds, verbose=verbose)
        return terminal.shown(*self.blocks) if self._terminal is None else self._terminal()

    def __repr__(self) -> str:
        from fedsim.reports.document import terminal  # noqa: PLC0415

        page = "" if self.page is None else f"\nReport: {self.page}"
        return terminal.text([self.terminal()]) + page

    def _repr_html_(self) -> str:
        from fedsim.reports.document import html  # noqa: PLC0415

        return html.fragment(self.blocks)


def lines(*texts: str) -> "Callable[[], RenderableType]":
    """Return a function that gives lines for a terminal which no width breaks, as of paths."""

    def unbroken() -> "RenderableType":
        from rich.console import Group  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        return Group(*(Text(text, no_wrap=True, overflow="ignore") for text in texts))

    return unbroken


def observed(rows: Mapping[str, "Row"]) -> list[dict[str, Any]]:
    """Return the table of observers: what each achieved, and what it is allowed."""
    return [
        {
            "observer": name,
            "advantage": row.advantage,
            "low": row.interval and row.interval[0],
            "high": row.interval and row.interval[1],
            "rho_alpha": row.rho_alpha,
            "rho_beta": row.rho_beta,
            "epsilon": row.epsilon,
            "standing": row.standing,
        }
        for name, row in rows.items()
    ]


def fields_of_audit(outcome: "AuditReport[Any]", strict: bool = False) -> dict[str, Any]:
    """Return the fields of an answer that follow from an audit.

    Args:
        outcome: report of the audit.
        strict: whether an audit without a claim ends with exit status 3.
    """
    from fedsim.audits.judgement.claim import exit_status  # noqa: PLC0415

    return {
        "report": outcome.report,
        "rows": Rows(outcome.rows),
        "table": observed(outcome.rows),
        "verdict": outcome.verdict,
        "status": exit_status(outcome.verdict, strict, outcome.alarms),
        "details": outcome,
    }


def of_audit(outcome: "AuditReport[Any]", strict: bool, **own: Any) -> Answer:
    """Return the answer of an audit.

    Args:
        outcome: report of the audit.
        strict: whether an audit without a claim ends with exit status 3.
        own: other fields of the answer.
    """
    from fedsim.reports.kinds import audited  # noqa: PLC0415

    fields = fields_of_audit(outcome, strict)
    return Answer(**fields | {"_told": lambda: audited.told(outcome)} | own)


def of_study(told: "Told", **own: Any) -> Answer:
    """Return the answer of a study; its table is that of what it says.

    Args:
        told: what the study says.
        own: other fields of the answer.
    """
    rows = told.table.rows if told.table else ()
    headings = told.table.headings if told.table else ()
    table = [dict(zip(headings, each, strict=True)) for each in rows]
    return Answer(**{"report": told.report, "table": table, "_told": lambda: told, **own})
