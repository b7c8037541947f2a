"""The values of report.json, and how each is worded.

A value that is null is a dash, or ∞ with its reason.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

Report = Mapping[str, Any]
Interval = tuple[float, float]

DASH, INFINITE = "–", "∞"


def at(tree: Report | None, path: str) -> Any:
    """Return the value at a dotted path; None where it, or a table on the way to it, is null.

    Raises KeyError for a path that no report has.
    """
    value: Any = tree
    for key in path.split("."):
        if value is None:
            return None
        value = value[key]
    return value


def interval_at(report: Report | None, path: str) -> Interval | None:
    """Return the two ends at a dotted path, None unless both are numbers."""
    ends = at(report, path)
    if ends is None or None in ends:
        return None
    return float(ends[0]), float(ends[1])


def is_unprotected(report: Report) -> bool:
    """Whether no noise at all hides the record from the audited vantage."""
    return bool(at(report, "mechanism.effective_noise_multiplier") == 0)


def is_pac(report: Report) -> bool:
    """Whether the noise was shaped by stated candidates, which is no differential privacy."""
    return bool(at(report, "mechanism.noise") == "pac")


def is_halves(report: Report) -> bool:
    """Whether the secret was one of several random halves of the data, and not D or D'."""
    return is_pac(report) and bool(at(report, "pac.prior") == "halves")


def is_client(report: Report) -> bool:
    """Whether all data of a client are in question."""
    return bool(at(report, "unit") == "client")


def is_clipped(report: Report) -> bool:
    """Whether clipping bounded what one record can change."""
    return bool(at(report, "mechanism.clipping"))


def is_sampled(report: Report) -> bool:
    """Whether a record joins a round only with a probability below 1."""
    return bool(at(report, "mechanism.sampling_rate") < 1)


def local_steps(report: Report) -> int:
    """Return how many steps clients took on their own in a round."""
    return int(at(report, "mechanism.local_steps"))


def rho_alpha_of(report: Report) -> float | None:
    """Return the bound on the advantage, 1 where there is no protection, None if unknown."""
    value: float | None = at(report, "bounds.rho_alpha")
    return 1.0 if value is None and is_unprotected(report) else value


def advantage_limit(report: Report) -> float | None:
    """Return what the advantage is held to: rho_alpha, or the bound of PAC privacy alone."""
    limit: float | None = at(report, "pac.advantage_bound")
    return limit if is_pac(report) else rho_alpha_of(report)


def rho_beta_of(report: Report) -> float | None:
    """Return the bound on the belief, 1 where there is no protection, None if unknown."""
    value: float | None = at(report, "bounds.rho_beta")
    return 1.0 if value is None and is_unprotected(report) else value


def epsilon_of(report: Report, name: str) -> str:
    """Return the epsilon of this name among the bounds, worded."""
    value = at(report, f"bounds.{name}")
    return INFINITE if value is None and is_unprotected(report) else number(value)


def standard_errors_apart(report: Report) -> str:
    """Say how far prediction and measurement differ, and how often by chance; "" if unknown."""
    measured, predicted = at(report, "empirical.advantage"), at(report, "prediction.advantage")
    error, chance = (at(report, f"prediction.distance.{n}") for n in ("standard_error", "p_value"))
    if measured is None or predicted is None or not error:
        return ""
    error = math.hypot(error, at(report, "prediction.standard_error") or 0.0)
    apart = abs(measured - predicted) / error
    return f"({apart:.1f} standard errors apart, p = {number(chance)})"


def yeom_bound(report: Report) -> str:
    """Word Yeom's bound on membership inference, which is proven for pure epsilon."""
    return f"e^ε − 1 = {number(at(report, 'bounds.yeom_bound'))}, of pure ε"


def confidence_of(report: Report) -> str:
    """Return the confidence of every interval as the start of a phrase, such as "95% "."""
    confidence = at(report, "empirical.confidence")
    return "" if confidence is None else f"{100 * confidence:g}% "


def first_to_last(report: Report, series: str, wording: Callable[[Any], str]) -> str:
    """Word the first and the last mean of a utility series: "accuracy" or "loss"."""
    means = at(report, f"utility.{series}.mean")
    return f"{wording(means[0])} → {wording(means[-1])}" if means else DASH


def span(interval: Interval | None, wording: Callable[[Any], str]) -> str:
    """Word an interval; "" for None."""
    return f"{wording(interval[0])} to {wording(interval[1])}" if interval else ""


def number(value: float | None) -> str:
    """Word a number with three significant digits or decimals."""
    if value is None or math.isnan(value):
        return DASH
    if math.isinf(value):
        return INFINITE if value > 0 else f"−{INFINITE}"
    if value == round(value) and abs(value) < 1e5:
        return f"{value:.0f}"
    return f"{value:.3f}" if 1e-2 <= abs(value) < 1e5 else f"{value:.3g}"


def percent(value: float | None) -> str:
    """Word a probability as a percentage, without rounding up to certainty."""
    if value is None or math.isnan(value):
        return DASH
    if value in (0, 1):
        return f"{100 * value:.0f}%"
    if 0.9995 <= value < 1:
        return ">99.9%"
    return f"{100 * value:.1f}%" if value >= 1e-2 else f"{100 * value:.2g}%"


def setting(value: Any) -> str:
    """Word a value of the configuration."""
    if value is None:
        return DASH
    if isinstance(value, Mapping) and not value:
        return "none"
    return ("yes" if value else "no") if isinstance(value, bool) else plain(value)


def plain(value: Any) -> str:
    """Return a value of report.json as text, floats with ten digits."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return DASH
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {plain(entry)}" for key, entry in value.items())
    if isinstance(value, list | tuple):
        separator = "; " if value and isinstance(value[0], Mapping) else ", "
        return separator.join(map(plain, value))
    if isinstance(value, float):
        return f"{value:.10g}" if math.isfinite(value) else number(value)
    return str(value)


def or_infinite(epsilon: float | None) -> str:
    """Return an epsilon where null is no missing value but infinity."""
    return INFINITE if epsilon is None else number(epsilon)


def at_least(epsilon: float | None) -> str:
    """Say what a lower bound proves; 0, or None where there is no bound, is nothing."""
    return f"ε ≥ {number(epsilon)}" if epsilon else "nothing"


def challenge_of(report: Report) -> str:
    """Name what is in question."""
    if not is_client(report):
        copies = at(report, "challenge.records") or 1
        what = "gradient" if at(report, "challenge.kind") == "gradient" else "record"
        return f"the challenge {what}" if copies == 1 else f"{plain(copies)} challenge {what}s"
    client, records = (plain(at(report, f"challenge.{key}")) for key in ("client", "records"))
    return f"all {records} records of client {client}"


def trials_of(report: Report) -> str:
    """Say how many trials there were."""
    trials = at(report, "trials")
    return f"{plain(trials)} trial{'s' * (trials != 1)}"
