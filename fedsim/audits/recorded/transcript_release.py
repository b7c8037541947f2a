"""Noise in the releases of a recorded run, and every client's privacy under it."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import expit

from adversaries.attacks import noisy_means
from adversaries.attacks.noisy_means import Release
from adversaries.bounds import lower_bounds
from adversaries.statistics import gaussian
from fedsim.audits.judgement.claim import Finding, alarms
from fedsim.audits.recorded import noise_level
from fedsim.audits.recorded.noise_level import SIMULATION_SEED, NoiseLevel
from fedsim.audits.recorded.recorded_noise import Asked
from fedsim.audits.recorded.recorded_report import (
    ClientPrivacy,
    Estimated,
    ProvenPrivacy,
    Scores,
    UpdateRelease,
)
from fedsim.privacy.identifiability import rho_beta_of_epsilon

BYSTANDERS = 20
"""Random directions scored in every round, for the false positive rate."""

EXCESS = 1e-3
"""Share by which an update may exceed the clipping norm: clients clip in single precision."""

NEIGHBOURS = (
    "neighbours: the client's update of every round, or no change in its place; weights and "
    "number of clients stay the same (replacing an update by another doubles the sensitivity)"
)

COUNT = "the noisy count of clipped updates is released and composed too; beliefs do not use it"

NO_SCORES = (
    "no lower bound on one release: no client changed the model in any round, so that no client "
    "can be scored"
)


def measured(
    releases: Sequence[Release], towards: str, options: Asked, *, declared: bool = False
) -> UpdateRelease:
    delta, confidence, findings = options.delta, options.confidence, options.findings
    level = noise_level.measured(releases, confidence)
    findings += noise_level.findings_of(level, releases)
    stated = level.stds(releases)
    measured_stds = [spread.point for spread in stated]
    # Beliefs use an uncontradicted claim, which is more exact than the measurement.
    hidden = level.verdict == "hidden"
    exact = hidden or level.verdict == "as claimed"
    stds = [
        0.0 if release.noiseless and not hidden else std
        for release, std in zip(releases, level.scales if exact else measured_stds, strict=True)
    ]
    empirical = None
    if not any(release.noiseless for release in releases):
        # Compared with the measured size: compared with the claim, too little noise everywhere
        # would be an objection to every array.
        shape = noise_level.shape_findings(releases, measured_stds, declared=declared)
        findings += shape
        normal = _claimed(releases) and not alarms(shape)
        empirical = _empirical(releases, stds, delta, confidence, normal=normal)
        if empirical is None:
            findings.append(Finding(NO_SCORES, severity="note"))
    clients = _clients(releases, stated, stds, delta)
    return UpdateRelease(
        **noise_measured(releases, level, stated, confidence),
        towards=towards,
        round_numbers=[release.round for release in releases],
        clients=clients,
        epsilon_at_least=max(client.epsilon.low for client in clients),
        proven=_proven(releases, level, stds, delta),
        empirical=empirical,
        independent=noise_level.independent(releases),
        normality_p_value=noisy_means.normality(releases),
        assumptions=[
            NEIGHBOURS,
            "every round in which the client took part counts; no amplification by sampling",
            "the weights of the mean are public",
            *([COUNT] if any(release.count_std is not None for release in releases) else []),
        ],
    )


def _claimed(releases: Sequence[Release]) -> bool:
    return all(release.claimed_std for release in releases)


def noise_measured(
    releases: Sequence[Release], level: NoiseLevel, stated: Sequence[Estimated], confidence: float
) -> dict[str, Any]:
    """Return the fields of a report about the noise in all releases."""
    claimed = _claimed(releases)
    ratio = Estimated(level.point, level.stated.low, level.stated.high)
    return {
        "parameters": releases[0].size,
        "clipped": all(release.clipping_norm is not None for release in releases),
        "count_known": all(release.count_std != 0 for release in releases),
        "noise": level.verdict,
        "seen_below": noise_level.seen_below(level, releases),
        "claimed_std": [release.claimed_std for release in releases],
        "left_over_std": [release.left_over for release in releases],
        "left_over_interval": [
            noisy_means.std_interval(release.energy, release.size, confidence)
            for release in releases
        ],
        "rounding_std": [release.rounding for release in releases],
        "realised_over_claimed": ratio if claimed else None,
        "claimed_noise_multiplier": _composed(releases, level.scales) if claimed else None,
        "noise_multiplier": noise_multipliers(releases, stated),
    }


def _proven(
    releases: Sequence[Release], level: NoiseLevel, stds: Sequence[float], delta: float
) -> ProvenPrivacy:
    """Return what holds at the confidence of an alarm: ends of the noise, and the worst epsilon."""
    sure = level.sure_stds(releases)
    least = [Estimated(std, std, std) for std in level.least_stds()]
    clients = _clients(releases, sure, stds, delta)
    under_least = _clients(releases, least, stds, delta)
    worst = max(clients, key=lambda client: client.epsilon.low)
    return ProvenPrivacy(
        noise_multiplier=noise_multipliers(releases, sure),
        node=worst.node,
        epsilon=worst.epsilon.low,
        unbounded=math.isinf(worst.epsilon.low),
        epsilon_at_most=max(client.epsilon.point for client in under_least),
        rho_alpha_at_most=max(client.rho_alpha for client in under_least),
    )


def _composed(releases: Sequence[Release], stds: Sequence[float]) -> float | None:
    """Return the multiplier of equal steps that compose to these: s n/C of n equal clients."""
    inverse = 0.0
    for release, std in zip(releases, stds, strict=True):
        if not release.clipping_norm:
            return None
        largest = release.clipping_norm / len(release.contributions)
        inverse += (largest / std) ** 2 if std else math.inf
    # k steps of multiplier z have sum 1/z^2 = k/z^2.
    return math.sqrt(len(releases) / inverse)


def noise_multipliers(releases: Sequence[Release], noises: Sequence[Estimated]) -> Estimated | None:
    point = _composed(releases, [one.point for one in noises])
    low = _composed(releases, [one.low for one in noises])
    high = _composed(releases, [one.high for one in noises])
    return None if point is None or low is None or high is None else Estimated(point, low, high)


def _clients(
    releases: Sequence[Release], noises: Sequence[Estimated], stds: Sequence[float], delta: float
) -> list[ClientPrivacy]:
    nodes = sorted({node for release in releases for node in release.contributions})
    return [_client(node, releases, noises, stds, delta) for node in nodes]


def _client(
    node: int,
    releases: Sequence[Release],
    noises: Sequence[Estimated],
    stds: Sequence[float],
    delta: float,
) -> ClientPrivacy:
    # More noise gives less epsilon, so that the ends of the interval change places.
    ends = {"point": "point", "low": "high", "high": "low"}
    mu, realised, bounded, steps, counts = dict.fromkeys(ends, 0.0), 0.0, True, 0, 0.0
    log_odds, rounds, total = [], [], 0.0
    for release, noise, std in zip(releases, noises, stds, strict=True):
        part = release.contributions.get(node)
        if part is not None:
            steps += 1
            bounded = bounded and release.clipping_norm is not None
            # An update longer than the clipping norm must itself be hidden.
            reach = max(part.weight * (release.clipping_norm or 0.0), part.norm / (1 + EXCESS))
            # Releases of Gaussian mechanisms compose by adding the squares of their mu.
            for name, end in ends.items():
                std_at_end = getattr(noise, end)
                loudest = reach / std_at_end if std_at_end else math.inf
                mu[name] = math.hypot(mu[name], loudest)
            loudness = part.norm / std if std else (math.inf if part.norm else 0.0)
            realised = math.hypot(realised, loudness)
            total += noisy_means.log_likelihood_ratio(part, std)
            if release.count_std is not None:
                # One client changes the count by 1.
                counts += release.count_std**-2 if release.count_std else math.inf
        log_odds.append(total)
        rounds.append(release.round)
    # Unrecorded noise on the count may exist: the low end leaves the count out.
    of_count = dict.fromkeys(ends, counts) | ({"low": 0.0} if math.isinf(counts) else {})
    mu = {name: math.hypot(value, math.sqrt(of_count[name])) for name, value in mu.items()}
    if not bounded:
        mu = dict.fromkeys(mu, math.inf)
    epsilon = Estimated(**{name: gaussian.epsilon(value, delta) for name, value in mu.items()})
    return ClientPrivacy(
        node=node,
        rounds=steps,
        largest_weight=max(
            release.contributions[node].weight
            for release in releases
            if node in release.contributions
        ),
        mu=Estimated(**mu),
        realised_mu=realised,
        epsilon=epsilon,
        unbounded=math.isinf(epsilon.point),
        rho_beta=rho_beta_of_epsilon(epsilon.point),
        rho_alpha=gaussian.advantage(mu["point"]),
        log_odds=log_odds,
        belief=expit(np.array(log_odds)).tolist(),
        round_numbers=rounds,
    )


def _empirical(
    releases: Sequence[Release],
    stds: Sequence[float],
    delta: float,
    confidence: float,
    *,
    normal: bool,
) -> Scores | None:
    """Return lower bounds on one release, from scores of one client a round and of bystanders.

    Clients that changed the model take turns, since projections of one noise on several updates are
    dependent. A bystander is a fresh direction of the client's norm that is in no mean. None where
    no client changed the model. normal: whether the noise is configured, and nothing contradicts
    that it is Gaussian.
    """
    members, bystanders = [], []
    for turn, (release, std) in enumerate(zip(releases, stds, strict=True)):
        nodes = sorted(node for node, part in release.contributions.items() if part.norm > 0)
        if not nodes or std == 0:
            continue
        part = release.contributions[nodes[turn % len(nodes)]]
        generator = np.random.default_rng([SIMULATION_SEED, turn])
        # A bystander's update is not in the mean, so its projection on the residual is noise alone.
        fresh = part.norm * noisy_means.bystander_projections(release, BYSTANDERS, generator)
        members.append(noisy_means.log_likelihood_ratio(part, std))
        bystanders.extend(((fresh - part.norm**2 / 2) / std**2).tolist())
    if not members:
        return None
    worlds = np.repeat([True, False], [len(members), len(bystanders)])
    scores = np.array(members + bystanders)
    names = ("clopper_pearson", "gaussian")  # with many bystanders the others prove no more
    kinds = lower_bounds.MechanismKind
    kind = kinds.GAUSSIAN if normal else kinds.OTHER
    bounds = lower_bounds.lower_bounds(worlds, scores, delta, confidence, kind, names=names)
    return Scores(
        members=len(members),
        bystanders=len(bystanders),
        true_positives=sum(score > 0 for score in members),
        false_positives=sum(score > 0 for score in bystanders),
        lower_bounds=bounds,
    )
