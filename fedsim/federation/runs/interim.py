"""What the finished trials of a campaign show, for whoever looks on while the others run.

A reader who looks after every batch of trials, and may stop at any, is misled more often than one
interval says. So the n-th look has 1/(n (n + 1)) of the significance: the shares sum to 1 however
many looks there are, and all intervals together hold with the stated confidence (Bonferroni). They
are wider than the report's, which has all of the significance and is looked at once.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import expit

from adversaries.statistics import estimators
from adversaries.statistics.design import Design
from adversaries.statistics.trials import Bools, Floats
from fedsim.common.strict_json import strict_json
from fedsim.config.objects import Scheme
from fedsim.game.mechanisms import privacy
from fedsim.privacy import identifiability


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
    encoded: dict[str, Any] = strict_json(found)
    return encoded


def limits(scheme: Scheme, noise_multiplier: float) -> dict[str, float]:
    """Return what theory allows at the configured vantage: rho_alpha and rho_beta.

    Of all rounds that are planned. Empty under PAC noise, whose bound is another one.
    """
    if scheme.privacy.noise.mechanism.by_candidate:
        return {}
    mechanism = privacy.mechanism(scheme, noise_multiplier)
    found = identifiability.bounds(mechanism, scheme.privacy.delta, scheme.privacy.accountant)
    return {"rho_alpha": found.rho_alpha, "rho_beta": found.rho_beta}
