"""The size of the noise in a run's releases, in all rounds and in each, and whether it is Gaussian.

The noise of a Gaussian mechanism is independent, normal, and of one size in every parameter.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from adversaries.arrays import Floats
from adversaries.attacks import noisy_means
from adversaries.attacks.noisy_means import FINGERPRINT, Contribution, Release
from adversaries.statistics.intervals import ALARM_CONFIDENCE, Interval, significance
from fedsim.audits.judgement.claim import Finding, Severity
from fedsim.audits.run import detectable
from fedsim.federation.transcripts.layout import Layout

LARGEST = 1e30
SIMULATION_SEED = 0x7EA1


def believable(*vectors: Floats | None) -> bool:
    """Return whether all vectors exist, with numbers whose squares do not overflow."""
    return all(one is not None and bool(np.abs(one).max() < LARGEST) for one in vectors)


def contribution(weight: float, update: Floats, noise: Floats) -> Contribution:
    norm, projection = float(np.linalg.norm(update)), float(noise @ update)
    return Contribution(weight, weight * norm, weight * projection)


class Reducer:
    """Reduces rounds to what an audit keeps of them.

    It dithers the fingerprint of each by uniform noise over one unit in the last place, since noise
    held in a model is discrete.
    """

    def __init__(self) -> None:
        self._generator = np.random.default_rng([SIMULATION_SEED, 0, 1])

    def reduced(
        self,
        round: int,
        noise: Floats,
        contributions: dict[int, Contribution],
        layout: Layout,
        units: Floats,
        times: float,
        clipping_norm: float | None,
        std: float | None,
    ) -> Release:
        """Return a round.

        Args:
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
        dither = units[first] * self._generator.uniform(-0.5, 0.5, units[first].size)
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
    "the noise of round {} repeats that of round {} ({} such {}): their difference has no noise. A "
    "random seed that is set again in every round would explain this"
)
SHAPE_UNSEEN = (
    "whether the noise is Gaussian was not tested{}: it is too close to the rounding errors, "
    "which are not Gaussian"
)
NOT_GAUSSIAN = "the noise is not Gaussian (Kolmogorov-Smirnov p = {:.2g})"
OTHER_ARRAY = (
    "array '{}' has {:.3g} to {:.3g} times the noise of the whole model: it is noised or clipped "
    "differently"
)


@dataclass(frozen=True)
class NoiseLevel:
    """Noise over its scale: the configured noise, or 1 where some round has none configured.

    Attributes:
        verdict: "none", "hidden" (below rounding), "unclaimed", "less", "more" or "as claimed".
        point: best estimate of all rounds together; `shown`: its interval in the report.
        sure: the same at the confidence of an alarm.
        sure_rounds: interval of each round; all hold together at the confidence of an alarm.
    """

    releases: Sequence[Release]
    verdict: str
    scales: Sequence[float]
    point: float
    shown: Interval
    sure: Interval
    sure_rounds: Sequence[Interval]

    @property
    def too_low(self) -> list[int]:
        return [place for place, one in enumerate(self.sure_rounds) if one.high < 1]

    @property
    def alike(self) -> bool:
        """Whether all rounds are consistent with one multiple of their scales."""
        return all(one.low <= self.point <= one.high for one in self.sure_rounds)

    def stds(self) -> list[float]:
        """Return the noise of each round: of one level, unless rounds surely differ from it."""
        if self.alike or self.verdict == "hidden":
            return [self.point * scale for scale in self.scales]
        return [release.left_over for release in self.releases]

    def known_stds(self) -> list[float]:
        """Return the noise that beliefs use: an uncontradicted claim, else the measured noise.

        The claim is more exact than the measurement.
        """
        hidden = self.verdict == "hidden"
        known = list(self.scales) if hidden or self.verdict == "as claimed" else self.stds()
        pairs = zip(self.releases, known, strict=True)
        return [0.0 if release.noiseless and not hidden else std for release, std in pairs]

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
    bare = _without_noise(releases, claimed)

    def cut(interval: Interval) -> Interval:
        if not bare:
            return interval
        return Interval(0.0, interval.high if bare == "hidden" else 0.0, interval.confidence)

    shown, sure = (cut(_together(releases, scales, at)) for at in (confidence, ALARM_CONFIDENCE))
    sure_rounds = [cut(one) for one in of_each_round(releases, scales)]
    # The estimate if all rounds have the same multiple of their scales.
    pairs = zip(releases, scales, strict=True)
    energy = sum(release.energy / scale**2 for release, scale in pairs)
    point = math.sqrt(energy / sum(release.size for release in releases))
    point = 0.0 if bare == "none" else point
    level = NoiseLevel(releases, bare, scales, point, shown, sure, sure_rounds)
    if bare:
        return level
    if not claimed:
        return replace(level, verdict="unclaimed")
    if sure.high < 1 or level.too_low:
        return replace(level, verdict="less")
    return replace(level, verdict="more" if sure.low > 1 else "as claimed")


