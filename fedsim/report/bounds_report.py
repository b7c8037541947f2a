"""How a report words the lower bounds on epsilon: which leads, what each trusts, do they agree."""

from fedsim.report.report_rows import Row, beside_theory
from fedsim.report.report_values import DASH, Report, at, epsilon_of, number, percent, plain

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
"""What rests on the fewest assumptions."""


def leading(report: Report) -> str | None:
    """Return the name of the bound that the report leads with, None where it states none.

    It was chosen in advance; to take the largest of several would cost confidence.
    """
    headline = report["empirical"]["headline"]
    return None if headline["epsilon"] is None else str(headline["name"])


def rows(report: Report) -> dict[str, Row]:
    """Return every lower bound on epsilon by its name, and how it stands to theory."""
    limit, found = at(report, "bounds.tight_epsilon"), {}
    for name, bound in report["empirical"]["lower_bounds"].items():
        value, trusts, reason, method, assumes = (
            at(bound, key) for key in ("epsilon", "trusts_noise", "reason", "method", "assumes")
        )
        mark = None
        if value is not None and limit is not None and not reason:
            mark = beside_theory(report, name, value, limit, at(bound, "p_value"))
        worth = [
            f"Method: {method}." if method else "",
            f"Assumes: {assumes}." if assumes else "",
            f"Says nothing here: {reason}." if reason else "",
            ""
            if trusts is None
            else f"{'Trusts' if trusts else 'Does not trust'} the noise claimed.",
        ]
        found[name] = Row(
            TITLES[name],
            DASH if reason else number(value),
            epsilon_of(report, "tight_epsilon"),
            " ".join(filter(None, worth)),
            mark=mark,
        )
    return found


def assumed(report: Report) -> str:
    """Say what the leading bound assumes."""
    assumes = at(report, f"empirical.lower_bounds.{leading(report)}.assumes")
    return "only independent trials" if assumes == "independent trials" else plain(assumes)


def groups(report: Report) -> list[tuple[str, list[Row]]]:
    """Return the rows apart by whether they trust the noise."""
    apart: dict[str, list[Row]] = {MEASURED: [], TRUSTING: []}
    for name, row in rows(report).items():
        trusts = at(report, f"empirical.lower_bounds.{name}.trusts_noise")
        apart[TRUSTING if trusts else MEASURED].append(row)
    return [(title, those) for title, those in apart.items() if those]


def agreement(report: Report) -> str:
    """Say whether what trusts the claimed noise agrees with what does not; "" if unknown."""
    comparisons = at(report, "empirical.agreement.comparisons")
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
    for name, bound in report["empirical"]["lower_bounds"].items():
        if bound["epsilon"] is not None and not bound["reason"]:
            lead = name == first
            found.append((TITLES[name], float(bound["epsilon"]), bound["trusts_noise"], lead))
    return found
