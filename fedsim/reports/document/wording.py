"""Numbers and settings as text: a missing number is a dash, an infinite one ∞."""

import math
from collections.abc import Callable, Mapping
from typing import Any

DASH, INFINITE = "–", "∞"
LEAST_SHARE = 0.05


def span(interval: tuple[float, float] | None, wording: Callable[[Any], str]) -> str:
    return f"{wording(interval[0])} to {wording(interval[1])}" if interval else ""


def number(value: float | None) -> str:
    """Return a number as text, with three significant digits or decimals."""
    if value is None or math.isnan(value):
        return DASH
    if math.isinf(value):
        return INFINITE if value > 0 else f"−{INFINITE}"
    if value == round(value) and abs(value) < 1e5:
        return f"{value:.0f}"
    return f"{value:.3f}" if 1e-2 <= abs(value) < 1e5 else f"{value:.3g}"


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def percent(value: float | None) -> str:
    """Return a probability as a percentage, without rounding up to certainty."""
    if value is None or math.isnan(value):
        return DASH
    if value in (0, 1):
        return f"{100 * value:.0f}%"
    if 0.9995 <= value < 1:
        return ">99.9%"
    return f"{100 * value:.1f}%" if value >= 1e-2 else f"{100 * value:.2g}%"


def plain(value: Any) -> str:
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


def would_have_noticed(share: float | None) -> str:
    """Return a sentence about the least shortfall of noise that an audit would have noticed.

    share: share of the claimed noise below which the audit raises an alarm; None if unknown.
    """
    if share is None:
        return ""
    if share < LEAST_SHARE:
        return "Even if nearly all noise were missing, this audit might not detect it."
    # Rounded up, so that the text promises no more than what was computed.
    loss = f"{100 * (1 - min(math.floor(share * 1000), 999) / 1000):.1f}%"
    return (
        f"This audit would detect, with 95% probability, if more than {loss} of the claimed noise "
        "were missing."
    )