def detects(level: NoiseLevel) -> list[float] | None:
    """Return the share of the configured noise below which an alarm would be raised."""
    if level.verdict not in ("as claimed", "more"):
        return None
    pairs = zip(level.releases, level.scales, strict=True)
    rounding = max((release.rounding / scale) ** 2 for release, scale in pairs)
    freedom = sum(release.size for release in level.releases)
    return [detectable.by_energy(freedom, significance(ALARM_CONFIDENCE) / 2, rounding)]


def findings_of(level: NoiseLevel) -> list[Finding]:
    """Return what contradicts the configured size of the noise."""
    releases = level.releases
    sure, rounds = level.sure, tuple[int, ...]()
    severity: Severity = "alarm"
    if level.verdict == "hidden":
        return [Finding(HIDDEN, severity="caution", rule=RULE)]
    if level.verdict == "none":
        bare = sum(release.noiseless for release in releases)
        text = NO_NOISE.format("" if bare == len(releases) else f" in {bare} rounds")
        severity = "alarm" if all(release.claimed_std for release in releases) else "note"
    elif level.verdict == "less" and sure.high >= 1:
        worst = min((level.sure_rounds[place] for place in level.too_low), key=lambda one: one.high)
        text = SOME_LESS.format(worst.low, worst.high)
        rounds = tuple(releases[at].round for at in level.too_low)
    elif level.verdict in ("less", "more"):
        text = OTHER_LEVEL.format(level.verdict, sure.low, sure.high)
        severity = "alarm" if level.verdict == "less" else "caution"
    else:
        return []
    return [Finding(text, MEND if severity == "alarm" else "", severity, RULE, rounds)]


def _without_noise(releases: Sequence[Release], claimed: bool) -> str:
    """Return "none" if a round has only rounding errors, "hidden" if its claim is as small."""
    noiseless = [release for release in releases if release.noiseless]
    # Noise configured below rounding may or may not have been added.
    if claimed and any(
        (release.claimed_std or 0.0) <= noisy_means.ROUNDING_MARGIN * release.rounding
        for release in noiseless
    ):
        return "hidden"
    return "none" if noiseless else ""


def of_each_round(releases: Sequence[Release], scales: Sequence[float]) -> list[Interval]:
    """Return an interval for the noise of each round over its scale; all hold, as an alarm does."""
    each = 1 - (1 - ALARM_CONFIDENCE) / len(releases)
    return [
        _together([release], [scale], each) for release, scale in zip(releases, scales, strict=True)
    ]


def _together(releases: Sequence[Release], scales: Sequence[float], confidence: float) -> Interval:
    """Return an interval for the noise over its scale; its low end excludes rounding errors."""
    pairs = [(release, scale**2) for release, scale in zip(releases, scales, strict=True)]
    most = sum(release.energy / square for release, square in pairs)
    least = sum(release.energy_of_noise / square for release, square in pairs)
    return _between(least, most, sum(release.size for release in releases), confidence)


def _between(least: float, most: float, freedom: int, confidence: float) -> Interval:
    low = noisy_means.std_interval(least, freedom, confidence).low
    return Interval(low, noisy_means.std_interval(most, freedom, confidence).high, confidence)


def shape_findings(releases: Sequence[Release], stds: Sequence[float]) -> list[Finding]:
    """Return what contradicts independent N(0, s^2) in every parameter and round.

    Args:
        releases: all rounds, each with noise.
        stds: measured noise of each: compared with the claim, too little noise everywhere would be
            an objection to every array.
    """
    findings = []
    repeated = noisy_means.repeated_noise(releases, ALARM_CONFIDENCE)
    if repeated:
        first, second = repeated[0]
        pairs = "pair" if len(repeated) == 1 else "pairs"
        findings.append(Finding(REPEATED.format(second, first, len(repeated), pairs)))
    unseen = len(releases) - len(noisy_means.clear_of_rounding(releases))
    if unseen:
        where = "" if unseen == len(releases) else f" in {unseen} of {len(releases)} rounds"
        findings.append(Finding(SHAPE_UNSEEN.format(where), severity="note"))
    normal = noisy_means.normality(releases)
    if normal is not None and normal < 1 - ALARM_CONFIDENCE:
        findings.append(Finding(NOT_GAUSSIAN.format(normal)))
    names = list(releases[0].by_array)
    # The level of the whole model is judged elsewhere; this compares single arrays with it.
    if len(names) > 1 and all(list(release.by_array) == names for release in releases):
        bonferroni = 1 - (1 - ALARM_CONFIDENCE) / len(names)
        for name in names:
            found = _of_array(name, releases, stds, bonferroni)
            if found.high < 0.5 or found.low > 2:
                findings.append(Finding(OTHER_ARRAY.format(name, found.low, found.high)))
    return findings


def _of_array(
    name: str, releases: Sequence[Release], stds: Sequence[float], confidence: float
) -> Interval:
    """Return an interval for the noise of one array over that of the whole model."""
    most, least, freedom = 0.0, 0.0, 0
    for release, std in zip(releases, stds, strict=True):
        size, energy, rounding = release.by_array[name]
        most += energy / std**2
        # Rounding errors of large weights do not count as excess noise.
        least += noisy_means.energy_of_noise(energy, size, rounding) / std**2
        freedom += size
    return _between(least, most, freedom, confidence)
