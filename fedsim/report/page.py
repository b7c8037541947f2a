"""The report of a run as a page, for the engineer and the people who receive it."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from fedsim.audits.results.report import Report, encode
from fedsim.common import private_files
from fedsim.config import flatten
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.report.document import html, pictures
from fedsim.report.document.blocks import (
    Block,
    Cell,
    Code,
    Document,
    Figure,
    Group,
    Label,
    Line,
    Link,
    Part,
    Picture,
    Place,
    Prose,
    Table,
)
from fedsim.report.document.wording import plain
from fedsim.report.sections import (
    attacks,
    beliefs,
    first,
    lower_bounds,
    target,
    theory,
    training,
    verdict,
)
from fedsim.report.sections.answer import labels
from fedsim.report.sections.first import About
from fedsim.report.sections.section import Section, Transcript, is_alarming

SECTIONS = (
    verdict.SECTION,
    verdict.TO_WHOM,
    target.RISKS,
    beliefs.SECTION,
    verdict.LOWERING,
    training.UTILITY,
    theory.SECTION,
    attacks.ONE_RUN,
    attacks.CRAFTED,
    theory.BAYESIAN,
    training.SECTION,
    training.CONFIGURATION,
    verdict.NUMBERS,
    theory.FURTHER,
    theory.PAC,
    lower_bounds.SECTION,
    beliefs.PREDICTION,
    beliefs.PRECISION,
    beliefs.RESIDUALS,
    attacks.MEMBERSHIP,
)
"""A section is a module of `fedsim.report.sections` and a line here. Sections for specialists stand
in a folded part behind the others."""


class Pictures:
    """The figures of a run, each drawn once, when it is first needed."""

    def __init__(
        self, report: Report, transcript: Mapping[str, Any], sections: Sequence[Section] = SECTIONS
    ) -> None:
        self.sections = sections
        self._report, self._transcript = report, transcript

    @cached_property
    def drawn(self) -> Mapping[Section, Sequence[Figure]]:
        transcript = Transcript.of(self._transcript)
        return {section: section.figures(self._report, transcript) for section in self.sections}

    @property
    def figures(self) -> dict[str, Figure]:
        return {figure.name: figure for figures in self.drawn.values() for figure in figures}

    @cached_property
    def files(self) -> dict[str, str | bytes]:
        return {name: pictures.picture(figure.drawing) for name, figure in self.figures.items()}

    def embedded(self, figure: Figure) -> Picture:
        return Picture(figure.name, self.files[figure.name], figure.title, figure.caption)


def render_html(
    report: Report, drawn: Pictures, one_of_several: bool = False, about: About | None = None
) -> str:
    """Return the report as one HTML page that needs no other file, script or network."""
    note: list[str | Link] = [training.scope(report)]
    if one_of_several:
        note += [" ", Link("All runs of this sweep or search", "../report.html")]
    parts = [
        (section.specialist, Part(section.heading(report), content))
        for section in drawn.sections
        if (content := _blocks(section, report, drawn))
    ]
    blocks: list[Block] = list(labels(report))
    if report.warnings:
        alarming = is_alarming(report)
        blocks.append(Label("Warnings.", items=report.warnings, alarming=alarming))
    about = about or About()
    blocks.append(target.part(report, about.target))
    blocks += [part for specialist, part in parts if not specialist]
    if apart := [part for specialist, part in parts if specialist]:
        blocks.append(Part("For specialists", apart, folded=True, anchor="specialists"))
    values = [
        Line(Cell(Code(name)), [Cell(Code(plain(value)), style="")])
        for name, value in flatten(encode(report))
    ]
    every = Table((), [Group("", values)], "all")
    title = "Every value of report.json"
    blocks.append(Part(title, [every], folded=True, heads=False, anchor="values"))
    return html.render(
        Document(
            title=f"{report.name} – identifiability report",
            kind="Identifiability report",
            heading=report.name,
            note=note,
            first=first.first(report, about),
            blocks=blocks,
            footer=(
                f"fedsim {report.versions['fedsim']}, {report.created}. Repeat the run with ",
                Code("fedsim run config.toml"),
                " in its directory.",
            ),
        )
    )


def about(directory: RunDirectory) -> About:
    stated, facts = directory.config.run, directory.read_facts()
    return About(stated.purpose, stated.author, facts.get("data_sha256", ""), facts.get("target"))


def _blocks(section: Section, report: Report, drawn: Pictures) -> list[Block]:
    left = {figure.name: figure for figure in drawn.drawn.get(section, ())}
    blocks: list[Block] = []
    for block in section.words(report):
        if not isinstance(block, Place):
            blocks.append(block)
        elif block.figure in left:
            blocks.append(drawn.embedded(left.pop(block.figure)))
        elif block.otherwise:
            blocks.append(Prose(block.otherwise))
    return [*blocks, *map(drawn.embedded, left.values())]


def write_figures(drawn: Pictures, directory: Path) -> list[Path]:
    private_files.make_directory(directory)
    paths = []
    for name, picture in drawn.files.items():
        if isinstance(picture, str):
            path, content = directory / f"{name}.svg", picture.encode()
        else:
            path, content = directory / f"{name}.png", picture
        private_files.write(path, content)
        paths.append(path)
    return paths
