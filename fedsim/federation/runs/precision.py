"""What the finished trials of a campaign show, and when they are precise enough.

The design (`adversaries.statistics.design`) is the configuration's: whether pairs of trials share
their random numbers, and whether the trials stop by what they showed.

A reader who looks after every batch of trials, and may stop at any, is misled more often than one
interval says. So the n-th look has 1/(n (n + 1)) of the significance: the shares sum to 1 however
many looks there are, and all intervals together hold with the stated confidence (Bonferroni). They
are wider than the report's, which has all of the significance and is looked at once.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import expit

from adversaries.errors import InputError
from adversaries.statistics import estimators, stopping
from adversaries.statistics.design import Design
from adversaries.statistics.trials import Bools, Floats
from fedsim.common.strict_json import strict_json
from fedsim.config.campaign import TrialsConfig
from fedsim.config.objects import Scheme
from fedsim.game.mechanisms import privacy
from fedsim.privacy import identifiability


def interim_analyses(trials: TrialsConfig, confidence: float) -> dict[int, float]:
    """Return after how many trials the interim analyses are, and each one's share.

    Of the significance; empty where all trials are run whatever they show.

    confidence: of every interval and bound, in (0, 1).
    """
    if not trials.until_halfwidth:
        return {}
    common = trials.pairing == "common"
    return stopping.interim_analyses(
        trials.until_halfwidth, confidence, trials.count, trials.batch, common
    )


def design(trials_config: TrialsConfig, confidence: float, trials: int) -> Design:
    """Return the design of a campaign that ended, or is analysed, after so many trials.

    Raises InputError if trials stop by what they show, and no interim analysis was planned here.
    """
    planned = interim_analyses(trials_config, confidence) or {trials: 1.0}
    if trials not in planned:
        raise InputError(
            f"there are {trials} trials, but interim analyses were planned at "
            f"{', '.join(map(str, planned))}, which have all of the significance: no interval "
            "would hold; put trials.batch, trials.until-halfwidth and "
            "audit.confidence back where config.toml was changed, or begin another run (run.out)"
        )
    return Design(trials_config.pairing == "common", planned[trials])


def halfwidth(trials: TrialsConfig, confidence: float, worlds: Bools, log_odds: Floats) -> float:
    """Return half the length of the advantage's interval after some trials, at audit.confidence.

    worlds: bool [T].
    log_odds: the final ones of the configured vantage, [T].
    """
    played = design(trials, confidence, len(worlds))
    found = estimators.advantage(worlds, log_odds, confidence, played).interval
    return (found.high - found.low) / 2


def look(
    confidence: float,
    pairing: str,
    worlds: Bools,
    log_odds: Floats,
    accuracies: Sequence[Floats],
    number: int,
) -> dict[str, Any]:
    """Return what an event says of all trials that are finished.

    pairing: whether trials are "independent", or "common": 2i and 2i + 1 are in opposite worlds and
    have all random numbers but that bit in common.
    worlds: bool [T], of the finished trials.
    log_odds: their final ones at the configured vantage, [T].
    accuracies: of each batch, those of its evaluated trials by round, [k + 1, E]; may be empty.
    number: of this look, from 1: how many batches are finished.
    Returns: `advantage` with its `advantage_interval`, `belief`, the largest in the record of a
    trial that used it, and the mean final `accuracy`: each where there is one. Infinity is None.
    """
    found: dict[str, Any] = {}
    if len(worlds) > 1:
        design = Design(pairing == "common", 1 / (number * (number + 1)))
        achieved = estimators.advantage(worlds, log_odds, confidence, design)
        ends = achieved.interval
        found |= {"advantage": achieved.point, "advantage_interval": [ends.low, ends.high]}
    if worlds.any():
        found["belief"] = float(expit(log_odds[worlds].max()))
    if final := [each[-1] for each in accuracies if each.size]:
        found["accuracy"] = float(np.concatenate(final).mean())
    return strict_json(found)


def limits(scheme: Scheme, noise_multiplier: float) -> dict[str, float]:
    """Return what theory allows at the configured vantage: rho_alpha and rho_beta.

    Of all rounds that are planned. Empty under PAC noise, whose bound is another one.
    """
    if scheme.privacy.noise.mechanism.by_candidate:
        return {}
    mechanism = privacy.mechanism(scheme, noise_multiplier)
    found = identifiability.bounds(mechanism, scheme.privacy.delta, scheme.privacy.accountant)
    return {"rho_alpha": found.rho_alpha, "rho_beta": found.rho_beta}
