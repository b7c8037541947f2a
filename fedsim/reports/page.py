"""The report of a run: report.json, the figures and its page."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from adversaries.errors import InputError
from fedsim.audits.run import report as results
from fedsim.audits.run.audit import assemble
from fedsim.audits.run.audited_run import AuditedRun
from fedsim.audits.run.report import RunReport
from fedsim.common import private_files
from fedsim.federation.runs import ledger, run_transcript
from fedsim.federation.runs.run_directory import Arrays, RunDirectory
from fedsim.reports.document import blocks as doc
from fedsim.reports.document import html
from fedsim.reports.sections import drawn as run_drawings
from fedsim.reports.sections import evidence, first, reading
from fedsim.reports.sections.first import About


class Pictures:
    """The figures of a run, each drawn once, when it is first needed."""

    def __init__(self, report: RunReport, transcript: Mapping[str, Any]) -> None:
        self._report, self._transcript = report, transcript

    @cached_property
    def drawn(self) -> Mapping[str, doc.Figure]:
        found = run_drawings.figures(self._report, self._transcript)
        return {figure.name: figure for figure in found}

    @property
    def contents(self) -> dict[str, bytes]:
        files = {}
        for name, figure in self.drawn.items():
            picture = figure.drawing.picture
            if isinstance(picture, str):
                files[f"{name}.svg"] = picture.encode()
            else:
                files[f"{name}.png"] = picture
        return files


BEFORE = "Read this before you use the numbers"


def told(
    report: RunReport,
    drawn: Pictures,
    about: About | None = None,
    sections: Sequence[evidence.Section] = evidence.SECTIONS,
) -> doc.Told:
    about = about or About()

    def made() -> list[doc.Block]:
        notes: list[doc.Block] = [*first.cautions(report)]
        if others := results.cautions(report):
            notes.append(doc.Bullets(others))
        if (command := first.choose(report)) and not report.alarms:
            notes.append(doc.Prose(["For lower limits: ", doc.Code(command)]))
        parts = evidence.parts(report, drawn.drawn, about.target, sections)
        parts.insert(-1, reading.part(report))
        if notes:
            parts.insert(0, doc.Part(BEFORE, notes, anchor="cautions"))
        return [*parts]

    return first.told(report, about, made)


def render_html(
    report: RunReport,
    drawn: Pictures,
    about: About | None = None,
    sections: Sequence[evidence.Section] = evidence.SECTIONS,
) -> str:
    """Return the report as one HTML page that needs no other file, script or network."""
    return html.page(told(report, drawn, about, sections))


def about(directory: RunDirectory) -> About:
    stated, facts = directory.config.run, directory.read_facts()
    return About(stated.purpose, facts.get("data_sha256", ""), facts.get("target"))


def write_figures(drawn: Pictures, directory: Path) -> list[Path]:
    private_files.make_directory(directory)
    for name, content in drawn.contents.items():
        private_files.write_private(directory / name, content)
    return [directory / name for name in drawn.contents]


def write_report(
    directory: RunDirectory, confidence: float | None = None, delta: float | None = None
) -> RunReport:
    report, transcript = assembled(directory, confidence, delta)
    pictures = Pictures(report, transcript)
    write_figures(pictures, directory.path / "figures")
    directory.write_text("report.html", render_html(report, pictures, about(directory)))
    # Last, because its presence says that the run is finished.
    directory.write_json("report.json", report.report)
    return report


def assembled(
    directory: RunDirectory, confidence: float | None = None, delta: float | None = None
) -> tuple[RunReport, Arrays]:
    for name, value in (("confidence", confidence), ("delta", delta)):
        if value is not None and not 0 < value < 1:
            raise InputError(f"{name} is {value}; it must lie between 0 and 1")
    transcript = run_transcript.read(directory)
    facts = directory.read_facts()
    config, rows = directory.config, ledger.verified(directory)
    run_transcript.check_facts(directory, facts, transcript, rows)
    run = AuditedRun(
        config,
        facts,
        transcript,
        confidence or config.audit.confidence,
        delta or config.privacy.delta,
        rows,
    )
    return assemble(run), transcript
