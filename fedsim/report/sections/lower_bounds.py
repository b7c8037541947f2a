"""The section about empirical epsilon: estimates, lower bounds, and their assumptions."""

import math

from fedsim.audits.results.report import Report
from fedsim.report.document import blocks as doc
from fedsim.report.document.wording import DASH, number
from fedsim.report.sections.section import (
    TITLES,
    Section,
    confidence_of,
    score_caution,
)


def beside_theory(report: Report, alarm: str, value: float, limit: float) -> doc.Mark:
    """Return how a lower bound on epsilon stands to the limit."""
    if alarm in report.contradictions:
        return doc.Mark("alarm", "Above theory")
    if value > limit:
        return doc.Mark("caution", "Above theory, within chance")
    return doc.Mark("good", "Consistent")


CLASSIC = "rdp-classic"

MEANING = (
    "ε′ is the privacy loss that the attack shows. An estimate may err on either side. A lower "
    "bound holds with the stated confidence, if its assumption holds; above theory's ε, it means "
    "that the claimed guarantee does not hold."
)


def _rows(report: Report) -> dict[str, doc.Row]:
    limit, bounds = report.here.limit.epsilon, {}
    for name, bound in report.empirical.lower_bounds.items():
        mark = None
        if math.isfinite(limit) and not bound.reason:
            mark = beside_theory(report, name, bound.epsilon, limit)
        worth = [
            f"Method: {bound.method}." if bound.method else "",
            f"Assumes: {bound.assumes}." if bound.assumes else "",
            f"No bound here: {bound.reason}." if bound.reason else "",
        ]
        bounds[name] = doc.Row(
            f"{TITLES[name]}{', which leads' * (name == report.empirical.leading)}",
            DASH if bound.reason else number(bound.epsilon),
            number(limit),
            " ".join(filter(None, worth)),
            mark=mark,
        )
    return bounds


def _estimates(report: Report) -> list[doc.Row]:
    epsilon, measured = number(report.accounted.epsilon), report.empirical.epsilon
    comparable = report.bounds.accountant == CLASSIC
    return [
        doc.Row(
            "from sensitivities, exact",
            number(measured.sensitivity_exact),
            number(report.here.limit.epsilon),
            "Trusts the claimed noise; composes the trial with the largest sensitivities.",
        ),
        doc.Row(
            "from sensitivities, classic RDP",
            number(measured.sensitivity),
            epsilon if comparable else DASH,
            "The same in the paper's looser accounting.",
        ),
        doc.Row(
            "from belief",
            number(report.attack.log_odds),
            epsilon,
            f"The largest log-odds of any trial; grows with their number.{score_caution(report)}",
        ),
        doc.Row(
            "from advantage",
            number(measured.advantage),
            epsilon,
            "The paper's Eq. 15 with its missing factor 2, for the classic noise scale.",
        ),
    ]


def _words(report: Report) -> list[doc.Block]:
    return [
        doc.Prose(MEANING),
        doc.Table(
            ("Estimates", "ε′", "Theory", "Remark"),
            [doc.Group("", [*map(doc.of_row, _estimates(report))])],
        ),
        doc.Table(
            (
                f"Lower bounds at {confidence_of(report)}confidence",
                *("ε′ at least", "Theory", "Remark"),
            ),
            [doc.Group("", [*map(doc.of_row, _rows(report).values())])],
        ),
    ]


SECTION = Section("Empirical ε′", _words, specialist=True)
