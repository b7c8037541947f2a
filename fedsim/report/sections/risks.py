"""The section about the success of attacks: re-identification and its like."""

from collections.abc import Mapping, Sequence

from fedsim.audits.results.report import Report
from fedsim.audits.results.rows import RunRow as Row
from fedsim.privacy.risks import BASELINE
from fedsim.report.document.blocks import Block, Figure, Place, Prose, Table, tabulated
from fedsim.report.document.wording import percent, span
from fedsim.report.figures import run_figures
from fedsim.report.sections.observers import NAMES, WHO, holds_for, shown
from fedsim.report.sections.section import Section, SectionTranscript, confidence_of

Risks = Sequence[tuple[float, float]]
"""Success of an attack without the model, and its largest success with it."""

NEARLY = 0.01
"""Distance from a whole number of cases that a sentence neglects."""

MEANING = (
    "These limits hold for any attack on one person, such as re-identification or reconstruction."
)


def in_cases(baseline: float) -> str:
    """Return a share as text, such as "1 in 1,000"; as a percentage where it is not 1 in n."""
    return f"1 in {round(1 / baseline):,}" if _is_one_in(baseline) else percent(baseline)


def of_cases(share: float, baseline: float) -> str:
    """Return a share in cases of a baseline, such as "9.58 of 1,000"; else as a percentage."""
    return (
        f"{share / baseline:.3g} of {1 / baseline:,.0f}" if _is_one_in(baseline) else percent(share)
    )


def _is_one_in(baseline: float) -> bool:
    return abs(1 / baseline - round(1 / baseline)) < NEARLY


def sentence(risks: Mapping[str, Risks]) -> str:
    """Return the risk from a baseline of 1 in 1,000 in sentences; "" if it is unknown.

    Args:
        risks: by whom they are: the server, a participant, and so on.
    """
    limits: dict[float, list[str]] = {}
    for name, pairs in risks.items():
        at_most = dict(pairs).get(BASELINE)
        if at_most is not None:
            limits.setdefault(at_most, []).append(name)
    if not limits:
        return ""
    sentences = [
        "Suppose someone guesses a fact about one person. After training without that record, "
        f"{of_cases(BASELINE, BASELINE)} such guesses is right."
    ]
    for at_most, names in sorted(limits.items()):
        who = " or ".join(names)
        sentences.append(
            f"With the record, {who} is right in at most {of_cases(at_most, BASELINE)}."
            if at_most < 1
            else f"Nothing limits how often {who} is right."
        )
    return " ".join(sentences)


def table(risks: Mapping[str, Risks]) -> Table:
    """Return the risks by baseline, a column for each name."""
    rows = [
        [in_cases(baseline), *("no limit" if one >= 1 else percent(one) for one in largest)]
        for baseline, largest in _by_baseline(risks)
    ]
    return tabulated(("Success without the record", *risks), rows)


def _by_baseline(risks: Mapping[str, Risks]) -> list[tuple[float, list[float]]]:
    columns = list(risks.values())
    return [
        (baseline, [column[place][1] for column in columns])
        for place, (baseline, _) in enumerate(columns[0])
    ]


def _words(report: Report) -> list[Block]:
    return [
        Prose(f"{sentence(_by(WHO, shown(report)))} {MEANING} {holds_for(report)}"),
        table(_by(NAMES, shown(report))),
        *_measured(report, dict(report.here.limit.risks)),
    ]


def _by(names: Mapping[str, str], rows: Sequence[Row]) -> dict[str, Risks]:
    return {names[row.observer]: row.limit.risks for row in rows}


def _measured(report: Report, allowed: Mapping[float, float]) -> list[Block]:
    """Return the measured true-positive rates beside what theory allows."""
    rates = report.empirical.true_positives
    if not rates:
        return []
    rows = [
        [
            percent(one.rate),
            f"cannot tell, needs {2 * one.needed:,} trials"
            if one.interval is None
            else span(one.interval, percent),
            percent(allowed.get(one.rate)),
        ]
        for one in rates
    ]
    said = (
        "Membership inference about the target, measured; all intervals hold together at "
        f"{confidence_of(report).strip()} confidence."
    )
    headings = ("False positives", "True positives, measured", "Theory allows at most")
    return [Prose(said), tabulated(headings, rows)]


def _curves(report: Report) -> list[Block]:
    """Return the alarm of the measured curves, and the place of their figure."""
    crossed = [name for name, one in report.trade_offs.items() if one.surely_above > 0]
    alarm = f"ALARM: the band crosses the curve of theory for: {', '.join(crossed)}."
    drawn = [Place("trade-offs")] if report.trade_offs else []
    return [Prose(alarm), *drawn] if crossed else [*drawn]


def _figures(report: Report, _: SectionTranscript) -> list[Figure]:
    if not report.trade_offs:
        return []
    caption = (
        "Right and wrong answers at every threshold of the belief. With "
        f"{confidence_of(report)}confidence, the pale band holds at all thresholds at once; a "
        "lower edge above the curve of theory would disprove the claimed noise."
    )
    curves = {NAMES[name].capitalize(): curve for name, curve in report.trade_offs.items()}
    drawing = run_figures.trade_offs(curves)
    return [Figure("trade-offs", drawing, "Measured trade-off curve.", caption)]


SECTION = Section("How likely is re-identification?", _words)
CURVES = Section("Measured trade-off curve", _curves, _figures, specialist=True)
