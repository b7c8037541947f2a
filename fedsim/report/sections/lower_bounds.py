"""Empirical epsilon: estimates, and lower bounds, with which one leads and what each trusts."""

import math
from collections.abc import Iterator
from dataclasses import asdict

from fedsim.audits.results.report import Report
from fedsim.report.document.blocks import (
    Block,
    Figure,
    Group,
    Line,
    Mark,
    Place,
    Prose,
    Row,
    Table,
    of_row,
)
from fedsim.report.document.wording import DASH, number, percent
from fedsim.report.figures import bound_figures
from fedsim.report.sections.facts import (
    TITLES,
    confidence_of,
    is_clipped,
    is_halves,
    is_pac,
    is_sampled,
    score_caution,
)
from fedsim.report.sections.section import Section, Transcript


def beside_theory(
    report: Report, alarm: str, value: float, limit: float, chance: float | None = None
) -> Mark:
    """Return how a lower bound on epsilon stands to the limit.

    Args:
        chance: how often chance alone puts the bound above the limit; None if unknown.
    """
    if alarm in report.contradictions:
        return Mark("alarm", "Above theory")
    if value > limit:
        often = "" if chance is None else f" (p = {chance:.2g})"
        return Mark("caution", f"Above theory, within chance{often}")
    return Mark("good", "Consistent")


MEASURED, TRUSTING = "Without trusting the noise claimed", "Trusting the noise claimed"

ASSUMES_LEAST = "clopper_pearson"
"""What rests on the fewest assumptions."""

CLASSIC = "rdp-classic"
"""The accountant of the paper, which the empirical epsilon from sensitivities uses too."""

MEANING = (
    "The privacy loss that the attack demonstrates. An estimate may err on either side; a "
    "lower bound holds with the stated confidence, and one above the theory's ε means that the "
    "claimed guarantee does not hold."
)


def rows(report: Report) -> dict[str, Row]:
    """Return every lower bound on epsilon by its name, and how it stands to theory."""
    limit, found = report.bounds.tight_epsilon, {}
    for name, bound in report.empirical.lower_bounds.items():
        mark = None
        if math.isfinite(limit) and not bound.reason:
            mark = beside_theory(report, name, bound.epsilon, limit, bound.p_value)
        worth = [
            f"Method: {bound.method}." if bound.method else "",
            f"Assumes: {bound.assumes}." if bound.assumes else "",
            f"Says nothing here: {bound.reason}." if bound.reason else "",
            f"{'Trusts' if bound.trusts_noise else 'Does not trust'} the noise claimed.",
        ]
        found[name] = Row(
            TITLES[name],
            DASH if bound.reason else number(bound.epsilon),
            number(limit),
            " ".join(filter(None, worth)),
            mark=mark,
        )
    return found


def assumed(report: Report) -> str:
    """Return what the leading bound assumes."""
    assumes = report.empirical.lower_bounds[report.empirical.headline.name].assumes
    return "only independent trials" if assumes == "independent trials" else assumes


def estimates(report: Report) -> list[Row]:
    """Return the paper's estimates of epsilon, and what each is worth."""
    epsilon, found = number(report.bounds.epsilon), report.empirical.epsilon
    comparable = report.bounds.accountant == CLASSIC
    return [
        Row(
            "from sensitivities, exact",
            _estimated(report, found.sensitivity_exact),
            number(report.bounds.tight_epsilon),
            _worth_of_sensitivities(report),
        ),
        Row(
            "from sensitivities, classic RDP",
            _estimated(report, found.sensitivity),
            epsilon if comparable else DASH,
            "The same in the paper's accounting, which is looser: compares only with an ε of "
            f"the accountant {CLASSIC}.",
        ),
        Row(
            "from belief",
            _estimated(report, found.belief),
            epsilon,
            "The largest log-odds of any trial (paper's estimator). An extreme value: it grows "
            f"with the number of trials and may pass ε.{score_caution(report)}",
        ),
        Row(
            "from advantage",
            _estimated(report, found.advantage),
            epsilon,
            "The paper's Eq. 15 with its missing factor 2. Presumes the classic noise scale: no "
            "statement about tightly calibrated noise.",
        ),
    ]


