"""Whether noise is what a Gaussian mechanism adds: new, normal, and alike in every parameter."""

from collections.abc import Sequence

from adversaries.attacks import noisy_means
from adversaries.attacks.noisy_means import Release
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.judgement.finding import Finding

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


def independent(releases: Sequence[Release]) -> bool:
    """Return whether what is left over is alike in no two rounds, beyond chance."""
    return not noisy_means.repeated_noise(releases, ALARM_CONFIDENCE)


def check(releases: Sequence[Release], stds: Sequence[float], *, declared: bool) -> list[Finding]:
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
