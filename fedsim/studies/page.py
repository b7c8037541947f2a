"""What a study says: its answer for a terminal or a notebook, and its page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import RenderableType

import fedsim
from fedsim.common import report_directory
from fedsim.configuration.objects import Experiment
from fedsim.reports.document import first_screen, terminal
from fedsim.reports.document.blocks import (
    Bars,
    Block,
    Document,
    Figure,
    FirstScreen,
    Heading,
    Label,
    Line,
    Listing,
    Prose,
    Table,
    Words,
)
from fedsim.reports.document.html import render
from fedsim.reports.document.wording import plain

UNLISTED = ("kind", "label", "name", "question")
"""Keys of a document that are no settings."""


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
        release: whether anything may be released, ahead of the page's answer; "" where nothing is.
        also: blocks below the table, in all forms.
        sections: further blocks of the page alone.
        document: report.json; the page lists its numbers and short texts as settings.
    """

    kind: str
    name: str
    data: str
    answer: Sequence[str]
    table: Table
    label: str
    limits: str
    document: Mapping[str, Any]
    release: str = ""
    alarming: bool = False
    figure: Bars | None = None
    steps: Sequence[Words] = ()
    also: Sequence[Block] = ()
    sections: Sequence[Block] = ()

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
            release=self.release,
            answer=self.answer,
            alarming=self.alarming,
            figure=self.figure,
            table=self.table,
            steps=self.steps,
            sign_off=first_screen.sign_off(
                data=self.data, date=first_screen.today(), limits=self.limits
            ),
        )
        settings = [
            (key.replace("_", " "), plain(value))
            for key, value in self.document.items()
            if key not in UNLISTED and not isinstance(value, dict | list)
        ]
        label = Label("How to read this:", self.label)
        listed = Listing(settings, several=True)
        blocks = [label, *self.also, *self.sections, Heading("Settings"), listed]
        return render(Document(f"{self.kind}: {self.name}", self.kind, self.name, first, blocks))

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the study's `commands.answer.Answer`."""
        return {
            "report": self.document,
            "table": [
                dict(zip(self.table.headings, _texts(line), strict=True))
                for group in self.table.groups
                for line in group.lines
            ],
            "_blocks": lambda: self.blocks,
            "_terminal": lambda: self.terminal,
            "_figures": lambda: {
                block.name: block.drawing.figure
                for block in self.sections
                if isinstance(block, Figure)
            },
            "_write": self.write,
        }

    def write(self, directory: Path) -> Path:
        """Write report.html and report.json into a directory; return the path of the page."""
        return report_directory.write_report(directory, dict(self.document), self.html)


def _texts(line: Line) -> list[Words]:
    return [line.name.text, *(cell.text for cell in line.cells)]


def settings(experiment: Experiment) -> dict[str, Any]:
    """Return what every study states of its experiment, for report.json."""
    scheme = experiment.game.scheme
    return {
        "name": experiment.run.name,
        "data": experiment.data.name,
        "records": experiment.data.records,
        "model": experiment.game.model.name,
        "neighbouring": scheme.privacy.neighbouring.value,
        "rounds": scheme.training.rounds,
        "sampling_rate": scheme.participation.rate,
        "clipping": scheme.training.clipping,
        "clipping_norm": scheme.training.clipping_norm,
        "trust": scheme.federation.trust.value,
        "clients": scheme.federation.clients,
        "seed": experiment.run.seed,
        "versions": {"fedsim": fedsim.__version__},
    }
