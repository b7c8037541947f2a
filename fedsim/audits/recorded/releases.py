"""What the releases of a recorded run reveal of each client, under their measured noise."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import expit

from adversaries.attacks import noisy_means
from adversaries.attacks.noisy_means import Release
from adversaries.statistics import gaussian
from adversaries.statistics.intervals import Interval
from fedsim.audits.judgement.claim import Finding, Severity
from fedsim.audits.recorded import noise_level
from fedsim.audits.recorded.noise_level import NoiseLevel
from fedsim.audits.results.rows import Limit, Noise, Source
from fedsim.audits.results.view import View
from fedsim.audits.steps.step import number

NOISE_ELSEWHERE = (
    "no noise was added after the clients sent their updates. Noise that clients add before is "
    "part of their updates, and no audit judges it. For claims about records, record each client's "
    "steps of Opacus, or audit the app"
)
UNBOUNDED = "no clipping norm was recorded, and noise gives no guarantee without one"
JUDGED = (
    "{} is not what audits judge: FedAvg, alone or in Flower's server-side or client-side wrapper "
    "with fixed clipping, where Flower's own code averages and adds the same noise in all rounds; "
    "and clients that train with Opacus, for claims about records"
)
"""Why theory says nothing about an app or a recorded server."""

EXCESS = 1e-3
"""Share by which an update may exceed the clipping norm: clients clip in single precision."""


@dataclass(frozen=True, kw_only=True)
class ClientPrivacy:
    """The privacy of one client's updates, of the largest size that the clipping norm allows."""

    node: int
    rounds: int
    largest_weight: float
    """Largest weight of its updates in the mean, in (0, 1]."""
    epsilon: float
    """Under the best estimate of the noise."""
    epsilon_at_most: float
    """Upper bound at the confidence of an alarm, or epsilon of configured noise."""
    log_odds: list[float]
    """Log-odds that the client took part, after each round."""
    belief: list[float]
    """The same as a probability."""


@dataclass(frozen=True, kw_only=True)
class ReleaseReport:
    """What all releases together reveal, towards one observer, and their noise."""

    round_numbers: list[int]
    noise: str
    """"none", "hidden" (below rounding), "unclaimed", "less", "more" or "as claimed"."""
    claimed_std: list[float | None]
    """Configured standard deviation of each round's noise; None where unknown."""
    left_over_std: list[float]
    """Standard deviation of each release without all known updates."""
    left_over_interval: list[Interval]
    """Interval of each, at the confidence of the report."""
    noise_multiplier: float | None
    """Multiplier of equal steps that compose to these; None without clipping."""
    clients: list[ClientPrivacy] = field(default_factory=list)
    """Each client; empty for a training loop."""
    amplified: bool = False
    """Whether sampling amplifies privacy here."""

    @property
    def least_protected(self) -> ClientPrivacy:
        """The client with the largest epsilon; of equals, the one that is believed in most."""
        # Clients' epsilons differ by rounding.
        return max(self.clients, key=lambda one: (float(f"{one.epsilon:.6g}"), one.log_odds[-1]))


@dataclass(frozen=True)
class Asked:
    """The options of a report, and its findings, to which measurements append."""

    mechanism: Mapping[str, Any]
    delta: float
    confidence: float
    findings: list[Finding]


@dataclass(frozen=True, kw_only=True)
class MeasuredRounds:
    """Measurements of all rounds of a vantage point.

    Attributes:
        views: of each observer, the judged one last.
        unmeasured: why no epsilon can be compared with a claim; "" if one can.
        doubts: why an epsilon within a claim does not support it.
    """

    views: Sequence[View]
    release: ReleaseReport | None = None
    unmeasured: str = ""
    unit: str = "client"
    doubts: Sequence[str] = ()


def released(
    observer: str,
    release: ReleaseReport,
    level: NoiseLevel,
    limits: tuple[float, float],
    at_least: float,
    options: Asked,
) -> MeasuredRounds:
    """Return what is measured of releases, with the view of their observer.

    Args:
        limits: upper bounds on epsilon and on the advantage, at the confidence of an alarm.
        at_least: lower bound on the largest epsilon of any client or record, at the same.
    """
    limit = why = None
    if release.noise == "none":
        why = "" if all(release.claimed_std) else NOISE_ELSEWHERE
    elif release.noise == "hidden":
        why = noise_level.HIDDEN
    elif release.noise_multiplier is None:
        why = UNBOUNDED
    if release.noise != "hidden":
        # The configured noise counts where nothing contradicts it.
        configured = release.noise in ("as claimed", "more")
        source: Source = "theory" if configured else "measured"
        limit = Limit.of_epsilon(*limits, source)
    believed, ratio = [client.log_odds[-1] for client in release.clients], level.shown
    view = View(
        observer=observer,
        limit=limit,
        trials=1,
        log_odds=max(0.0, *believed) if believed else None,
        # Nothing is proven about a mechanism that the recording does not show whole.
        bounds=lambda _: {} if why else {"noise": at_least},
        noise=Noise(ratio.low, ratio.high, options.confidence)
        if all(release.claimed_std)
        else None,
        detects=noise_level.detects(level),
    )
    return MeasuredRounds(views=[view], release=release, unmeasured=why or "")