def _estimated(report: Report, value: float | None) -> str:
    """Word an estimate, and why it is infinite."""
    if value != math.inf:
        return number(value)
    if report.mechanism.effective_noise_multiplier == 0 and is_clipped(report):
        return f"{number(value)} (no noise)"
    won = report.empirical.advantage == 1
    return f"{number(value)} (every trial won)" if won else number(value)


def _worth_of_sensitivities(report: Report) -> str:
    """Say what the estimator from sensitivities is worth for these steps."""
    if is_halves(report):
        return "None: no one distance describes candidates that differ in half of the records."
    if is_pac(report):
        return (
            "A tautology here: noise scaled to how far the candidates lie apart gives back the ε "
            "of this pair that the budget stands for."
        )
    if is_sampled(report) and report.neighbouring == "replace":
        return (
            "None: where replaced records are sampled, the loss depends on both gradients and not "
            "only on how far they lie apart."
        )
    if report.mechanism.sensitivity == "local":
        return (
            "A tautology here: noise scaled to these very sensitivities gives the theory's own ε "
            "back."
        )
    how = ", each sampled step at the trial's root mean square ratio to the noise"
    return (
        "Composes the steps with the sensitivities that occurred, largest trial"
        f"{how * is_sampled(report)}. Trusts the claimed noise.{score_caution(report)}"
    )


def agreement(report: Report) -> str:
    """Return in words whether what trusts the claimed noise agrees with what does not, or ""."""
    comparisons = report.empirical.agreement.comparisons
    if not comparisons:
        return ""
    sentences = []
    for comparison in comparisons:
        details, verdict = comparison.details, "agrees" if comparison.agree else "disagrees"
        if comparison.name == "mu":
            sentences.append(
                f"The μ that the claimed noise predicts, {number(details['predicted'])}, {verdict} "
                f"with the one measured without it, {number(details['low'])} to "
                f"{number(details['high'])}."
            )
        else:
            sentences.append(
                f"How often beliefs come true {verdict} with what they say "
                f"(p = {details['p_value']:.2g})."
            )
    return f"{' '.join(sentences)} Each at {percent(comparisons[0].confidence)} confidence."


def _groups(report: Report) -> list[Group]:
    """Return the lower bounds apart by whether they trust the noise."""
    apart: dict[str, list[Line]] = {MEASURED: [], TRUSTING: []}
    for name, row in rows(report).items():
        trusts = report.empirical.lower_bounds[name].trusts_noise
        apart[TRUSTING if trusts else MEASURED].append(of_row(row))
    return [Group(title, lines) for title, lines in apart.items() if lines]


def _words(report: Report) -> list[Block]:
    agreed = agreement(report)
    return [
        Prose(MEANING),
        Table(
            ("Estimates", "ε′", "Theory", "What it is worth"),
            [Group("", [*map(of_row, estimates(report))])],
        ),
        Table(
            (
                f"Lower bounds at {confidence_of(report)}confidence",
                *("ε′ at least", "Theory", "What it is worth"),
            ),
            _groups(report),
        ),
        *([Prose(agreed)] if agreed else []),
        Place("lower-bounds"),
        Place("privacy-profile"),
    ]


def _figures(report: Report, _: Transcript) -> Iterator[Figure]:
    limit, leads = report.bounds.tight_epsilon, report.empirical.headline.name
    points = [
        (TITLES[name], bound.epsilon, bound.trusts_noise, name == leads)
        for name, bound in report.empirical.lower_bounds.items()
        if not bound.reason and math.isfinite(bound.epsilon)
    ]
    if points:
        yield Figure(
            "lower-bounds",
            bound_figures.lower_bounds(
                points, limit if math.isfinite(limit) else None, confidence_of(report)
            ),
            "Lower bounds on ε.",
            "What each estimator proves, beside theory's ε. The one that leads was chosen by a "
            "rule fixed in advance; the largest of several would claim too much.",
        )
    if profile := report.empirical.privacy_profile:
        yield Figure(
            "privacy-profile",
            bound_figures.privacy_profile(
                profile.epsilon,
                profile.theory,
                {name: asdict(band) for name, band in profile.directions.items()},
            ),
            "Privacy profile.",
            "δ as a function of ε, estimated from log-odds as if the noise is as claimed, and by "
            f"theory. Each point of the {confidence_of(report)}bands holds on its own.",
        )


SECTION = Section(
    "Empirical ε′", _words, lambda report, seen: [*_figures(report, seen)], specialist=True
)
