"""What the releases of a recorded run reveal of each client, under their measured noise.

The noise of a Gaussian mechanism is independent, normal, and of one size in every parameter.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import expit

from adversaries.arrays import Floats
from adversaries.attacks import noisy_means
from adversaries.attacks.noisy_means import FINGERPRINT, Contribution, Release
from adversaries.statistics import gaussian
from adversaries.statistics.intervals import ALARM_CONFIDENCE, Interval, significance
from fedsim.audits.judgement.claim import Finding, Severity
from fedsim.audits.results.rows import Limit, Noise, Source, View
from fedsim.audits.run import detectable
from fedsim.audits.steps.noise import (
    ALPHA,
    LONGEST_NOISE,
    NoiseSums,
    Squares,
    echo_p_value,
    of_release,
    shape_p_value,
    total,
)
from fedsim.audits.steps.theory import Composition
from fedsim.audits.steps.watch import number
from fedsim.federation.transcripts.records import Layout

LARGEST = 1e30
DITHER_SEED = 0x7EA1, 0, 1
MOST_COMPARED = 4000
"""Most rounds whose noise is compared with each other's: the first ones."""


def believable(*vectors: Floats | None) -> bool:
    """Return whether all vectors exist, with numbers whose squares do not overflow."""
    return all(one is not None and bool(np.abs(one).max() < LARGEST) for one in vectors)


def reduced(
    random: np.random.Generator,
    round: int,
    noise: Floats,
    contributions: dict[int, Contribution],
    layout: Layout,
    units: Floats,
    times: float,
    clipping_norm: float | None,
    std: float | None,
) -> Release:
    """Return what an audit keeps of a round.

    Args:
        random: dithers the fingerprint by uniform noise over one unit in the last place, since
            noise held in a model is discrete.
        noise: what is left of the release without the mean, [P].
        units: unit in the last place of each parameter, [P].
        times: number of roundings of each; partial sums count as parts of one.
        clipping_norm: largest L2 norm of an update; None where no clipping is known.
        std: of the noise, as configured; None where it is unknown.
    """

    def rounding(part: slice) -> float:
        # An error is uniform up to half a unit, with standard deviation 1/sqrt(12).
        each = units[part]
        return math.sqrt(times * float(each @ each) / 12 / max(1, each.size))

    first = slice(FINGERPRINT)
    dither = units[first] * random.uniform(-0.5, 0.5, units[first].size)
    return Release(
        round=round,
        size=noise.size,
        claimed_std=std,
        energy=float(noise @ noise),
        rounding=rounding(slice(None)),
        clipping_norm=clipping_norm,
        contributions=contributions,
        by_array={
            name: (noise[part].size, float(noise[part] @ noise[part]), rounding(part))
            for name, part in layout.slices().items()
        },
        fingerprint=(noise[first] + dither).astype(np.float32),
        fingerprint_rounding=rounding(first),
    )


HIDDEN = (
    "rounding hides the noise: the configured noise is no larger than the rounding errors of a "
    "model in this precision. The audit cannot tell whether it was added"
)
NO_NOISE = (
    "no noise{}: only rounding errors remain. For updates as they were sent, epsilon is infinite "
    "and the belief certain; noise that clients add before they send is not visible here"
)
SOME_LESS = (
    "some rounds have less noise than configured: the worst has {:.4g} to {:.4g} times the "
    f"configured standard deviation ({ALARM_CONFIDENCE:.2%} confidence, for all rounds together). "
    "More noise in other rounds does not make up for it"
)
OTHER_LEVEL = (
    "the noise is {} than configured: {:.4g} to {:.4g} times the configured standard deviation "
    f"({ALARM_CONFIDENCE:.2%} confidence)"
)
RULE, MEND = "realised-noise", "look for code that scales, rounds or replaces the noise"

REPEATED = (
    "the noise of round {} repeats that of round {} (such pairs: {}): their difference has no "
    "noise. A random seed that is set again in every round would explain this"
)
COMPARED = f"only the first {MOST_COMPARED} rounds were searched for noise that repeats"
SHAPE_UNSEEN = (
    "whether the noise is Gaussian was not tested{}: it is too close to the rounding errors, "
    "which are not Gaussian"
)
NOT_GAUSSIAN = "the noise is not Gaussian (Kolmogorov-Smirnov p = {:.2g})"
OTHER_ARRAY = (
    "array '{}' has {:.3g} to {:.3g} times the noise of the whole model: it is noised or clipped "
    "differently"
)


