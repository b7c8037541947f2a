"""Writing a run's report: report.json, the figures, and the page."""

from collections.abc import Mapping

from adversaries.errors import InputError
from fedsim.audits.results.report import Report, encode
from fedsim.audits.run.audit import assemble
from fedsim.config import Scalar, from_run_config, to_run_config
from fedsim.federation.runs import ledger, run_agreement, run_transcript
from fedsim.federation.runs.run_directory import SUMMARY, Arrays, RunDirectory


def write_report(
    directory: RunDirectory,
    confidence: float | None = None,
    delta: float | None = None,
    limits: Mapping[str, Scalar] | None = None,
) -> Report:
    """Write report.json, the figures and report.html of a run; return the report."""
    from fedsim.report import page as rendering  # noqa: PLC0415  (matplotlib is slow to import)

    report, transcript = assembled(directory, confidence, delta, limits)
    pictures = rendering.Pictures(report, transcript)
    rendering.write_figures(pictures, directory.path / "figures")
    several = (directory.path.parent / SUMMARY).is_file()
    page = rendering.render_html(report, pictures, several, rendering.about(directory))
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
    run_agreement.check(directory, facts, transcript, rows)
    report = assemble(
        from_run_config(to_run_config(config) | dict(limits)) if limits else config,
        facts,
        transcript,
        confidence or config.audit.confidence,
        delta or config.privacy.delta,
        rows,
    )
    return report, transcript
