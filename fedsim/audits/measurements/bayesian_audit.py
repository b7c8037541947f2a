"""The Bayesian accountant's epsilon of a run, from the distances that its clients gathered."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.arrays import Floats
from adversaries.statistics.intervals import check_positive_delta
from fedsim.audits.results.theory import Bayesian, OverTrials
from fedsim.configuration.training import TrainingConfig
from fedsim.federation.runs.run_directory import Arrays
from fedsim.privacy import bayesian
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Neighbouring, sensitivity
from fedsim.privacy.releases import Releases
from fedsim.privacy.trust.model import Vantage


def bayesian_report(
    training: TrainingConfig,
    neighbouring: Neighbouring,
    vantage: Vantage,
    transcript: Arrays,
    delta: float,
    releases: Releases,
) -> Bayesian | None:
    """Return the `bayesian` of report.json; None where no distances were gathered.

    Reads `bayesian_distances` [E, k, m] and the `noise_stds` of the same trials towards the audited
    vantage. A step costs what `bayesian.estimate` returns, and at most the cost of the longest
    distance that clipping allows. The note says why an epsilon is not stated.
    """
    distances = transcript.get("bayesian_distances")
    if distances is None:
        return None
    check_positive_delta(delta)
    trials, rounds, pairs = distances.shape
    # Each round has an estimate of its own, so their failure probabilities add up.
    gamma = bayesian.GAMMA * rounds
    unknown: dict[str, Any] = dict.fromkeys(
        ("epsilon", "epsilon_at_percentile", "orders", "worst_case_epsilon")
    )
    stated = Bayesian(
        delta=delta,
        gamma=gamma,
        pairs=pairs,
        percentile=bayesian.PERCENTILE,
        trials=trials,
        dp_epsilon=PLD.epsilon(releases.towards(vantage), delta),
        note="",
        **unknown,
    )
    if note := _why_unstated(releases.count - rounds, delta, gamma, pairs):
        return replace(stated, note=note)
    strict = bayesian.delta_at_percentile(delta, bayesian.PERCENTILE)
    spent, worst = _spent(training, neighbouring, transcript)
    mean, orders = bayesian.epsilons(spent, bayesian.ORDERS, delta, gamma)
    each, strict_orders = bayesian.epsilons(spent, bayesian.ORDERS, strict, gamma)
    last = np.concatenate((mean[:, -1], each[:, -1]))
    last_orders = np.concatenate((orders[:, -1], strict_orders[:, -1]))
    dearest = math.inf
    if training.clipping:
        # The longest distance that clipping allows needs no estimate, and so no gamma.
        dearest = float(bayesian.epsilons(worst.sum(axis=1), bayesian.ORDERS, delta)[0].max())
    return replace(
        stated,
        epsilon=_over_trials(mean[:, -1]),
        epsilon_at_percentile=_over_trials(each[:, -1]),
        orders=(int(last_orders.min()), int(last_orders.max())),
        worst_case_epsilon=dearest,
        note=_note(neighbouring, training.sampling_rate, last, last_orders),
    )


def _why_unstated(earlier: int, delta: float, gamma: float, pairs: int) -> str:
    """Return why this accountant can state no epsilon; "" where it can."""
    if earlier > 0:
        return (
            f"the {earlier} rounds that interrupted attempts released have no distances, so that "
            "the cost of all rounds together is unknown"
        )
    strict = bayesian.delta_at_percentile(delta, bayesian.PERCENTILE)
    if strict <= gamma:
        return (
            f"delta {delta:g} is too small: it leaves {strict:g} for a record at the percentile, "
            f"but must leave more than the estimator's failure probability {gamma:g}"
        )
    return "one distance in a round shows no spread: gather more pairs" if pairs < 2 else ""


def _spent(
    training: TrainingConfig, neighbouring: Neighbouring, transcript: Arrays
) -> tuple[Floats, Floats]:
    """Return log-moments by trial, round and order: cumulative costs, and each round's largest."""
    distances = transcript["bayesian_distances"]
    trials, rounds, _ = distances.shape
    stds = transcript["noise_stds"][:trials]
    step = training.sampling_rate, neighbouring
    bound = sensitivity(neighbouring, training.clipping_norm)
    worst = bayesian.log_moments(bayesian.ORDERS, bound, stds, *step)
    costs = bayesian.step_costs(bayesian.ORDERS, distances, stds, rounds, *step)
    if training.clipping:  # no expectation exceeds what clipping allows, whatever the sample shows
        costs = np.minimum(costs, worst)
    # A sum over some of the rounds bounds their loss too. The exponents of Theorem 1 need not add
    # up to 1: the expectation of a power below 1 is at most that power of the expectation.
    return costs.cumsum(axis=1), worst


def _over_trials(epsilons: Floats) -> OverTrials:
    return OverTrials(float(epsilons.mean()), float(epsilons.max()))


def _note(
    neighbouring: Neighbouring, record_rate: float, epsilons: Floats, orders: npt.NDArray[Any]
) -> str:
    if np.isinf(epsilons).any():
        return "a step had no noise: epsilon is infinite"
    notes = []
    if (orders[epsilons > 0] == bayesian.ORDERS.max()).any():
        notes.append("the best order is the largest tried: larger ones may give a smaller epsilon")
    replaced = neighbouring is Neighbouring.REPLACE
    if replaced and record_rate < 1:
        notes.append("sampled steps of replaced records are bounded by convexity, which is loose")
    return "; ".join(notes)
