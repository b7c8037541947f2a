"""The report of a run: report.json, the figures and its page."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from adversaries.errors import InputError
from fedsim.audits.results.report import Report, encode
from fedsim.audits.run.audit import assemble
from fedsim.audits.run.audited_run import AuditedRun
from fedsim.common import private_files
from fedsim.config import Scalar, from_run_config, to_run_config
from fedsim.federation.runs import ledger, run_agreement, run_transcript
from fedsim.federation.runs.run_directory import Arrays, RunDirectory
from fedsim.report.document import blocks as doc
from fedsim.report.document import html, pictures
from fedsim.report.figures.series import series
from fedsim.report.sections import (
    attacks,
    beliefs,
    first,
    lower_bounds,
    observers,
    reading,
    risks,
    target,
    theory,
    training,
)
from fedsim.report.sections.first import About
from fedsim.report.sections.section import Section, SectionTranscript

SECTIONS = (
    observers.SECTION,
    beliefs.SECTION,
    attacks.ONE_RUN,
    attacks.CRAFTED,
    training.UTILITY,
    risks.SECTION,
    beliefs.OBSERVED,
    risks.CURVES,
    training.AT_CLIENTS,
    theory.SECTION,
    theory.BAYESIAN,
    lower_bounds.SECTION,
    attacks.MEMBERSHIP,
    beliefs.PREDICTION,
    beliefs.RESIDUALS,
    training.CONFIGURATION,
)
"""A section is a module of `fedsim.report.sections` and a line here. Sections for specialists stand
in a folded part behind the others."""


class Pictures:
    """The figures of a run, each drawn once, when it is first needed."""

    def __init__(
        self,
        report: Report,
        transcript: Mapping[str, Any],
        sections: Sequence[Section] = SECTIONS,
    ) -> None:
        self.sections = sections
        self._report, self._transcript = report, transcript

    @cached_property
    def drawn(self) -> Mapping[Section, Sequence[doc.Figure]]:
        transcript = SectionTranscript.of(self._transcript)
        return {section: [*section.figures(self._report, transcript)] for section in self.sections}

    @property
    def figures(self) -> dict[str, doc.Figure]:
        return {figure.name: figure for figures in self.drawn.values() for figure in figures}

    @cached_property
    def files(self) -> dict[str, str | bytes]:
        return {name: pictures.picture(figure.drawing) for name, figure in self.figures.items()}

    @property
    def contents(self) -> dict[str, bytes]:
        """The content of each picture by the name of its file."""
        contents = {}
        for name, picture in self.files.items():
            if isinstance(picture, str):
                contents[f"{name}.svg"] = picture.encode()
            else:
                contents[f"{name}.png"] = picture
        return contents

    def embedded(self, figure: doc.Figure) -> doc.Picture:
        return doc.Picture(
            *(figure.name, self.files[figure.name], figure.title, figure.caption),
            [*series(figure.drawing)],
        )


def render_html(report: Report, drawn: Pictures, about: About | None = None) -> str:
    """Return the report as one HTML page that needs no other file, script or network."""
    parts = [
        (section.specialist, doc.Part(section.heading(report), content))
        for section in drawn.sections
        if (content := _blocks(section, report, drawn))
    ]
    about = about or About()
    blocks = [part for specialist, part in parts if not specialist]
    blocks.insert(1, target.part(report, about.target))
    notes: list[doc.Block] = [*first.cautions(report)]
    if others := [each for each in report.warnings if each not in report.contradictions.values()]:
        notes.append(doc.Bullets(others))
    if notes:
        blocks.insert(0, doc.Part("Read this before you use the numbers", notes, anchor="cautions"))
    blocks.append(
        reading.part(observers.state_words(report, row) for row in observers.shown(report))
    )
    if apart := [part for specialist, part in parts if specialist]:
        blocks.append(doc.Part("For specialists", apart, folded=True, anchor="specialists"))
    return html.render(
        doc.Document(
            title=f"{report.name} – identifiability report",
            kind="Identifiability report",
            heading=report.name,
            note=training.scope(report),
            first=first.first(report, about),
            blocks=blocks,
            footer=(
                f"fedsim {report.versions['fedsim']}, {report.created}. Repeat the run with ",
                doc.Code("fedsim run config.toml"),
                " in its directory.",
            ),
        )
    )


def about(directory: RunDirectory) -> About:
    stated, facts = directory.config.run, directory.read_facts()
    return About(stated.purpose, stated.author, facts.get("data_sha256", ""), facts.get("target"))


def _blocks(section: Section, report: Report, drawn: Pictures) -> list[doc.Block]:
    left = {figure.name: figure for figure in drawn.drawn.get(section, ())}
    blocks: list[doc.Block] = []
    for block in section.words(report):
        if not isinstance(block, doc.Place):
            blocks.append(block)
        elif block.figure in left:
            blocks.append(drawn.embedded(left.pop(block.figure)))
        elif block.otherwise:
            blocks.append(doc.Prose(block.otherwise))
    return [*blocks, *map(drawn.embedded, left.values())]


def write_figures(drawn: Pictures, directory: Path) -> list[Path]:
    private_files.make_directory(directory)
    for name, content in drawn.contents.items():
        private_files.write_private(directory / name, content)
    return [directory / name for name in drawn.contents]


def write_report(
    directory: RunDirectory,
    confidence: float | None = None,
    delta: float | None = None,
    limits: Mapping[str, Scalar] | None = None,
) -> Report:
    """Write report.json, the figures and report.html of a run; return the report."""

    report, transcript = assembled(directory, confidence, delta, limits)
    pictures = Pictures(report, transcript)
    write_figures(pictures, directory.path / "figures")
    page = render_html(report, pictures, about(directory))
    directory.write_text("report.html", page)
    # Last, because its presence says that the run is finished.
    directory.write_json("report.json", encode(report))
    return report


def assembled(
    directory: RunDirectory,
    confidence: float | None = None,
    delta: float | None = None,
    limits: Mapping[str, Scalar] | None = None,
) -> tuple[Report, Arrays]:
    for name, value in (("confidence", confidence), ("delta", delta)):
        if value is not None and not 0 < value < 1:
            raise InputError(f"{name} is {value}; it must lie between 0 and 1")
    transcript = run_transcript.read(directory)
    facts = directory.read_facts()
    config, rows = directory.config, ledger.verified(directory)
    run_agreement.check_agreement(directory, facts, transcript, rows)
    run = AuditedRun(
        from_run_config(to_run_config(config) | dict(limits)) if limits else config,
        facts,
        transcript,
        confidence or config.audit.confidence,
        delta or config.privacy.delta,
        rows,
    )
    return assemble(run), transcript
