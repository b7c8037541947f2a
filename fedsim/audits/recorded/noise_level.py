"""How much noise the releases of a run had, in all rounds and in each, and whether it is Gaussian.

Noise as a Gaussian mechanism adds it is new, normal, and alike in every parameter.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from adversaries.attacks import noisy_means
from adversaries.attacks.noisy_means import Release
from adversaries.statistics.intervals import ALARM_CONFIDENCE, Interval, significance
from fedsim.audits.judgement.judge import Finding
from fedsim.audits.run import detectable

Ends = Mapping[str, float]
"""A standard deviation of one round: its "point", and the ends "low" and "high"."""

HIDDEN = (
    "rounding hides the noise: the configured noise is no larger than what rounding may leave over "
    "of a model in this precision, so that nobody can tell from here whether it was added"
)

NO_NOISE = (
    "no noise: nothing but rounding is left over. Of updates as they were sent epsilon is infinite "
    "and the belief certain; noise that clients add before they send is not seen from here"
)

SAME = 0.99
"""Correlation above which the noise of two rounds is the same, whatever else is left over."""

ALIKE = (
    "what is left over is alike in rounds, beyond chance: noise that is used again in part "
    "protects less than was declared, and what else may follow the mean cannot be told from it"
)

SHAPE_UNSEEN = (
    "whether the noise is Gaussian was not tested{}: it is too close to what rounding leaves over, "
    "which is not"
)


@dataclass(frozen=True)
class NoiseLevel:
    """Noise over its scale: the configured one, or 1 where some round has none.

    Attributes:
        verdict: "none", "hidden" (below rounding), "unclaimed", "less", "more" or "as claimed".
        scales: of every round, the standard deviation that the others are multiples of.
        point: noise over its scale, of all rounds together.
        shown: interval for that, at the confidence of the report.
        sure: at the confidence of an alarm.
        rounds: interval for each round by itself, all of them right together with the confidence of
            the report.
        sure_rounds: likewise with the confidence of an alarm.
    """

    verdict: str
    scales: Sequence[float]
    point: float
    shown: Interval
    sure: Interval
    rounds: Sequence[Interval]
    sure_rounds: Sequence[Interval]

    @property
    def too_low(self) -> list[int]:
        """Positions of rounds that for sure have less noise than their scale."""
        return [place for place, one in enumerate(self.sure_rounds) if one.high < 1]

    @property
    def alike(self) -> bool:
        """Whether no round for sure has another multiple of its scale than all together."""
        return all(one.low <= self.point <= one.high for one in self.sure_rounds)

    def stds(self, releases: Sequence[Release]) -> list[Ends]:
        """Return what each round had: of one level, unless rounds for sure differ from it."""
        if self.alike or self.verdict == "hidden":
            same = _ends(self.point, self.shown)
            return [{name: end * scale for name, end in same.items()} for scale in self.scales]
        return [
            _ends(release.left_over, one, scale)
            for release, one, scale in zip(releases, self.rounds, self.scales, strict=True)
        ]

    def sure_stds(self, releases: Sequence[Release]) -> list[Ends]:
        """Return what each round had, by itself, as surely as an alarm must."""
        return [
            _ends(release.left_over, one, scale)
            for release, one, scale in zip(releases, self.sure_rounds, self.scales, strict=True)
        ]

    def most_stds(self) -> list[float]:
        """Return noise that steps for sure do not exceed, as far as their privacy goes.

        Where steps are alike they are judged together. Noise that is uneven all the same protects
        less than even noise of the same mean square (1/s^2 is convex), so that nobody is wronged.
        """
        if self.alike:
            return [self.sure.high * scale for scale in self.scales]
        pairs = zip(self.sure_rounds, self.scales, strict=True)
        return [one.high * scale for one, scale in pairs]

    def least_stds(self) -> list[float]:
        """Return the noise of each round that may support a claim.

        It is configured and not contradicted, or there for sure in that very round. More noise than
        configured supports nothing: a server's learning rate makes more of the updates as well.
        """
        if self.verdict in ("as claimed", "more"):
            return list(self.scales)
        most = math.inf if self.verdict == "unclaimed" else 1.0
        pairs = zip(self.sure_rounds, self.scales, strict=True)
        return [min(one.low, most) * scale for one, scale in pairs]


def measured(releases: Sequence[Release], confidence: float) -> NoiseLevel:
    """Return the noise of releases, with intervals at this confidence and at that of an alarm.

    Args:
        releases: of all rounds, at least one.
    """
    claims = [release.claimed_std for release in releases]
    claimed = all(claims)
    # Without a claim every round is measured by the same scale.
    scales = [(claim if claimed else None) or 1.0 for claim in claims]
    verdict = _without_noise(releases, claimed)
    shown, sure = (_together(releases, scales, at) for at in (confidence, ALARM_CONFIDENCE))
    rounds, sure_rounds = (_single(releases, scales, at) for at in (confidence, ALARM_CONFIDENCE))
    point = math.sqrt(
        sum(release.energy / scale**2 for release, scale in zip(releases, scales, strict=True))
        / sum(release.size for release in releases)
    )
    if verdict:
        shown, sure = _cut(shown, verdict), _cut(sure, verdict)
        rounds, sure_rounds = (
            [_cut(one, verdict) for one in each] for each in (rounds, sure_rounds)
        )
        point = 0.0 if verdict == "none" else point
    found = NoiseLevel(verdict, scales, point, shown, sure, rounds, sure_rounds)
    return found if verdict else _judged(found, claimed)


def seen_below(level: NoiseLevel, releases: Sequence[Release]) -> float | None:
    """Return the share of the configured noise below which less of it would have been an alarm.

    In all rounds alike; None where the noise is not held against a configured one.
    """
    if level.verdict not in ("as claimed", "more"):
        return None
    pairs = zip(releases, level.scales, strict=True)
    rounding = max((release.rounding / scale) ** 2 for release, scale in pairs)
    freedom = sum(release.size for release in releases)
    return detectable.by_energy(freedom, significance(ALARM_CONFIDENCE) / 2, rounding)


def findings_of(level: NoiseLevel, releases: Sequence[Release]) -> list[Finding]:
    sure = level.sure
    if level.verdict == "hidden":
        return [Finding("caution", "", HIDDEN)]
    if level.verdict == "none":
        bare = [release for release in releases if release.noiseless]
        where = "" if len(bare) == len(releases) else f" in {len(bare)} rounds"
        claimed = all(release.claimed_std for release in releases)
        text = NO_NOISE.replace("no noise", f"no noise{where}", 1)
        return [Finding("alarm" if claimed else "note", "", text)]
    if level.verdict == "less" and sure.high >= 1:
        worst = min((level.sure_rounds[place] for place in level.too_low), key=lambda one: one.high)
        text = (
            f"the noise of some rounds is less than configured, in the worst {worst.low:.4g} to "
            f"{worst.high:.4g} times its standard deviation ({ALARM_CONFIDENCE:.2%} confidence, of "
            "all rounds); more of it in others makes up for nothing"
        )
        rounds = tuple(releases[at].round for at in level.too_low)
        return [Finding("alarm", "", text, rounds=rounds)]
    if level.verdict in ("less", "more"):
        text = (
            f"the noise is {level.verdict} than configured: {sure.low:.4g} to {sure.high:.4g} "
            f"times its standard deviation ({ALARM_CONFIDENCE:.2%} confidence)"
        )
        return [Finding("alarm" if level.verdict == "less" else "caution", "", text)]
    return []


def _without_noise(releases: Sequence[Release], claimed: bool) -> str:
    """Return "none" where a round has nothing but rounding, "hidden" if its claim has no more."""
    noiseless = [release for release in releases if release.noiseless]
    # Noise that is configured below rounding may be there or not.
    if claimed and any(
        (release.claimed_std or 0.0) <= noisy_means.ROUNDING_MARGIN * release.rounding
        for release in noiseless
    ):
        return "hidden"
    return "none" if noiseless else ""


def _judged(level: NoiseLevel, claimed: bool) -> NoiseLevel:
    verdict = "unclaimed"
    if claimed:
        more = "more" if level.sure.low > 1 else "as claimed"
        verdict = "less" if level.sure.high < 1 or level.too_low else more
    return replace(level, verdict=verdict)


def _cut(interval: Interval, verdict: str) -> Interval:
    """Return an interval of noise that may not be there, or is not."""
    return Interval(0.0, interval.high if verdict == "hidden" else 0.0, interval.confidence)


def _single(
    releases: Sequence[Release], scales: Sequence[float], confidence: float
) -> list[Interval]:
    """Return an interval for each round; all hold together with this confidence (Bonferroni)."""
    each = 1 - (1 - confidence) / len(releases)
    return [
        _together([release], [scale], each) for release, scale in zip(releases, scales, strict=True)
    ]


def _together(releases: Sequence[Release], scales: Sequence[float], confidence: float) -> Interval:
    """Return an interval for the noise over its scale; what rounding may have left is no noise."""
    freedom = sum(release.size for release in releases)
    most, least = 0.0, 0.0
    for release, scale in zip(releases, scales, strict=True):
        most += release.energy / scale**2
        least += release.energy_of_noise / scale**2
    high = noisy_means.std_interval(most, freedom, confidence).high
    return Interval(noisy_means.std_interval(least, freedom, confidence).low, high, confidence)


def _ends(point: float, interval: Interval, scale: float = 1.0) -> Ends:
    """Return a measured standard deviation with the ends of an interval, which is over a scale."""
    return {"point": point, "low": interval.low * scale, "high": interval.high * scale}


def independent(releases: Sequence[Release]) -> bool:
    """Return whether what is left over is alike in no two rounds, beyond chance."""
    return not noisy_means.repeated_noise(releases, ALARM_CONFIDENCE)


def shape_findings(
    releases: Sequence[Release], stds: Sequence[float], *, declared: bool
) -> list[Finding]:
    """Return what speaks against independent N(0, s^2) in every parameter and round.

    Args:
        releases: of all rounds, none of them without noise.
        declared: whether somebody said that the noise is that of a mean of clipped updates: then
            what else is left over may be alike in all rounds, and noise is called repeated only
            where next to nothing but noise is, and all of it is the same.
    """
    findings = []
    repeated = noisy_means.repeated_noise(releases, ALARM_CONFIDENCE, SAME if declared else 0.0)
    if repeated:
        first, second = repeated[0]
        findings.append(
            Finding(
                "alarm",
                "",
                f"the noise of round {second} repeats that of round {first} ({len(repeated)} such "
                "pairs): is the random seed set anew in every round? Their difference has no noise",
            )
        )
    elif declared and not independent(releases):
        findings.append(Finding("caution", "", ALIKE))
    unseen = len(releases) - len(noisy_means.clear_of_rounding(releases))
    if unseen:
        where = "" if unseen == len(releases) else f" in {unseen} of {len(releases)} rounds"
        findings.append(Finding("note", "", SHAPE_UNSEEN.format(where)))
    normal = noisy_means.normality(releases)
    if normal is not None and normal < 1 - ALARM_CONFIDENCE:
        findings.append(
            Finding("alarm", "", f"the noise is not Gaussian (Kolmogorov-Smirnov p = {normal:.2g})")
        )
    names = list(releases[0].by_array)
    if any(list(release.by_array) != names for release in releases):
        return findings
    bonferroni = 1 - (1 - ALARM_CONFIDENCE) / len(names)
    for name in names:
        most, least, freedom = 0.0, 0.0, 0
        for release, std in zip(releases, stds, strict=True):
            size, energy, rounding = release.by_array[name]
            most += energy / std**2
            least += noisy_means.energy_of_noise(energy, size, rounding) / std**2
            freedom += size
        # What rounding may have left over of large weights is no noise too many.
        low = noisy_means.std_interval(least, freedom, bonferroni).low
        high = noisy_means.std_interval(most, freedom, bonferroni).high
        # All parameters together have been judged already; here the odd array out.
        if len(names) > 1 and (high < 0.5 or low > 2):
            findings.append(
                Finding(
                    "alarm",
                    "",
                    f"array '{name}' was left over with {low:.3g} to {high:.3g} times the noise of "
                    "the whole model: it is noised or clipped differently",
                )
            )
    return findings