ECHO = (
    "the noise repeats itself, also moved or with the other sign, beyond chance: noise is used "
    "again, and hides the gradients of one step alone"
)
UNEVEN = (
    "the noise is not independent Gaussian noise of the configured sizes: its length varies from "
    "one release to the next more, or less, than chance explains"
)


@dataclass(frozen=True)
class NoiseLevel:
    """Noise over its scale: the configured noise, or 1 where some round has none configured.

    Attributes:
        verdict: "none", "hidden" (below rounding), "unclaimed", "less", "more" or "as claimed".
        sums: of all rounds together.
        point: best estimate of all rounds together; `shown`: its interval in the report.
        sure: the same at the confidence of an alarm.
        sure_rounds: interval of each round; all hold together at the confidence of an alarm.
    """

    releases: Sequence[Release]
    verdict: str
    scales: Sequence[float]
    sums: NoiseSums
    point: float
    shown: Interval
    sure: Interval
    sure_rounds: Sequence[Interval]

    @property
    def claimed(self) -> bool:
        return all(release.claimed_std for release in self.releases)

    @property
    def source(self) -> Source:
        """Where the noise of a limit comes from: the configuration, if nothing differs from it."""
        return "theory" if self.verdict == "as claimed" else "measured"

    @property
    def alike(self) -> bool:
        """Whether all rounds are consistent with one multiple of their scales."""
        return all(one.low <= self.point <= one.high for one in self.sure_rounds)

    def known_stds(self) -> list[float]:
        """Return the noise that beliefs use: an uncontradicted claim, else the measured noise.

        The claim is more exact than the measurement, which is of one level unless rounds differ.
        """
        if self.verdict in ("hidden", "as claimed"):
            return list(self.scales)
        pairs = zip(self.releases, self.scales, strict=True)
        return [
            0.0 if each.noiseless else self.point * scale if self.alike else each.left_over
            for each, scale in pairs
        ]

    def most_stds(self, *, together: bool) -> list[float]:
        """Return noise that rounds surely do not exceed, as far as their privacy is concerned.

        together: judge rounds of one level together. If the noise of equal steps is uneven after
            all, it protects less than even noise of the same mean square, since 1/s^2 is convex.
        """
        pooled = together and self.alike
        ends = [self.sure.high if pooled else one.high for one in self.sure_rounds]
        return [end * scale for end, scale in zip(ends, self.scales, strict=True)]

    def least_stds(self) -> list[float]:
        """Return the noise of each round that may support a claim.

        It is the configured noise if that is not contradicted, or else the noise that this round
        surely has. More noise than configured supports nothing: a server's learning rate also
        enlarges the updates.
        """
        if self.verdict in ("as claimed", "more"):
            return list(self.scales)
        most = math.inf if self.verdict == "unclaimed" else 1.0
        pairs = zip(self.sure_rounds, self.scales, strict=True)
        return [min(one.low, most) * scale for one, scale in pairs]


def measured(releases: Sequence[Release], confidence: float) -> NoiseLevel:
    claims = [release.claimed_std for release in releases]
    claimed = all(claims)
    # Without a claim, every round has the same scale.
    scales = [(claim if claimed else None) or 1.0 for claim in claims]
    noiseless = [release for release in releases if release.noiseless]
    # Noise configured below rounding may or may not have been added.
    hidden = claimed and any(
        (release.claimed_std or 0.0) <= noisy_means.ROUNDING_MARGIN * release.rounding
        for release in noiseless
    )
    bare = "hidden" if hidden else "none" if noiseless else ""

    def interval(squares: Squares, error: float) -> Interval:
        found = squares.interval(error / 2)
        return replace(found, low=0.0, high=found.high if hidden else 0.0) if bare else found

    parts = [of_release(*pair) for pair in zip(releases, scales, strict=True)]
    sums = total(parts)
    sure = interval(sums.whole, ALPHA)
    sure_rounds = [interval(part.whole, ALPHA / len(parts)) for part in parts]
    less = sure.high < 1 or any(one.high < 1 for one in sure_rounds)
    verdict = "less" if less else "more" if sure.low > 1 else "as claimed"
    return NoiseLevel(
        releases=releases,
        verdict=bare or (verdict if claimed else "unclaimed"),
        scales=scales,
        sums=sums,
        point=0.0 if bare == "none" else math.sqrt(sums.whole.energy / sums.whole.freedom),
        shown=interval(sums.whole, significance(confidence)),
        sure=sure,
        sure_rounds=sure_rounds,
    )


