"""The section about empirical epsilon: estimates, lower bounds, and their assumptions."""

import math
from collections.abc import Iterator

from fedsim.audits.results.report import Report
from fedsim.report.document import blocks as doc
from fedsim.report.document.wording import DASH, number
from fedsim.report.figures import run_figures
from fedsim.report.sections.section import (
    TITLES,
    Section,
    SectionTranscript,
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
    "ε′ is the privacy loss that the attack demonstrates. An estimate may err on either side. A "
    "lower bound holds with the stated confidence, if its assumption holds. It does not trust the "
    "claimed amount of noise. A lower bound above theory's ε then means that the claimed "
    "guarantee does not hold."
)


def _rows(report: Report) -> dict[str, doc.Row]:
    limit, bounds = report.bounds.tight_epsilon, {}
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
            TITLES[name],
            DASH if bound.reason else number(bound.epsilon),
            number(limit),
            " ".join(filter(None, worth)),
            mark=mark,
        )
    return bounds


def _estimates(report: Report) -> list[doc.Row]:
    epsilon, measured = number(report.bounds.epsilon), report.empirical.epsilon
    comparable = report.bounds.accountant == CLASSIC
    return [
        doc.Row(
            "from sensitivities, exact",
            number(measured.sensitivity_exact),
            number(report.bounds.tight_epsilon),
            "Composes the steps of the trial with the largest measured sensitivities, and trusts "
            "the claimed amount of noise. Noise scaled to the local sensitivity returns theory's "
            "ε. Sampled replacement has no estimate.",
        ),
        doc.Row(
            "from sensitivities, classic RDP",
            number(measured.sensitivity),
            epsilon if comparable else DASH,
            "The same in the paper's looser accounting. Comparable only with an ε of the "
            f"accountant {CLASSIC}.",
        ),
        doc.Row(
            "from belief",
            number(measured.belief),
            epsilon,
            "The largest log-odds of any trial (the paper's estimator). As an extreme value it "
            f"grows with the number of trials and may exceed ε.{score_caution(report)}",
        ),
        doc.Row(
            "from advantage",
            number(measured.advantage),
            epsilon,
            "The paper's Eq. 15 with its missing factor 2. It presumes the classic noise scale, "
            "and says nothing about tightly calibrated noise.",
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
        doc.Place("lower-bounds"),
    ]


def _figures(report: Report, _: SectionTranscript) -> Iterator[doc.Figure]:
    limit, leads = report.bounds.tight_epsilon, report.empirical.headline.name
    points = [
        (TITLES[name], bound.epsilon, name == leads)
        for name, bound in report.empirical.lower_bounds.items()
        if not bound.reason and math.isfinite(bound.epsilon)
    ]
    if points:
        yield doc.Figure(
            "lower-bounds",
            run_figures.lower_bounds(
                points, limit if math.isfinite(limit) else None, confidence_of(report)
            ),
            "Lower bounds on ε.",
            "Lower bound of each estimator, beside theory's ε. A rule fixed in advance chose the "
            "leading bound: the largest of several would claim too much.",
        )


SECTION = Section("Empirical ε′", _words, _figures, specialist=True)
