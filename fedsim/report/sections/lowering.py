"""The section about changes that would lower the limits of an adversary."""

import math

from fedsim.audits.results.report import Report
from fedsim.audits.results.verdicts import Change, Towards
from fedsim.report.document.blocks import Block, Cell, Group, Line, Mark, Prose, Table
from fedsim.report.document.wording import number, percent
from fedsim.report.sections.section import Section
from fedsim.report.sections.vantage_words import NAMES, holds_for

COSTS = {
    "privacy.noise-multiplier": "Twice the noise: the model learns less.",
    "training.rounds": "Half the rounds: the model learns less.",
    "training.sampling-rate": "Fewer records in a round: the same noise weighs more in their mean.",
    "federation.sampling-rate": (
        "Fewer clients in a round: the same noise weighs more in their mean."
    ),
    "federation.trust": (
        "No party sees a sum without noise, as long as secure aggregation holds. Participants "
        "can subtract their own share of the noise."
    ),
}

MEANING = (
    "By theory, with one setting changed at a time. Each cell has the largest share of right "
    "answers, and ε with its limit of the belief, which a tail of the trainings passes. A mark "
    "shows where a change allows more than the present setting."
)


def choose(report: Report) -> str:
    """Return the command that finds the least noise which meets a limit, and what it costs.

    The limit is the organisation's own where theory does not keep it yet, and half of what theory
    allows elsewhere. Where no noise protects from this adversary, the command names another trust
    model; "" if no trust model protects.
    """
    protecting = [change for change in report.lowering if _protects(change, report.vantage)]
    if not protecting:
        return ""
    first, suffix = protecting[0], ""
    if first.key:
        suffix = f" --set {first.key}={first.value}"
    (here,) = (found for found in report.verdicts if found.vantage == report.vantage)
    now = here.allowed.advantage
    own = [limit.limit for limit in here.limits if limit.of == "advantage" and limit.limit < now]
    asked = f"{own[0]:.12g}" if own else f"{now / 2:.2g}"
    limit = f"--max-advantage {asked}"
    return f"fedsim choose config.toml {limit} --against {report.vantage}{suffix}"


def _protects(change: Change, vantage: str) -> bool:
    """Return whether noise protects from an adversary at all, with a setting changed."""
    (towards,) = (found for found in change.towards if found.vantage == vantage)
    return math.isfinite(towards.epsilon)


def _cell(found: Towards, now: Towards) -> Cell:
    more = found.rho_alpha > now.rho_alpha or found.epsilon > now.epsilon
    return Cell(
        f"≤ {percent((1 + found.rho_alpha) / 2)}",
        f"ε {number(found.epsilon)}, belief {percent(found.rho_beta)}",
        mark=Mark("caution", "Raises it") if more else None,
        style="value",
    )


def _line(change: Change, now: Change) -> Line:
    name = Cell("As it is")
    if change.key:
        value = change.value if isinstance(change.value, str) else number(change.value)
        was = change.was if isinstance(change.was, str) else number(change.was)
        name = Cell(f"{change.key} = {value}", f"is {was}")
    return Line(
        name,
        [*map(_cell, change.towards, now.towards), Cell(COSTS.get(change.key, ""), style="")],
        here=not change.key,
    )


def _words(report: Report) -> list[Block]:
    if not report.lowering:
        return []
    command = choose(report)
    found = f" In the run's directory, {command} finds the least noise that meets a limit, with "
    found += "the accuracy that remains."
    vantages = [NAMES[found.vantage] for found in report.lowering[0].towards]
    return [
        Prose(f"{MEANING} {holds_for(report)}"),
        Table(
            ("Setting", *(f"Towards the {name}" for name in vantages), "At what price"),
            [Group("", [_line(change, report.lowering[0]) for change in report.lowering])],
            style="vantages",
        ),
        Prose(
            f"One run cannot say what a change costs in accuracy.{found * bool(command)}",
            small=True,
        ),
    ]


SECTION = Section("What would lower it", _words)
