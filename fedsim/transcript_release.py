"""What the releases of a recorded run say of the noise, and of every owner's privacy under it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from scipy.special import expit

from adversaries import lower_bounds, noisy_means
from adversaries.intervals import ALARM_CONFIDENCE, Interval
from adversaries.noisy_means import Release
from fedsim import gaussian, noise_shape
from fedsim.identifiability import rho_beta_of_epsilon
from fedsim.transcript_findings import finding

BYSTANDERS = 20
"""Directions of nobody's update that are scored in every round, for the false positive rate."""

SIMULATION_SEED = 0x7EA1
"""Of bystanders and of dither: whoever audits the same transcript gets the same report."""

EXCESS = 1e-3
"""Share by which an update may pass the clipping norm: clients clip in single precision."""

NEIGHBOURS = (
    "neighbours: the owner's update of every round, or no change in its place; weights and number "
    "of owners stay (replacing an update by another doubles the sensitivity)"
)

COUNT = "the noisy count of clipped updates is released too, and composed; of beliefs it is no part"

NO_SCORES = (
    "no lower bound on one release: no owner changed the model in any round, and there is nothing "
    "to find one by"
)

HIDDEN = (
    "rounding hides the noise: the configured noise is no larger than what rounding may leave over "
    "of a model in this precision, so that nobody can tell from here whether it was added"
)

NO_NOISE = (
    "no noise: nothing but rounding is left over. Of updates as they were sent epsilon is infinite "
    "and the belief certain; noise that owners add before they send is not seen from here"
)


def measured(
    releases: Sequence[Release],
    towards: str,
    delta: float,
    confidence: float,
    findings: list[dict[str, Any]],
    *,
    declared: bool = False,
) -> dict[str, Any]:
    """Return what the releases of a run say of noise and owners; append what is wrong.

    declared: whether clipping and noise were declared, rather than read off Flower's own code.
    """
    noiseless = [release for release in releases if release.noiseless]
    claimed = all(release.claimed_std for release in releases)
    # Noise that is configured below rounding may be there or not.
    hidden = claimed and any(
        (release.claimed_std or 0.0) <= noisy_means.ROUNDING_MARGIN * release.rounding
        for release in noiseless
    )
    # Without a claim every round is presumed to have the same noise.
    scales = [release.claimed_std if claimed else 1.0 for release in releases]
    interval = _relative_std(releases, scales, confidence)
    sure = _relative_std(releases, scales, ALARM_CONFIDENCE)
    point = math.sqrt(
        sum(
            release.energy / (scale or 1.0) ** 2
            for release, scale in zip(releases, scales, strict=True)
        )
        / sum(release.size for release in releases)
    )
    if hidden:
        interval, sure = replace(interval, low=0.0), replace(sure, low=0.0)
    elif noiseless:
        point, interval, sure = (
            0.0,
            Interval(0.0, 0.0, confidence),
            replace(sure, low=0.0, high=0.0),
        )
    noise = "hidden" if hidden else _verdict(bool(noiseless), claimed, sure)
    if hidden:
        findings.append(finding("caution", HIDDEN))
    elif noiseless:
        where = "" if len(noiseless) == len(releases) else f" in {len(noiseless)} rounds"
        said = "alarm" if claimed else "note"
        findings.append(finding(said, NO_NOISE.replace("no noise", f"no noise{where}", 1)))
    elif noise in ("less", "more"):
        findings.append(
            finding(
                "alarm" if noise == "less" else "caution",
                f"the noise is {noise} than configured: {sure.low:.4g} to {sure.high:.4g} "
                f"times its standard deviation ({ALARM_CONFIDENCE:.1%} confidence)",
            )
        )
    if not noiseless:
        # Against the size that was measured: against the claim, too little noise everywhere would
        # be said of every array.
        stds = [point * (scale or 1.0) for scale in scales]
        noise_shape.check(releases, stds, findings, declared=declared)
    # A claim that the data do not contradict is more exact than what they say.
    factor = 1.0 if noise in ("as claimed", "hidden") else point
    stds = [
        0.0 if release.noiseless and not hidden else factor * (scale or 1.0)
        for release, scale in zip(releases, scales, strict=True)
    ]
    empirical = None if noiseless else _empirical(releases, stds, delta, confidence)
    if empirical is None and not noiseless:
        findings.append(finding("note", NO_SCORES))
    ends = {"point": point, "low": interval.low, "high": interval.high}
    sure_ends = {"point": point, "low": sure.low, "high": sure.high}
    # What supports a claim: noise that is there for sure, or configured and not contradicted.
    least = max(sure.low, 1.0) if noise in ("as claimed", "more") else sure.low
    return {
        "towards": towards,
        "parameters": releases[0].size,
        "clipped": all(release.clipping_norm is not None for release in releases),
        "count_known": all(release.count_std != 0 for release in releases),
        "noise": noise,
        "claimed_std": [release.claimed_std for release in releases],
        "left_over_std": [release.left_over for release in releases],
        "left_over_interval": [
            asdict(noisy_means.std_interval(release.energy, release.size, confidence))
            for release in releases
        ],
        "rounding_std": [release.rounding for release in releases],
        "realised_over_claimed": ends | {"confidence": confidence} if claimed else None,
        "claimed_noise_multiplier": _composed(releases, scales) if claimed else None,
        "noise_multiplier": _noise_multipliers(releases, scales, ends),
        "round_numbers": [release.round for release in releases],
        "owners": _owners(releases, scales, stds, ends, delta),
        "proven": _proven(releases, scales, stds, sure_ends, delta, least),
        "empirical": empirical,
        "normality_p_value": noisy_means.normality(releases),
        "assumptions": [
            NEIGHBOURS,
            "every round counts in which the owner took part; no amplification by sampling",
            "the weights of the mean are public",
            *([COUNT] if any(release.count_std is not None for release in releases) else []),
        ],
    }


