"""Interim results of the finished trials of a campaign, and the rule that ends it early.

The n-th look uses 1/(n (n + 1)) of the significance. These shares sum to 1, so all intervals
together hold with the stated confidence (Bonferroni).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import expit

from adversaries.arrays import Bools, Floats
from adversaries.errors import InputError
from adversaries.statistics import estimators, stopping
from adversaries.statistics.design import Design
from fedsim.common.strict_json import strict_json
from fedsim.config.campaign import TrialsConfig
from fedsim.config.objects import Scheme
from fedsim.game.mechanisms import privacy
from fedsim.privacy import identifiability


def interim_analyses(trials: TrialsConfig, confidence: float) -> dict[int, float]:
    """Return the number of trials of each interim analysis, and its share of significance."""
    if not trials.until_halfwidth:
        return {}
    common = trials.pairing == "common"
    return stopping.interim_analyses(
        trials.until_halfwidth, confidence, trials.count, trials.batch, common
    )


def design(trials_config: TrialsConfig, confidence: float, trials: int) -> Design:
    """Return the design of a campaign that ends, or is analysed, after a number of trials."""
    planned = interim_analyses(trials_config, confidence) or {trials: 1.0}
    if trials not in planned:
        raise InputError(
            f"there are {trials} trials, but interim analyses were planned at "
            f"{', '.join(map(str, planned))}. They use all of the significance, so no interval "
            "would hold here. If config.toml was changed, restore trials.batch, "
            "trials.until-halfwidth and audit.confidence, or begin another run (run.out)."
        )
    return Design(trials_config.pairing == "common", planned[trials])


def halfwidth(trials: TrialsConfig, confidence: float, worlds: Bools, log_odds: Floats) -> float:
    """Return half the length of the advantage's interval after some trials, at audit.confidence."""
    played = design(trials, confidence, len(worlds))
    interval = estimators.advantage(worlds, log_odds, confidence, played).interval
    return (interval.high - interval.low) / 2


def look(
    confidence: float,
    pairing: str,
    worlds: Bools,
    log_odds: Floats,
    accuracies: Sequence[Floats],
    number: int,
) -> dict[str, Any]:
    """Return the interim results of all finished trials, for an event.

    accuracies: for each batch, those of its evaluated trials by round, [k + 1, E].
    number: of this look, from 1.
    Returns: the `advantage` with its `advantage_interval`; the largest `belief` in the record of a
    trial that used it; and the mean final `accuracy`. Infinity is None.
    """
    results: dict[str, Any] = {}
    if len(worlds) > 1:
        design = Design(pairing == "common", 1 / (number * (number + 1)))
        achieved = estimators.advantage(worlds, log_odds, confidence, design)
        ends = [*achieved.interval.ends]
        results |= {"advantage": achieved.point, "advantage_interval": ends}
    if worlds.any():
        results["belief"] = float(expit(log_odds[worlds].max()))
    if final := [each[-1] for each in accuracies if each.size]:
        results["accuracy"] = float(np.concatenate(final).mean())
    return strict_json(results)


def limits(scheme: Scheme, noise_multiplier: float) -> dict[str, float]:
    """Return rho_alpha and rho_beta of all planned rounds; empty under PAC noise."""
    if scheme.privacy.noise.mechanism.by_candidate:
        return {}
    mechanism = privacy.mechanism(scheme, noise_multiplier)
    bounds = identifiability.bounds(mechanism, scheme.privacy.delta, scheme.privacy.accountant)
    return {"rho_alpha": bounds.rho_alpha, "rho_beta": bounds.rho_beta}
