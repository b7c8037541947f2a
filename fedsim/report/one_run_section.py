"""What a report says of its one-run audit."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fedsim.audits.one_run_report import HEADLINE_NAME, LEADING, NAMES
from fedsim.figures import belief_figures
from fedsim.report.report_rows import Row, beside_theory, gap
from fedsim.report.report_values import (
    DASH,
    Report,
    at,
    at_least,
    interval_at,
    number,
    or_infinite,
    percent,
    plain,
    span,
)


def headline(report: Report) -> Mapping[str, Any] | None:
    """Return the bound that leads, of the headline's trial; None where no canaries were planted."""
    bound: Mapping[str, Any] | None = at(report, f"one_run.bounds.{LEADING}")
    return None if at(bound, "epsilon") is None else bound


def entries(report: Report) -> list[tuple[str, str]]:
    """Return the rows of the page's section; nothing where no canaries were planted."""
    found = at(report, "one_run")
    if not found:
        return []
    limit = number(at(found, "canary_epsilon"))
    rows = [
        ("ε claimed, towards a participant", number(at(found, "claimed_epsilon"))),
        ("ε of one canary by the claimed noise", f"{limit} (μ = {number(at(found, 'canary_mu'))})"),
    ]
    for name in ("binomial", "f_dp"):
        bound = at(found, f"bounds.{name}")
        details = bound["details"]
        rows.append(
            (
                f"ε at least, {NAMES[name]}",
                f"{number(bound['epsilon'])} with {percent(bound['confidence'])} confidence: "
                f"{plain(details['right'])} of {plain(details['guesses'])} guesses right. Assumes "
                f"{bound['assumes']}.",
            )
        )
    estimate, reason = at(found, "estimate"), at(found, "estimate.reason")
    between = span(_ends(estimate["epsilon_interval"]), number)
    rows.append(
        (
            "ε estimated, no confidence statement",
            f"none: {reason}"
            if reason
            else f"{number(estimate['epsilon'])} (μ = {number(estimate['mu'])}; {between or DASH} "
            f"at {percent(found['confidence'])}). Presumes {estimate['assumes']}",
        )
    )
    for name, spread in (at(found, "spread") or {}).items():
        low, median, high = (number(spread[quantile]) for quantile in ("low", "median", "high"))
        rows.append(
            (
                f"Over {plain(found['trials'])} trials, {NAMES[name]}",
                f"median {median}, 90% of trials {low} to {high}, "
                f"{percent(spread['above'])} above {limit}",
            )
        )
    return rows


def summary(report: Report) -> list[tuple[str, str]]:
    """Return the three numbers for the terminal; nothing where no canaries were planted."""
    found = at(report, "one_run")
    if not found:
        return []
    values = {name: number(bound["epsilon"]) for name, bound in found["bounds"].items()}
    estimate = found["estimate"]
    values["estimate"] = DASH if estimate["reason"] else number(estimate["epsilon"])
    return [(f"ε one run, {NAMES[name]}", value) for name, value in values.items()]


def reading(report: Report) -> list[str]:
    """Return, in whole sentences, what was done and what it is about."""
    found = at(report, "one_run")
    if not found:
        return []
    clients = ", ".join(map(str, found["clients"]))
    less = ", less what the auditor knew that the data add" if found["known_data"] else ""
    return [
        f"{plain(found['count'])} canaries of kind “{found['kind']}” were planted at clients "
        f"{clients}, each in the whole training or not by a fair coin, and scored by the "
        f"aggregates of all rounds{less}. The headline is trial {found['headline_trial']}, decided "
        "before the run; every other trial is another such audit.",
        found["note"],
        *([found["alarm"]] if found["alarm"] else []),
    ]


def drawn(report: Report) -> tuple[Figure, str, str] | None:
    """Return the figure of the headline's scores, with its title and caption; None without any."""
    scores = at(report, "one_run.scores")
    if not scores:
        return None
    return (
        belief_figures.canary_scores(
            *(np.asarray(scores[name]) for name in ("edges", "in", "out"))
        ),
        "Canaries in and out.",
        f"The scores of the canaries of trial {plain(at(report, 'one_run.headline_trial'))}: the "
        "less the two overlap, the more of them are guessed.",
    )


def _ends(interval: Mapping[str, Any]) -> tuple[float, float] | None:
    return interval_at({"ends": [interval["low"], interval["high"]]}, "ends")


def proven(report: Report) -> Row | None:
    """Return the headline of the one-run audit beside its claim; None where there is none."""
    bound = headline(report)
    if bound is None:
        return None
    value, limit = bound["epsilon"], at(report, "one_run.canary_epsilon")
    claimed = or_infinite(at(report, "one_run.claimed_epsilon"))
    mark = None if limit is None else beside_theory(report, "one_run", value, limit)
    return Row(
        "How much privacy loss is proven?",
        at_least(value),
        DASH if limit is None else f"ε ≤ {number(limit)}",
        f"By the {HEADLINE_NAME}, of one canary. Claimed: ε = {claimed} towards a "
        f"participant. {gap(mark, limit is None, 'canaries')}",
        f"one trial, {percent(bound['confidence'])} confidence",
        mark if value else None,
    )
