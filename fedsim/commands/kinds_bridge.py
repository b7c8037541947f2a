"""Pages of audits, until they are one."""

from pathlib import Path
from typing import Any

from fedsim.common import report_directory
from fedsim.report.document.blocks import Prose
from fedsim.report.kinds import code_words
from fedsim.report.kinds import live as live_words
from fedsim.report.kinds import recorded as transcript_report


def _kind(outcome: Any) -> str:
    return type(outcome).__name__


def in_short(outcome: Any):
    return [Prose(outcome.conclusion)]


def summary(outcome: Any):
    kind = _kind(outcome)
    if kind == "AppAudit":
        return code_words.tabulated(outcome.verdict, code_words.results(outcome), outcome.findings)
    if kind == "LoopAudit":
        return code_words.tabulated(
            outcome.verdict, code_words.loop_results(outcome), outcome.findings
        )
    return (live_words if kind == "LiveReport" else transcript_report).summary(outcome)


def write(outcome: Any, place: Path) -> Path:
    kind = _kind(outcome)
    if kind in ("AppAudit", "LoopAudit"):
        from fedsim.report.kinds.app_or_loop import render_html

        rows = (code_words.results if kind == "AppAudit" else code_words.loop_results)(outcome)
        return report_directory.write_report(place, outcome.report, render_html(outcome, rows))
    return transcript_report.write_recorded(outcome, place)


write_live = live_words.write_live
table = live_words.table
