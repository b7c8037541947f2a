"""Two pages for a data-protection officer: the first screen of a run, and how to read it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fedsim.audits.results.verdicts import StateWords
from fedsim.config import Scalar
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.report import model_card, training_report
from fedsim.report.document import html
from fedsim.report.document.blocks import Block, Bullets, Document, FirstScreen, Label, Part, Prose
from fedsim.report.sections import first, target, vantage_words
from fedsim.report.sections.section import is_alarming

FILE = "officer.html"

QUESTIONS = (
    "Who operates the server, and do we trust that party?",
    "Which limit does our organization accept?",
    "Does the real training use secret noise (privacy.noise-source = system)?",
    "Which of the parties above were tested, and should the others be?",
    "What else was released about the same people?",
)

LIMITS = (
    "That the model is anonymous, or that its release is approved. This is a legal question (GDPR, "
    "Recital 26). The numbers are evidence on one part of it: can an adversary tell whether a "
    "record was used?",
    "Results for other people or other attacks. The limits of theory hold for every record, if the "
    "software ran as configured.",
    "Extracted texts, reconstructed records, links with other data, breaches, and further releases "
    "about the same people, whose epsilons add up.",
)


def write(directory: RunDirectory, limits: Mapping[str, Scalar] | None = None) -> Path:
    """Write the two pages of a finished run or training, and return where they are."""
    training = directory.config.run.job == "training"
    page = _of_training(directory) if training else _of_run(directory, limits)
    directory.write_text(FILE, html.render(page))
    return directory.path / FILE


def _of_run(directory: RunDirectory, limits: Mapping[str, Scalar] | None) -> Document:
    from fedsim.report import page, writing  # noqa: PLC0415  (matplotlib is slow to import)

    report, _ = writing.assembled(directory, None, None, limits)
    about = page.about(directory)
    before: list[Block] = []  # the first screen has the labels in short
    if report.warnings:
        alarming = is_alarming(report)
        before.append(Label("Warnings.", items=report.warnings, alarming=alarming))
    states = [vantage_words.state_words(report, verdict) for verdict in report.verdicts]
    risk = target.of_run(report)
    blocks = [*before, Prose(target.target(report)), *([Prose(risk)] if risk else [])]
    return _document(report.name, first.first(report, about), blocks, states)


def _of_training(directory: RunDirectory) -> Document:
    card, report = model_card.read(directory), training_report.assemble(directory)
    before = [Label("", text, alarming=True) for text in report["contradictions"]]
    state = training_report.state(report, card)
    return _document(report["name"], training_report.first(report, card), before, [state])


def _document(
    name: str, screen: FirstScreen, blocks: Sequence[Block], states: Sequence[StateWords]
) -> Document:
    meanings = dict.fromkeys(f"{state.text}: {state.means}." for state in states)
    reading = [
        Part("What the verdicts mean", [Bullets(list(meanings))]),
        Part("What this does not say", [Bullets(LIMITS)]),
    ]
    return Document(
        title=f"{name} – for the data-protection officer",
        kind="For the data-protection officer",
        heading=name,
        first=replace(
            screen,
            steps=QUESTIONS,
            checks=[replace(check, condition="") for check in screen.checks],
        ),
        blocks=[*blocks, *reading],
        footer=("The whole report is report.html in the same folder.",),
    )
