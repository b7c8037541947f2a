"""The report of a run: report.json, the figures, its page, and the pages for an officer."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from adversaries.errors import InputError
from fedsim.audits.results.report import Report, encode
from fedsim.audits.results.verdicts import StateWords
from fedsim.audits.run.audit import assemble
from fedsim.audits.run.audited_run import AuditedRun
from fedsim.common import private_files
from fedsim.config import Scalar, from_run_config, to_run_config
from fedsim.federation.runs import ledger, run_agreement, run_transcript
from fedsim.federation.runs.run_directory import SUMMARY, Arrays, RunDirectory
from fedsim.report import model_card, training_report
from fedsim.report.document import blocks as doc
from fedsim.report.document import html, pictures
from fedsim.report.sections import (
    attacks,
    beliefs,
    first,
    lower_bounds,
    risks,
    target,
    theory,
    training,
    vantage_words,
    verdict,
)
from fedsim.report.sections.answer import labels
from fedsim.report.sections.first import About
from fedsim.report.sections.section import Section, SectionTranscript, is_alarming

SECTIONS = (
    verdict.SECTION,
    verdict.TO_WHOM,
    risks.SECTION,
    beliefs.SECTION,
    training.UTILITY,
    theory.SECTION,
    attacks.ONE_RUN,
    attacks.CRAFTED,
    theory.BAYESIAN,
    training.SECTION,
    training.CONFIGURATION,
    verdict.NUMBERS,
    theory.FURTHER,
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
        return doc.Picture(figure.name, self.files[figure.name], figure.title, figure.caption)


def render_html(
    report: Report, drawn: Pictures, one_of_several: bool = False, about: About | None = None
) -> str:
    """Return the report as one HTML page that needs no other file, script or network."""
    note: list[str | doc.Link] = [training.scope(report)]
    if one_of_several:
        note += [" ", doc.Link("All runs of this sweep or search", "../report.html")]
    parts = [
        (section.specialist, doc.Part(section.heading(report), content))
        for section in drawn.sections
        if (content := _blocks(section, report, drawn))
    ]
    blocks: list[doc.Block] = list(labels(report))
    if report.warnings:
        alarming = is_alarming(report)
        blocks.append(doc.Label("Warnings.", items=report.warnings, alarming=alarming))
    about = about or About()
    blocks.append(target.part(report, about.target))
    blocks += [part for specialist, part in parts if not specialist]
    if apart := [part for specialist, part in parts if specialist]:
        blocks.append(doc.Part("For specialists", apart, folded=True, anchor="specialists"))
    return html.render(
        doc.Document(
            title=f"{report.name} – identifiability report",
            kind="Identifiability report",
            heading=report.name,
            note=note,
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
    several = (directory.path.parent / SUMMARY).is_file()
    page = render_html(report, pictures, several, about(directory))
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


FILE = "officer.html"

QUESTIONS = (
    "Who operates the server, and do we trust that party?",
    "Which limit does our organisation accept?",
    "Does the real training use secret noise (privacy.noise-source = system)?",
    "Which of the parties above were tested? Should the others be tested too?",
    "What else was released about the same people?",
)

IN_THEORY = (
    "The limits of theory hold for every record, if the software ran as configured. If one record "
    "is the unit, a person with several records has less protection."
)

LIMITS = (
    "This report does not say that the model is anonymous, or that its release is approved. Both "
    "are legal questions (GDPR, Recital 26). The numbers are evidence on one part of them: can an "
    "adversary tell whether a record was used?",
    "The measurements say nothing about other people or other attacks. " + IN_THEORY,
    "The report does not cover texts that the model repeats, records reconstructed without a list "
    "of candidates, links with other data, or breaches.",
    "It does not cover other releases about the same people. Their epsilons add up.",
)


UNATTACKED = (
    (*QUESTIONS[:2], "No party was tested by an attack. Should one be?", QUESTIONS[-1]),
    (f"No attack was measured. {IN_THEORY}", LIMITS[0], *LIMITS[2:]),
)
"""Questions and limits for a training that no adversary rehearsed."""


def write_for_officer(directory: RunDirectory, limits: Mapping[str, Scalar] | None = None) -> Path:
    """Write the two pages of a finished run or training, and return where they are."""
    if directory.config.run.job == "training":
        card, report = model_card.read_card(directory), training_report.assemble(directory)
        before = [doc.Label("", text, alarming=True) for text in report.contradictions]
        states = [
            training_report.state_towards(report, card, towards) for towards in card.privacy.towards
        ]
        words = UNATTACKED if card.rehearsal is None else (QUESTIONS, LIMITS)
        page = _document(report.name, training_report.first(report, card), before, states, *words)
    else:
        page = _of_run(directory, limits)
    directory.write_text(FILE, html.render(page))
    return directory.path / FILE


def _of_run(directory: RunDirectory, limits: Mapping[str, Scalar] | None) -> doc.Document:

    report, _ = assembled(directory, None, None, limits)
    before: list[doc.Block] = []  # the first screen has the labels in short
    if report.warnings:
        alarming = is_alarming(report)
        before.append(doc.Label("Warnings.", items=report.warnings, alarming=alarming))
    states = [vantage_words.state_words(report, verdict) for verdict in report.verdicts]
    risk = risks.of_run(report)
    blocks = [*before, doc.Prose(target.target(report)), *([doc.Prose(risk)] if risk else [])]
    screen = first.first(report, about(directory))
    return _document(report.name, screen, blocks, states, QUESTIONS, LIMITS)


def _document(
    name: str,
    screen: doc.FirstScreen,
    blocks: Sequence[doc.Block],
    states: Sequence[StateWords],
    questions: Sequence[str],
    limits: Sequence[str],
) -> doc.Document:
    meanings = dict.fromkeys(f"{state.text}: {state.means}." for state in states)
    reading = [
        doc.Part("What the verdicts mean", [doc.Bullets(list(meanings))]),
        doc.Part("What this does not say", [doc.Bullets(limits)]),
    ]
    return doc.Document(
        title=f"{name} – for the data-protection officer",
        kind="For the data-protection officer",
        heading=name,
        first=replace(
            screen,
            steps=questions,
            checks=[replace(check, condition="") for check in screen.checks],
        ),
        blocks=[*blocks, *reading],
        footer=("The whole report is report.html in the same folder.",),
    )
