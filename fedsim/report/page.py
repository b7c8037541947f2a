"""The report of a run as a page, for the engineer and for whom the engineer forwards it to."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from fedsim.audits.results.report import Report, encode
from fedsim.common import private_files
from fedsim.config import flatten
from fedsim.report.document import audit_page, pictures
from fedsim.report.document.blocks import Block, Figure, Place, Prose
from fedsim.report.document.pictures import Drawn
from fedsim.report.document.wording import plain
from fedsim.report.order import SECTIONS
from fedsim.report.sections import answer, training, verdict
from fedsim.report.sections.facts import is_alarming
from fedsim.report.sections.labels import labels
from fedsim.report.sections.section import Section, Transcript
from fedsim.report.template import TEMPLATE


class Pictures:
    """The figures of a run, drawn when they are first asked for and not again."""

    def __init__(
        self,
        report: Report,
        transcript: Mapping[str, Any],
        sections: Sequence[Section] = SECTIONS,
    ) -> None:
        self.sections = sections
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

    def embedded(self, figure: Figure) -> Drawn:
        """Return a figure as it stands in the page."""
        markup = pictures.embedded(self.files[figure.name], figure.name, figure.title)
        return Drawn(figure.title, figure.caption, markup)


def render_html(report: Report, drawn: Pictures, one_of_several: bool = False) -> str:
    """Return the report as one HTML page that needs no other file, script or network.

    Args:
        report: of one run.
        drawn: the figures of the same run.
        one_of_several: whether the folder above has the page of the sweep or search it is of.
    """
    laid_out = [
        (section, (section.heading(report), blocks))
        for section in drawn.sections
        if (blocks := _blocks(section, report, drawn))
    ]
    return audit_page.render(
        TEMPLATE,
        name=report.name,
        one_of_several=one_of_several,
        scope=training.scope(report),
        verdict=answer.verdict(report),
        standing=answer.standing(report),
        states=verdict.states(report),
        alarm=is_alarming(report),
        labels=labels(report),
        warnings=report.warnings,
        sections=[words for section, words in laid_out if not section.specialist],
        specialist=[words for section, words in laid_out if section.specialist],
        everything=[(name, plain(value)) for name, value in flatten(encode(report))],
        written_by=report.versions["fedsim"],
        created=report.created,
    )


def _blocks(section: Section, report: Report, drawn: Pictures) -> list[Block | Drawn]:
    """Return what a section says, with its figures where they belong."""
    left = {figure.name: figure for figure in drawn.drawn.get(section, ())}
    found: list[Block | Drawn] = []
    for block in section.words(report):
        if not isinstance(block, Place):
            found.append(block)
        elif block.figure in left:
            found.append(drawn.embedded(left.pop(block.figure)))
        elif block.otherwise:
            found.append(Prose(block.otherwise))
    return [*found, *map(drawn.embedded, left.values())]


def write_figures(drawn: Pictures, directory: Path) -> list[Path]:
    """Write every figure into a directory, as SVG, or PNG where SVG is too large; return the paths.

    Args:
        drawn: whose names are those of the files.
        directory: is made where it is missing, for its owner alone.
    """
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
