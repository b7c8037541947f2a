"""How precise a campaign is, why it ended, and what its design leaves valid.

The design of the trials (`adversaries.design`) is the configuration's: whether pairs of trials
share their random numbers, and whether the trials stop by what they showed.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import logit

from adversaries import estimators
from adversaries.design import Design, pair_scores
from adversaries.trials import Bools, Floats
from fedsim.config import Config
from fedsim.report_values import DASH, Report, at, number
from fedsim.run_directory import Arrays

COMMON = (
    "Trials 2i and 2i + 1 share initial model, noise and sampling, and are in opposite worlds: the "
    "pair is the independent unit. Valid as they are: whatever counts the trials of one world, or "
    "bounds each world's rate on its own (delta', the Clopper-Pearson bound, the fit of each "
    "world). Of pairs: the advantage and its interval, membership inference. Left out: bounds from "
    "the difference of two independent samples, such as the Gaussian one."
)
STOPPED = (
    "The trials stopped by what they showed. Intervals of proportions are confidence sequences, "
    "which hold whenever one stops; lower bounds that need a number of trials fixed in advance are "
    "left out, the mean advantage of Yeom's attack and the p-values of the fit do not allow for it."
)
EXTENDED = (
    "The campaign was extended from {first} to {count} trials. Intervals and bounds are those of "
    "{count} trials planned in advance: they hold if what the first {first} showed did not decide "
    "whether to go on."
)


def design(config: Config) -> Design:
    """Return how the trials of a configuration are played."""
    return Design(config.trials.pairing == "common", config.trials.until_halfwidth)


def halfwidth(config: Config, worlds: Bools, ratios: Floats) -> float:
    """Return half the length of the advantage's interval after these trials, at audit.confidence.

    ratios: the final log-likelihood ratios of the configured vantage, [T].
    """
    odds = ratios + logit(config.audit.prior)
    found = estimators.advantage(worlds, odds, config.audit.confidence, design(config)).interval
    return (found.high - found.low) / 2


def assemble(
    config: Config,
    facts: Mapping[str, Any],
    transcript: Arrays,
    empirical: Mapping[str, Any],
    predicted: float | None,
) -> dict[str, Any]:
    """Return the `precision` of report.json.

    planned: how many trials the report is of if none was spared; halfwidth: of the advantage's
    interval; looks: after how many cohorts it was held against trials.until-halfwidth; reason: why
    no more trials were run. variance: the advantage's estimate under common random numbers against
    independent ones of the same rates, as measured and as predicted where the log-odds are normal.
    """
    worlds, final = transcript["worlds"], transcript["log_odds"][:, -1]
    trials, wanted = len(worlds), config.trials.until_halfwidth
    planned, looks = facts.get("planned_trials", trials), facts.get("cohorts")
    ends = empirical["advantage_interval"]
    reached = None if ends is None else (ends[1] - ends[0]) / 2
    return {
        "trials": trials,
        "planned": planned,
        "extended_from": config.trials.first or None,
        "pairing": config.trials.pairing,
        "until_halfwidth": wanted or None,
        "halfwidth": reached,
        "looks": looks if wanted else None,
        "reason": _reason(config, trials, planned, facts.get("stopped_at")),
        "variance": {
            "measured": _variance_ratio(worlds, final),
            "predicted": None if predicted is None else variance_ratio(predicted),
        }
        if config.trials.pairing == "common"
        else None,
        "validity": " ".join(
            note
            for note, applies in (
                (COMMON, config.trials.pairing == "common"),
                (STOPPED, wanted > 0),
            )
            if applies
        )
        or None,
    }


def variance_ratio(advantage: float) -> float:
    """Return the variance of the estimate with common random numbers over that without them.

    Where Lambda = +-mu^2/2 + mu Z with the same normal Z in both worlds, the trials of a pair are
    both won where |Z| < mu/2, which has probability 2p - 1 = Adv for the probability p of winning
    one, and never both lost. The mean score of a pair then has variance Adv (1 - Adv), that of
    independent trials 2p (1 - p): the ratio is (2p - 1)/p.
    """
    return max(0.0, 2 * advantage / (1 + advantage))


def cautions(config: Config) -> list[str]:
    """Return what a reader must know of a campaign that was extended."""
    first, count = config.trials.first, config.trials.count
    if not 0 < first < count or config.trials.until_halfwidth:
        return []  # a confidence sequence allows for it
    return [EXTENDED.format(first=first, count=count)]


def entries(report: Report) -> list[tuple[str, str]]:
    """Return the section of the page; empty for older reports."""
    found = at(report, "precision")
    if not found:
        return []
    rows = [
        ("Trials", f"{found['trials']} of {found['planned']} planned"),
        ("Half the length of the advantage's interval", number(found["halfwidth"])),
        ("Why no more", found["reason"]),
        ("Random numbers of the two worlds", found["pairing"]),
    ]
    if ratio := found["variance"]:
        rows.append(
            (
                "Variance of the advantage, against independent trials",
                f"{number(ratio['measured'])} measured, {number(ratio['predicted'])} predicted"
                if ratio["measured"] is not None
                else DASH,
            )
        )
    if found["validity"]:
        rows.append(("What stays valid", found["validity"]))
    return rows


def _reason(config: Config, trials: int, planned: int, stopped_at: float | None) -> str:
    wanted = config.trials.until_halfwidth
    if not wanted:
        return f"all {planned} trials were run"
    if stopped_at is None:
        return (
            f"all {planned} trials were run before half the interval's length was at most "
            f"trials.until-halfwidth = {wanted:g}"
        )
    return (
        f"after {trials} trials half the interval's length was {stopped_at:.4g}, at most "
        f"trials.until-halfwidth = {wanted:g} at confidence {config.audit.confidence:g}"
    )


def _variance_ratio(worlds: Bools, log_odds: Floats) -> float | None:
    """Return the variance of the pairs' mean scores over that of independent trials; None if 0."""
    scores = np.where(worlds, 1, -1) * np.sign(log_odds).astype(np.int64)
    alone = (scores[worlds].var() + scores[~worlds].var()) / 4
    return float((pair_scores(worlds, scores) / 2).var() / alone) if alone else None
