"""What a run's report says of its one-run audit: what canaries prove, beside what is claimed."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from adversaries import one_run as estimators
from adversaries.intervals import ALARM_CONFIDENCE
from fedsim import figures, gaussian, one_run
from fedsim.accounting import PLD
from fedsim.check import Check
from fedsim.config import Config
from fedsim.description import Description
from fedsim.mechanism import Vantage, aggregate_noise_multiplier, sensitivity
from fedsim.report_rows import Row, beside_theory, gap
from fedsim.report_values import (
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
from fedsim.run_directory import Arrays

HEADLINE = 0
"""The trial whose audit is the headline: the first, whatever the others say."""

LEADING = "f_dp"
"""The bound that is the headline: the tighter one. What else it assumes, a Gaussian trade-off
curve, all runs with canaries have: their steps are not sampled."""

HEADLINE_NAME = "one-run f-DP bound"

NAMES = {"binomial": "binomial bound", "f_dp": "f-DP bound", "estimate": "estimate"}

NOTE = (
    "About the guarantee of one canary added or left out. A canary adds at most the clipping norm "
    "to a sum, as anybody may, so that everybody else's guarantee is as it was."
)


def report(
    config: Config, transcript: Arrays, description: Description, delta: float, confidence: float
) -> dict[str, Any] | None:
    """Return the `one_run` of report.json; None where no canaries were planted.

    From `canary_scores` and `canaries_included` [T, m]. kind, unit, count, owners, included: what
    was planted; known_data: whether scores leave out what the data add; headline_trial; bounds,
    estimate: of that trial, as `adversaries.one_run` has them;
    spread: of every trial's epsilon, where it has one, the 5, 50 and 95 % quantiles and the share
    above canary_epsilon, None for one trial; claimed_epsilon: of the guarantee towards a
    participant; canary_mu, canary_epsilon: of one canary, by the noise claimed, towards whoever
    sees the aggregates and knows none of their noise; scores: histograms; alarm: what contradicts
    the claim with confidence .999, or None; note. Raises InputError.
    """
    scores, coins = transcript.get("canary_scores"), transcript.get("canaries_included")
    if scores is None or coins is None:
        return None
    guesses, mine = config.canaries.guesses, (coins[HEADLINE], scores[HEADLINE])
    mu = canary_mu(description)
    limit = gaussian.epsilon(mu, delta) if math.isfinite(mu) else math.inf
    bounds = {
        "binomial": estimators.binomial_bound(*mine, delta, confidence, guesses),
        "f_dp": estimators.f_dp_bound(*mine, delta, confidence, guesses),
    }
    everybody = {
        "binomial": estimators.binomial_bounds(coins, scores, delta, confidence, guesses),
        "f_dp": estimators.f_dp_bounds(coins, scores, delta, confidence, guesses),
        "estimate": estimators.client_canary_estimates(coins, scores, delta),
    }
    return {
        "kind": config.canaries.kind,
        "known_data": config.canaries.known_data,
        "unit": config.privacy.unit,
        "count": config.canaries.count,
        "owners": sorted(set(one_run.hosts(config).tolist())),
        "included": int(mine[0].sum()),
        "trials": len(scores),
        "headline_trial": HEADLINE,
        "delta": delta,
        "confidence": confidence,
        "claimed_epsilon": PLD.epsilon(description.towards(Vantage.PARTICIPANT), delta),
        "canary_mu": mu,
        "canary_epsilon": limit,
        "bounds": {name: asdict(bound) for name, bound in bounds.items()},
        "estimate": asdict(estimators.client_canary_estimate(*mine, delta, confidence)),
        "spread": {
            name: _spread(there, limit)
            for name, found in everybody.items()
            if (there := found[~np.isnan(found)]).size
        }
        if len(scores) > 1
        else None,
        "scores": _histogram(*mine),
        "alarm": _alarm(mine, guesses, delta, limit),
        "note": NOTE,
    }


def canary_mu(description: Description) -> float:
    """Return mu of one canary of norm C in all rounds, towards the aggregates alone.

    An upper bound: the gradient of a mislabelled record may be shorter. inf without noise.
    """
    # In units of the sensitivity, which is 2C where records are replaced.
    relative = 1 / sensitivity(description.neighbouring, 1.0)
    total = 0.0
    for alike in description.rounds:
        multiplier = aggregate_noise_multiplier(
            alike.noise_multiplier,
            description.trust,
            description.owners,
            alike.participants or description.owners,
        )
        total += math.inf if not multiplier else alike.count * (relative / multiplier) ** 2
    return math.sqrt(total)


def checks(found: Mapping[str, Any] | None) -> list[Check]:
    """Return the check of a one-run audit against its claim, where there is one."""
    return [Check("one_run", found["alarm"])] if found else []


def cautions(found: Mapping[str, Any] | None) -> list[str]:
    """Return what a reader must know of the canaries before the other numbers."""
    if not found:
        return []
    return [
        f"{found['count']} canaries were planted, each in or out by a coin: they cost utility, and "
        "the beliefs are of an adversary who knows them."
    ]


def headline(report: Report) -> Mapping[str, Any] | None:
    """Return the bound that leads, of the headline's trial; None where no canaries were planted."""
    bound: Mapping[str, Any] | None = at(report, f"one_run.bounds.{LEADING}")
    return bound if at(bound or {}, "epsilon") is not None else None


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
    owners = ", ".join(map(str, found["owners"]))
    less = ", less what the auditor knew that the data add" if found["known_data"] else ""
    return [
        f"{plain(found['count'])} canaries of kind “{found['kind']}” were planted at owners "
        f"{owners}, each in the whole training or not by a fair coin, and scored by the aggregates "
        f"of all rounds{less}. The headline is trial {found['headline_trial']}, decided before the "
        "run; every other trial is another such audit.",
        found["note"],
        *([found["alarm"]] if found["alarm"] else []),
    ]