def detects(level: NoiseLevel) -> list[float] | None:
    """Return the share of the configured noise below which an alarm would be raised."""
    if level.verdict not in ("as claimed", "more"):
        return None
    pairs = zip(level.releases, level.scales, strict=True)
    rounding = max((release.rounding / scale) ** 2 for release, scale in pairs)
    return [detectable.by_energy(level.sums.whole.freedom, ALPHA / 2, rounding)]


def noise_findings(level: NoiseLevel) -> list[Finding]:
    """Return what contradicts the configured noise: its size, and its shape where it is visible."""
    releases, sure = level.releases, level.sure
    if level.verdict == "hidden":
        return [Finding(HIDDEN, severity="caution", rule=RULE)]
    if level.verdict == "none":
        bare = sum(release.noiseless for release in releases)
        text = NO_NOISE.format("" if bare == len(releases) else f" in {bare} rounds")
        if not level.claimed:
            return [Finding(text, severity="note", rule=RULE)]
        return [Finding(text, MEND, rule=RULE)]
    found, low = list[Finding](), [at for at, one in enumerate(level.sure_rounds) if one.high < 1]
    if level.verdict == "less" and sure.high >= 1:
        worst = min((level.sure_rounds[at] for at in low), key=lambda one: one.high)
        text, rounds = SOME_LESS.format(worst.low, worst.high), [releases[at].round for at in low]
        found = [Finding(text, MEND, rule=RULE, rounds=tuple(rounds))]
    elif level.verdict in ("less", "more"):
        text = OTHER_LEVEL.format(level.verdict, sure.low, sure.high)
        less = level.verdict == "less"
        found = [Finding(text, MEND * less, "alarm" if less else "caution", RULE)]
    found += [Finding(each) for each in _of_array(level)]
    if len(releases) > MOST_COMPARED:
        found.append(Finding(COMPARED, severity="note"))
    repeated = noisy_means.repeated_noise(releases[:MOST_COMPARED], ALARM_CONFIDENCE)
    if repeated:
        first, second = repeated[0]
        found.append(Finding(REPEATED.format(second, first, len(repeated))))
    if level.claimed and _clear(releases) == len(releases):
        found += [Finding(each) for each in _dependent(level, searched=not repeated)]
    return found + _shape_findings(releases[:MOST_COMPARED])


def _of_array(level: NoiseLevel) -> list[str]:
    """Return the arrays that have another level of noise than the whole model."""
    names, sums = [*level.releases[0].by_array], level.sums
    # The level of the whole model is judged elsewhere; this compares single arrays with it.
    if not 1 < len(names) == len(sums.tensors):
        return []
    pairs = zip(names, sums.tensors, strict=True)
    ends = {name: each.interval(ALPHA / 2 / len(names)) for name, each in pairs}
    return [
        OTHER_ARRAY.format(name, one.low / level.point, one.high / level.point)
        for name, one in ends.items()
        if one.high < 0.5 * level.point or one.low > 2 * level.point
    ]


def _dependent(level: NoiseLevel, *, searched: bool) -> list[str]:
    """Return whether noise is used again in other places, or is uneven from step to step.

    searched: whether to search for noise that is used again; other findings may name it.
    """
    pairs = zip(level.releases, level.scales, strict=True)
    parts = [release.fingerprint.astype(np.float64) / scale for release, scale in pairs]
    again = echo_p_value(np.concatenate(parts)[:LONGEST_NOISE]) if searched else 1.0
    # Less noise in some rounds has its own finding.
    even = 1.0 if level.verdict == "less" else shape_p_value(level.sums)
    # Bonferroni: an equal share of the error for each test.
    return [text for text, p in ((ECHO, again), (UNEVEN, even)) if p < ALPHA / 2]


