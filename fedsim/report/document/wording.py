"""Numbers and settings as text: a missing number is a dash, an infinite one ∞."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from fedsim.common.foreign_text import shown

DASH, INFINITE = "–", "∞"

LEAST_SHARE = 0.05
"""Below this share of the claimed noise, an audit could see only a total lack of noise."""


def span(interval: tuple[float, float] | None, wording: Callable[[Any], str]) -> str:
    """Return an interval as "low to high"; "" for None."""
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


def unless_learnt(accuracy: float | None, majority: float, fault: str = "") -> str:
    """Return a warning if a model is no better than the majority class's share; "" otherwise.

    fault: another sign that learning failed, which an accuracy above the majority may hide.
    """
    if accuracy is not None and accuracy <= majority:
        return (
            "The model has learnt nothing: it is right no more often than a model that always "
            "answers with the most frequent class. Leave training.learning-rate out: the default "
            'optimiser needs none. Else try more training.rounds, model.name = "linear", or less '
            "noise."
        )
    if not fault:
        return ""
    return (
        f"The model has learnt little: {fault}. Try more training.rounds, another "
        "training.clipping-norm, or a larger privacy.epsilon."
    )


def beside_accuracy(
    majority: float,
    balanced: float | None = None,
    area: float | None = None,
    least_recall: tuple[str, float] | None = None,
) -> str:
    """Return the other measures of a classifier, as text.

    Args:
        majority: share of the most frequent class.
        least_recall: the class with the least recall, and its recall.
    """
    said = f"majority class {percent(majority)}"
    if balanced is not None:
        said += f", balanced accuracy {percent(balanced)}"
    if area is not None:
        said += f", AUC {area:.3f}"
    if least_recall is None:
        return said
    return f"{said}, least recall {percent(least_recall[1])} of class {shown(least_recall[0])}"


def percent(value: float | None) -> str:
    """Return a probability as a percentage, without rounding up to certainty."""
    if value is None or math.isnan(value):
        return DASH
    if value in (0, 1):
        return f"{100 * value:.0f}%"
    if 0.9995 <= value < 1:
        return ">99.9%"
    return f"{100 * value:.1f}%" if value >= 1e-2 else f"{100 * value:.2g}%"


def setting(value: Any) -> str:
    """Return a value of the configuration as text, true and false as yes and no."""
    if value is None:
        return DASH
    if isinstance(value, Mapping) and not value:
        return "none"
    return ("yes" if value else "no") if isinstance(value, bool) else plain(value)


def plain(value: Any) -> str:
    """Return a value as text, floats with ten digits."""
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


def at_least(epsilon: float) -> str:
    """Return a lower bound on epsilon as text, "nothing" for 0."""
    return f"ε ≥ {number(epsilon)}" if epsilon else "nothing"


def would_have_noticed(share: float | None, what: str = "audit") -> str:
    """Return a sentence about the least shortfall of noise that an audit would have noticed.

    Args:
        share: largest share of the claimed noise that the audit would have noticed; None for no
            sentence.
        what: "audit", or "attack" for one of several attacks in an audit.
    """
    if share is None:
        return ""
    if share < LEAST_SHARE:
        return f"This {what} might have missed any shortfall of the noise."
    # Rounded down, so that the sentence promises no more than what was computed.
    shown = math.floor(share * 1000) / 1000
    return (
        f"If the noise had been less than {shown:.3f} of the claim, this {what} would have noticed "
        "it with 95% probability."
    )
