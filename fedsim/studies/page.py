"""What a study says: its answer for a terminal or a notebook, and its page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from fedsim.common import report_directory
from fedsim.reports.document import first_screen, terminal
from fedsim.reports.document.blocks import (
    Bars,
    Block,
    Check,
    Document,
    FirstScreen,
    Heading,
    Label,
    Listing,
    Prose,
    Table,
    Words,
)
from fedsim.reports.document.html import render
from fedsim.reports.document.wording import plain


@dataclass(frozen=True, kw_only=True)
class StudyPage:
    """The words, tables and figures of a study.

    Attributes:
        kind: of the study, in words.
        name: of the experiment.
        data: name of the data, for the sign-off.
        answer: sentences; the first answers the reader's question.
        table: of the first screen, the terminal and notebooks.
        label: what the numbers are, and what they are not.
        limits: of the study, for the sign-off.
        also: blocks below the table, in all forms.
        sections: further blocks of the page alone.
        settings: values that the page lists, by name.
    """

    kind: str
    name: str
    data: str
    answer: Sequence[str]
    table: Table
    label: str
    limits: str
    alarming: bool = False
    figure: Bars | None = None
    checks: Sequence[Check] = ()
    steps: Sequence[Words] = ()
    also: Sequence[Block] = ()
    sections: Sequence[Block] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def blocks(self) -> list[Block]:
        """The answer in short."""
        return [*map(Prose, self.answer), self.table, *self.also, Prose(self.label)]

    @property
    def terminal(self) -> RenderableType:
        """The answer in short, as a terminal of 80 columns shows it."""
        return terminal.shown(
            *(
                terminal.table(block, dense=True) if isinstance(block, Table) else block
                for block in self.blocks
            )
        )

    @property
    def html(self) -> str:
        """The page, which needs no other file, script or network."""
        first = FirstScreen(
            answer=self.answer,
            alarming=self.alarming,
            figure=self.figure,
            table=self.table,
            checks=self.checks,
            steps=self.steps,
            sign_off=first_screen.sign_off(
                data=self.data, date=first_screen.today(), limits=self.limits
            ),
        )
        settings = [(key.replace("_", " "), plain(value)) for key, value in self.settings.items()]
        listed: list[Block] = [Heading("Settings"), Listing(settings, several=True)]
        label = Label("How to read this:", self.label)
        blocks = [label, *self.also, *self.sections, *(listed if settings else [])]
        return render(Document(f"{self.kind}: {self.name}", self.kind, self.name, first, blocks))

    def write(self, report: Mapping[str, Any], directory: Path) -> Path:
        """Write report.html and report.json into a directory; return the path of the page."""
        return report_directory.write_report(directory, dict(report), self.html)