def _relative_std(
    releases: Sequence[Release], scales: Sequence[float | None], confidence: float
) -> Interval:
    """Return an interval for the noise over its scale; what rounding may have left is no noise."""
    freedom = sum(release.size for release in releases)
    most, least = 0.0, 0.0
    for release, scale in zip(releases, scales, strict=True):
        most += release.energy / (scale or 1.0) ** 2
        least += release.energy_of_noise / (scale or 1.0) ** 2
    high = noisy_means.std_interval(most, freedom, confidence).high
    return Interval(noisy_means.std_interval(least, freedom, confidence).low, high, confidence)


def _proven(
    releases: Sequence[Release],
    scales: Sequence[float | None],
    stds: Sequence[float],
    ends: Mapping[str, float],
    delta: float,
    least: float,
) -> dict[str, Any]:
    """Return what holds as surely as an alarm must: ends of the noise, and the worst epsilon.

    least: the least noise that there may be, over its scale.
    """
    owners = _owners(releases, scales, stds, ends, delta)
    under_least = _owners(releases, scales, stds, dict.fromkeys(ends, least), delta)
    worst = max(owners, key=lambda owner: owner["epsilon"]["low"])
    return {
        "confidence": ALARM_CONFIDENCE,
        "noise_multiplier": _noise_multipliers(releases, scales, ends),
        "node": worst["node"],
        "epsilon": worst["epsilon"]["low"],
        "unbounded": math.isinf(worst["epsilon"]["low"]),
        "epsilon_at_most": max(owner["epsilon"]["point"] for owner in under_least),
    }


def _verdict(noiseless: bool, claimed: bool, sure: Interval) -> str:
    if noiseless:
        return "none"
    if not claimed:
        return "unclaimed"
    if sure.high < 1:
        return "less"
    return "more" if sure.low > 1 else "as claimed"


def _composed(releases: Sequence[Release], scales: Sequence[float | None]) -> float | None:
    """Return the multiplier of equal steps that compose to these: s n/C of n owners alike."""
    inverse = 0.0
    for release, scale in zip(releases, scales, strict=True):
        if not release.clipping_norm or not scale:
            return None
        largest = release.clipping_norm / len(release.contributions)
        inverse += (largest / scale) ** 2
    return math.sqrt(len(releases) / inverse)


def _noise_multipliers(
    releases: Sequence[Release], scales: Sequence[float | None], ends: Mapping[str, float]
) -> dict[str, float] | None:
    composed = _composed(releases, scales)
    return None if composed is None else {name: composed * end for name, end in ends.items()}