def drawn(report: Report) -> tuple[Figure, str, str] | None:
    """Return the figure of the headline's scores, with its title and caption; None without any."""
    scores = at(report, "one_run.scores")
    if not scores:
        return None
    return (
        figures.canary_scores(*(np.asarray(scores[name]) for name in ("edges", "in", "out"))),
        "Canaries in and out.",
        f"The scores of the canaries of trial {plain(at(report, 'one_run.headline_trial'))}: the "
        "less the two overlap, the more of them are guessed.",
    )


def _ends(interval: Mapping[str, Any]) -> tuple[float, float] | None:
    return interval_at({"ends": [interval["low"], interval["high"]]}, "ends")


def _spread(epsilons: npt.NDArray[np.float64], limit: float) -> dict[str, float]:
    # No number between two values: either may be infinite.
    low, high = np.quantile(epsilons, (0.05, 0.95), method="inverted_cdf").tolist()
    above, median = float((epsilons > limit).mean()), float(np.median(epsilons))
    return {"low": low, "median": median, "high": high, "above": above}


def _histogram(
    included: npt.NDArray[np.bool_], scores: npt.NDArray[np.float64]
) -> dict[str, list[float]]:
    edges = np.histogram_bin_edges(scores, 40)
    counts = {"in": scores[included], "out": scores[~included]}
    found = {name: np.histogram(those, edges)[0].tolist() for name, those in counts.items()}
    return {"edges": edges.tolist(), **found}


def _alarm(
    mine: tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]],
    guesses: int,
    delta: float,
    limit: float,
) -> str | None:
    # One of the two would do; both are looked at, so that each has half of what may go wrong.
    sure = 1 - (1 - ALARM_CONFIDENCE) / 2
    proven = max(
        estimators.binomial_bound(*mine, delta, sure, guesses).epsilon,
        estimators.f_dp_bound(*mine, delta, sure, guesses).epsilon,
    )
    if proven <= limit:
        return None
    return (
        f"The canaries show more than the claimed noise allows: epsilon is at least {proven:.3f} "
        f"with confidence {ALARM_CONFIDENCE:g}, but {limit:.3f} at delta {delta:g} by theory. The "
        "noise is not what was accounted for, or a canary is longer than the clipping norm."
    )


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
