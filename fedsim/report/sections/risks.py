"""The section about the success of attacks: re-identification and its like."""

from collections.abc import Mapping, Sequence

from fedsim.audits.results.report import Report
from fedsim.audits.results.theory import RunVantageBounds
from fedsim.privacy.risks import BASELINE
from fedsim.report.document.blocks import Block, Figure, Place, Prose, Table, tabulated
from fedsim.report.document.wording import percent, span
from fedsim.report.figures import run_figures
from fedsim.report.sections.section import Section, SectionTranscript, confidence_of
from fedsim.report.sections.vantage_words import NAMES, WHO, holds_for

Risks = Sequence[tuple[float, float]]
"""Success of an attack without the model, and its largest success with it."""

NEARLY = 0.01
"""Distance from a whole number of cases that a sentence neglects."""

MEANING = (
    "These are limits of theory for any attack on one person: re-identification, attribute "
    "inference or reconstruction. First column: success without the training, such as 1 in n for "
    "naming one of n people. Other columns: largest success of each observer after one training."
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
        f"Suppose someone guesses a fact about one person. Without the training, "
        f"{of_cases(BASELINE, BASELINE)} such guesses is right."
    ]
    for at_most, names in sorted(limits.items()):
        who = " or ".join(names)
        sentences.append(
            f"With the training, {who} is right in at most {of_cases(at_most, BASELINE)}."
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
    return tabulated(("Success without the training", *risks), rows)


def _by_baseline(risks: Mapping[str, Risks]) -> list[tuple[float, list[float]]]:
    columns = list(risks.values())
    return [
        (baseline, [column[place][1] for column in columns])
        for place, (baseline, _) in enumerate(columns[0])
    ]


def _limited(report: Report) -> list[RunVantageBounds]:
    """Return the vantage points with risks; none for reports of earlier versions."""
    return [row for row in report.bounds.vantages if row.risks]


def _words(report: Report) -> list[Block]:
    rows = _limited(report)
    if not rows:
        return []
    audited = next(row for row in rows if row.vantage == report.vantage)
    return [
        Prose(f"{of_run(report)} {MEANING}"),
        Prose(holds_for(report)),
        table(_by_name(rows)),
        *_measured(report, dict(audited.risks)),
        Place("risks"),
        *_curves(report),
    ]


def of_run(report: Report) -> str:
    """Return the sentence about all vantage points of a run; "" without limits."""
    return sentence({WHO[row.vantage]: row.risks for row in _limited(report)})


def _by_name(rows: Sequence[RunVantageBounds]) -> dict[str, Risks]:
    return {NAMES[row.vantage].capitalize(): row.risks for row in rows}


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
        "The trials measure membership inference about the target. All intervals hold together "
        f"at {confidence_of(report).strip()} confidence. Both tables use the same curve of "
        "theory: the false positive rate is the success without the training, and the true "
        "positive rate the success with it."
    )
    headings = ("False positives", "True positives, measured", "Theory allows at most")
    return [Prose(said), tabulated(headings, rows)]


def _curves(report: Report) -> list[Block]:
    """Return what the figure of the measured curves shows."""
    if not report.trade_offs:
        return []
    crossed = [name for name, one in report.trade_offs.items() if one.surely_above > 0]
    said = (
        "The adversary says that the record was used if its belief is above a threshold. The "
        "figure shows its right and wrong answers for every threshold. With "
        f"{confidence_of(report)}confidence, the band holds at all thresholds at once. "
    )
    said += (
        f"ALARM: its lower edge crosses the curve of theory for: {', '.join(crossed)}."
        if crossed
        else "Its lower edge does not cross the curve of theory."
    )
    return [Prose(said), Place("trade-offs")]


def _figures(report: Report, _: SectionTranscript) -> list[Figure]:
    figures = []
    rows = [row for row in _limited(report) if row.risks[0][1] < 1]
    if rows:
        caption = (
            "Largest success of any attack after the training, against its success without the "
            "training. The dashed line is an attack that learns nothing from the training."
        )
        drawing = run_figures.success(_by_name(rows))
        figures.append(Figure("risks", drawing, "Success of any attack.", caption))
    if _limited(report) and report.trade_offs:
        curves = {
            NAMES[vantage].capitalize(): curve for vantage, curve in report.trade_offs.items()
        }
        caption = (
            "True positives against false positives of the played game. The pale area is the band; "
            "a lower edge above the curve of theory would disprove the claimed noise."
        )
        drawing = run_figures.trade_offs(curves)
        figures.append(Figure("trade-offs", drawing, "Measured trade-off curve.", caption))
    return figures


SECTION = Section("How likely is re-identification?", _words, _figures)