def _owners(
    releases: Sequence[Release],
    scales: Sequence[float | None],
    stds: Sequence[float],
    ends: Mapping[str, float],
    delta: float,
) -> list[dict[str, Any]]:
    """Return for each owner the guarantee of the noise that was measured, and the belief."""
    nodes = sorted({node for release in releases for node in release.contributions})
    return [_owner(node, releases, scales, stds, ends, delta) for node in nodes]


def _owner(
    node: int,
    releases: Sequence[Release],
    scales: Sequence[float | None],
    stds: Sequence[float],
    ends: Mapping[str, float],
    delta: float,
) -> dict[str, Any]:
    unit, realised, bounded, steps, counts = 0.0, 0.0, True, 0, 0.0
    log_odds, rounds, total = [], [], 0.0
    for release, scale, std in zip(releases, scales, stds, strict=True):
        part = release.contributions.get(node)
        if part is not None:
            steps += 1
            bounded = bounded and release.clipping_norm is not None
            # Once longer than clipping allows, the update itself is what must be hidden.
            reach = max(part.weight * (release.clipping_norm or 0.0), part.norm / (1 + EXCESS))
            unit = math.hypot(unit, reach / (scale or 1.0))
            loudness = part.norm / std if std else (math.inf if part.norm else 0.0)
            realised = math.hypot(realised, loudness)
            total += noisy_means.log_likelihood_ratio(part, std)
            if release.count_std is not None:
                # One owner changes the count by 1.
                counts += release.count_std**-2 if release.count_std else math.inf
        log_odds.append(total)
        rounds.append(release.round)
    # More noise is less epsilon: the ends of the interval change places.
    mu = {
        name: math.hypot(unit / ends[end], math.sqrt(counts)) if ends[end] else math.inf
        for name, end in (("point", "point"), ("low", "high"), ("high", "low"))
    }
    if math.isinf(counts) and ends["high"]:
        mu["low"] = unit / ends["high"]  # noise that nobody recorded may still be there
    if not bounded:
        mu = dict.fromkeys(mu, math.inf)
    epsilon = {name: gaussian.epsilon(value, delta) for name, value in mu.items()}
    return {
        "node": node,
        "rounds": steps,
        "largest_weight": max(
            release.contributions[node].weight
            for release in releases
            if node in release.contributions
        ),
        "mu": mu,
        "realised_mu": realised,
        "epsilon": epsilon,
        "unbounded": math.isinf(epsilon["point"]),
        "rho_beta": rho_beta_of_epsilon(epsilon["point"]),
        "rho_alpha": gaussian.advantage(mu["point"]),
        "log_odds": log_odds,
        "belief": expit(np.array(log_odds)).tolist(),
        "round_numbers": rounds,
    }


def _empirical(
    releases: Sequence[Release], stds: Sequence[float], delta: float, confidence: float
) -> dict[str, Any] | None:
    """Return lower bounds on one release, from scores of one owner a round and of bystanders.

    Owners that changed the model take turns: projections of one noise on several owners' updates
    are not independent. A bystander is a fresh direction of the owner's norm that is in no mean.
    None where no owner changed anything.
    """
    members, bystanders = [], []
    for turn, (release, std) in enumerate(zip(releases, stds, strict=True)):
        nodes = sorted(node for node, part in release.contributions.items() if part.norm > 0)
        if not nodes or std == 0:
            continue
        part = release.contributions[nodes[turn % len(nodes)]]
        generator = np.random.default_rng([SIMULATION_SEED, turn])
        fresh = part.norm * noisy_means.bystander_projections(release, BYSTANDERS, generator)
        members.append(noisy_means.log_likelihood_ratio(part, std))
        bystanders.extend(((fresh - part.norm**2 / 2) / std**2).tolist())
    if not members:
        return None
    worlds = np.repeat([True, False], [len(members), len(bystanders)])
    scores = np.array(members + bystanders)
    names = ("clopper_pearson", "gaussian")  # bystanders are many: no more than these are needed
    gaussian = lower_bounds.MechanismKind.GAUSSIAN
    bounds = lower_bounds.lower_bounds(worlds, scores, delta, confidence, gaussian, names=names)
    return {
        "unit": "one release",
        "members": len(members),
        "bystanders": len(bystanders),
        "true_positives": sum(score > 0 for score in members),
        "false_positives": sum(score > 0 for score in bystanders),
        "lower_bounds": {name: asdict(bound) for name, bound in bounds.items()},
    }
