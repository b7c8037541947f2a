"""How a report words the lower bounds on epsilon: which leads, what each trusts, do they agree."""

from collections.abc import Sequence
from typing import TypeVar

from fedsim.report_values import Report, at, number, percent

Row = TypeVar("Row")

TITLES = {
    "clopper_pearson": "Clopper–Pearson",
    "clopper_pearson_split": "Clopper–Pearson, split trials",
    "clopper_pearson_bonferroni": "Clopper–Pearson, paid ranks",
    "jeffreys": "Jeffreys (credible)",
    "mu_gdp": "μ of Gaussian privacy",
    "gaussian": "Gaussian",
    "gaussian_unequal": "Gaussian, unequal variances",
    "privacy_profile": "Privacy profile",
    "trade_off": "Sampled trade-off curve",
}

MEASURED, TRUSTING = "Without trusting the noise claimed", "Trusting the noise claimed"

ASSUMES_LEAST = "clopper_pearson"
"""What leads in reports from before there was a rule."""


def leading(report: Report) -> str | None:
    """Return the name of the bound that the report leads with, None where it has no bounds."""
    name = at(report, "empirical.headline.name") or ASSUMES_LEAST
    return name if at(report, f"empirical.lower_bounds.{name}.epsilon") is not None else None


def groups(report: Report, rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Return rows, one for each bound of the report, apart by whether they trust the noise."""
    trusts = [
        bool(at(report, f"empirical.lower_bounds.{name}.trusts_noise"))
        for name in at(report, "empirical.lower_bounds") or {}
    ]
    found = [
        (title, [row for row, each in zip(rows, trusts, strict=True) if each is trusting])
        for title, trusting in ((MEASURED, False), (TRUSTING, True))
    ]
    return [(title, those) for title, those in found if those]


def agreement(report: Report) -> str:
    """Say whether what trusts the claimed noise agrees with what does not; "" if unknown."""
    comparisons = at(report, "empirical.agreement.comparisons") or []
    if not comparisons:
        return ""
    sentences = []
    for comparison in comparisons:
        details, verdict = comparison["details"], "agrees" if comparison["agree"] else "disagrees"
        if comparison["name"] == "mu":
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
    level = percent(comparisons[0]["confidence"])
    return f"{' '.join(sentences)} Each at {level} confidence."


def points(report: Report) -> list[tuple[str, float, bool, bool]]:
    """Return (title, epsilon, trusts the noise, leads) of every bound that holds."""
    first, found = leading(report), []
    for name in at(report, "empirical.lower_bounds") or {}:
        bound = f"empirical.lower_bounds.{name}"
        value = at(report, f"{bound}.epsilon")
        if value is not None and not at(report, f"{bound}.reason"):
            trusts = bool(at(report, f"{bound}.trusts_noise"))
            found.append((TITLES.get(name, str(name)), float(value), trusts, name == first))
    return found