def _clear(releases: Sequence[Release]) -> int:
    """Return how many rounds have noise so far above rounding that its shape can be judged."""
    return len(noisy_means.clear_of_rounding(releases))


def _shape_findings(releases: Sequence[Release]) -> list[Finding]:
    """Return what contradicts independent normal noise in every parameter and round."""
    findings = []
    if unseen := len(releases) - _clear(releases):
        where = "" if unseen == len(releases) else f" in {unseen} of {len(releases)} rounds"
        findings.append(Finding(SHAPE_UNSEEN.format(where), severity="note"))
    normal = noisy_means.normality(releases)
    if normal is not None and normal < ALPHA:
        findings.append(Finding(NOT_GAUSSIAN.format(normal)))
    return findings


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
    clipped: bool
    """Whether a clipping norm was recorded for every release."""
    clients: list[ClientPrivacy] = field(default_factory=list)
    """Each client; empty for a training loop."""
    amplified: bool = False
    """Whether sampling amplifies privacy here."""

    @property
    def least_protected(self) -> ClientPrivacy:
        """The client with the largest epsilon; of equals, the one that is believed in most."""
        # Clients' epsilons differ by rounding.
        return max(self.clients, key=lambda one: (float(f"{one.epsilon:.6g}"), one.log_odds[-1]))


@dataclass(frozen=True, kw_only=True)
class MeasuredRounds:
    """Measurements of all rounds of a vantage point.

    Attributes:
        views: of each observer, the judged one last.
        unmeasured: why no epsilon can be compared with a claim; "" if one can.
        doubts: why an epsilon within a claim does not support it.
        findings: objections to the rounds.
    """

    views: Sequence[View]
    findings: Sequence[Finding]
    release: ReleaseReport | None = None
    unmeasured: str = ""
    unit: str = "client"
    doubts: Sequence[str] = ()


def released(
    observer: str,
    level: NoiseLevel,
    limit: Limit,
    at_least: float,
    confidence: float,
    **more: Any,
) -> MeasuredRounds:
    """Return what is measured of releases, with the view of their observer.

    Args:
        limit: of the noise that may support a claim.
        at_least: lower bound on the largest epsilon of any client or record, at the confidence of
            an alarm.
        more: fields of the report that this observer has.
    """
    releases, ratio, why = level.releases, level.shown, ""
    release = ReleaseReport(
        round_numbers=[each.round for each in releases],
        noise=level.verdict,
        claimed_std=[each.claimed_std for each in releases],
        left_over_std=[each.left_over for each in releases],
        left_over_interval=[
            noisy_means.std_interval(each.energy, each.size, confidence) for each in releases
        ],
        clipped=all(each.clipping_norm for each in releases),
        **more,
    )
    if release.noise == "none":
        why = "" if level.claimed else NOISE_ELSEWHERE
    elif release.noise == "hidden":
        why = HIDDEN
    elif not release.clipped:
        why = UNBOUNDED
    believed = [client.log_odds[-1] for client in release.clients]
    view = View(
        observer=observer,
        limit=None if release.noise == "hidden" else replace(limit, source=level.source),
        trials=1,
        log_odds=max(0.0, *believed) if believed else None,
        # Nothing is proven about a mechanism that the recording does not show whole.
        bounds=lambda _: {} if why else {"noise": at_least},
        noise=Noise(ratio.low, ratio.high, confidence) if level.claimed else None,
        detects=detects(level),
    )
    findings = noise_findings(level)
    return MeasuredRounds(views=[view], findings=findings, release=release, unmeasured=why)


def updates_measured(level: NoiseLevel, delta: float, confidence: float) -> MeasuredRounds:
    """Return what a mean of clients' updates reveals of each."""
    releases = level.releases
    most, least = level.most_stds(together=False), level.least_stds()
    nodes = sorted({node for release in releases for node in release.contributions})
    limit = Composition(mu=max(_mu(node, releases, least) for node in nodes))
    at_least = gaussian.epsilon(max(_mu(node, releases, most) for node in nodes), delta)
    clients = [_client(node, level, delta) for node in nodes]
    found = limit.limit(delta, level.source)
    return released("participant", level, found, at_least, confidence, clients=clients)


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
        epsilon=gaussian.epsilon(_mu(node, releases, level.least_stds()), delta),
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