def noise_measured(level: NoiseLevel, confidence: float) -> dict[str, Any]:
    """Return the fields of a report about the noise in all releases."""
    releases = level.releases
    return {
        "round_numbers": [release.round for release in releases],
        "noise": level.verdict,
        "claimed_std": [release.claimed_std for release in releases],
        "left_over_std": [release.left_over for release in releases],
        "left_over_interval": [
            noisy_means.std_interval(release.energy, release.size, confidence)
            for release in releases
        ],
        "noise_multiplier": noise_multiplier(level),
    }


def updates_measured(level: NoiseLevel, options: Asked) -> MeasuredRounds:
    """Return what a mean of clients' updates reveals of each."""
    releases, delta = level.releases, options.delta
    most, least = level.most_stds(together=False), level.least_stds()
    nodes = sorted({node for release in releases for node in release.contributions})
    largest = max(_mu(node, releases, least) for node in nodes)
    release = ReleaseReport(
        **noise_measured(level, options.confidence),
        clients=[_client(node, level, delta) for node in nodes],
    )
    limits = gaussian.epsilon(largest, delta), gaussian.advantage(largest)
    at_least = gaussian.epsilon(max(_mu(node, releases, most) for node in nodes), delta)
    return released("participant", release, level, limits, at_least, options)


def noise_multiplier(level: NoiseLevel) -> float | None:
    """Return the multiplier of equal steps that compose to these: s n/C of n equal clients."""
    inverse = 0.0
    for release, std in zip(level.releases, level.stds(), strict=True):
        if not release.clipping_norm:
            return None
        norm = release.clipping_norm / len(release.contributions)
        # k steps of multiplier z have sum 1/z^2 = k/z^2.
        inverse += (norm / std) ** 2 if std else math.inf
    return math.sqrt(len(level.releases) / inverse)


def _client(node: int, level: NoiseLevel, delta: float) -> ClientPrivacy:
    """Return a client's privacy, with beliefs at the known noise."""
    releases = level.releases
    parts = [release.contributions.get(node) for release in releases]
    scores = [
        0.0 if part is None else noisy_means.log_likelihood_ratio(part, std)
        for part, std in zip(parts, level.known_stds(), strict=True)
    ]
    log_odds = np.cumsum(scores)
    return ClientPrivacy(
        node=node,
        rounds=sum(part is not None for part in parts),
        largest_weight=max(part.weight for part in parts if part is not None),
        epsilon=gaussian.epsilon(_mu(node, releases, level.stds()), delta),
        epsilon_at_most=gaussian.epsilon(_mu(node, releases, level.least_stds()), delta),
        log_odds=log_odds.tolist(),
        belief=expit(log_odds).tolist(),
    )


def _mu(node: int, releases: Sequence[Release], stds: Sequence[float]) -> float:
    """Return a client's signal-to-noise ratio over all rounds.

    Gaussian mechanisms compose by adding the squares of their mu.
    """
    mu = 0.0
    for release, std in zip(releases, stds, strict=True):
        part = release.contributions.get(node)
        if part is None:
            continue
        if release.clipping_norm is None:
            return math.inf
        # An update longer than the clipping norm must itself be hidden.
        reach = max(part.weight * release.clipping_norm, part.norm / (1 + EXCESS))
        mu = math.hypot(mu, reach / std if std else math.inf)
    return mu


NUMBERS = (
    *("noise_multiplier", "clipping_norm", "num_sampled_clients"),
    *("divisor", "neighbour_divisor", "sample_rate"),
    *("accountant_noise_multiplier", "accountant_sample_rate"),
)


def claimed_std(mechanism: Mapping[str, Any]) -> float | None:
    """Return the noise of Flower's central DP: z C/n."""
    multiplier = number(mechanism, "noise_multiplier")
    norm = number(mechanism, "clipping_norm")
    clients = number(mechanism, "num_sampled_clients")
    if multiplier is None or norm is None or not clients:
        return None
    return multiplier * norm / clients


class Notes:
    """Findings of single rounds; equal ones become one finding with all of their rounds."""

    def __init__(self) -> None:
        self._rounds: dict[tuple[Severity, str, str], list[int]] = {}

    def add(self, severity: Severity, text: str, round: int, rule: str = "") -> None:
        self._rounds.setdefault((severity, text, rule), []).append(round)

    def findings(self) -> list[Finding]:
        return [
            Finding(text, severity=severity, rule=rule, rounds=tuple(rounds))
            for (severity, text, rule), rounds in self._rounds.items()
        ]
