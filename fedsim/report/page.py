"""The report of a run as a page, for the engineer and the people who receive it."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from adversaries import plugins, registry
from adversaries.errors import InputError
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
    beliefs,
    configuration,
    crafted,
    first,
    lower_bounds,
    lowering,
    membership,
    one_run,
    other_notions,
    prediction,
    risks,
    target,
    theory,
    to_whom,
    training,
    utility,
    verdict,
)
from fedsim.report.sections.facts import is_alarming
from fedsim.report.sections.first import About
from fedsim.report.sections.labels import labels
from fedsim.report.sections.section import Section, Transcript

SECTIONS = (
    verdict.SECTION,
    to_whom.SECTION,
    risks.SECTION,
    beliefs.SECTION,
    lowering.SECTION,
    utility.SECTION,
    theory.SECTION,
    one_run.SECTION,
    crafted.SECTION,
    other_notions.BAYESIAN,
    training.SECTION,
    configuration.SECTION,
    to_whom.NUMBERS,
    theory.FURTHER,
    other_notions.PAC,
    lower_bounds.SECTION,
    prediction.SECTION,
    prediction.PRECISION,
    prediction.RESIDUALS,
    membership.SECTION,
)
"""A section is a module of `fedsim.report.sections` and a line here. Sections for specialists stand
in a folded part behind the others."""


def all_sections() -> tuple[Section, ...]:
    """Return `SECTIONS`, and those of the installed plug-ins that the machine's owner allowed.

    Raises:
        InputError: a plug-in cannot be imported, or is no section.
    """
    every = list(SECTIONS)
    for each in plugins.installed(["report"]):
        if registry.is_allowed(each.code):
            section: object = registry.lookup({}, each.code, "report")
            if not isinstance(section, Section):
                raise InputError(
                    f"the plug-in {each.code} of {each.package} is a {type(section).__name__}, "
                    "which is no Section; leave out its --allow-code"
                )
            every.append(section)
    return tuple(every)


class Pictures:
    """The figures of a run, each drawn once, when it is first needed."""

    def __init__(
        self,
        report: Report,
        transcript: Mapping[str, Any],
        sections: Sequence[Section] | None = None,
    ) -> None:
        self.sections = all_sections() if sections is None else sections
        self._report, self._transcript = report, transcript

    @cached_property
    def drawn(self) -> Mapping[Section, Sequence[Figure]]:
        """The figures of every section."""
        seen = Transcript.of(self._transcript)
        return {section: section.figures(self._report, seen) for section in self.sections}

    @property
    def figures(self) -> dict[str, Figure]:
        """Every figure by its name."""
        return {figure.name: figure for figures in self.drawn.values() for figure in figures}

    @cached_property
    def files(self) -> dict[str, str | bytes]:
        """SVG or PNG of every figure, by its name."""
        return {name: pictures.picture(figure.drawing) for name, figure in self.figures.items()}

    def embedded(self, figure: Figure) -> Picture:
        """Return a figure as it stands in its file."""
        return Picture(figure.name, self.files[figure.name], figure.title, figure.caption)


def render_html(
    report: Report, drawn: Pictures, one_of_several: bool = False, about: About | None = None
) -> str:
    """Return the report as one HTML page that needs no other file, script or network.

    Args:
        one_of_several: whether the folder above has the page of a sweep or search.
        about: facts that the report does not hold; None where they are unknown.
    """
    note: list[str | Link] = [training.scope(report)]
    if one_of_several:
        note += [" ", Link("All runs of this sweep or search", "../report.html")]
    parts = [
        (section.specialist, Part(section.heading(report), said))
        for section in drawn.sections
        if (said := _blocks(section, report, drawn))
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
    """Return facts from the files of a run that its report does not hold."""
    stated, facts = directory.config.run, directory.read_facts()
    return About(stated.purpose, stated.author, facts.get("data_sha256", ""), facts.get("target"))


def _blocks(section: Section, report: Report, drawn: Pictures) -> list[Block]:
    """Return the blocks of a section, with its figures in their places."""
    left = {figure.name: figure for figure in drawn.drawn.get(section, ())}
    found: list[Block] = []
    for block in section.words(report):
        if not isinstance(block, Place):
            found.append(block)
        elif block.figure in left:
            found.append(drawn.embedded(left.pop(block.figure)))
        elif block.otherwise:
            found.append(Prose(block.otherwise))
    return [*found, *map(drawn.embedded, left.values())]


def write_figures(drawn: Pictures, directory: Path) -> list[Path]:
    """Write every figure into a directory, as SVG or, if that is too large, PNG."""
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
