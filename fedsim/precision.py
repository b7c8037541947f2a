"""How precise a campaign is, why it ended, and what its design leaves valid.

The design of the trials (`adversaries.design`) is the configuration's: whether pairs of trials
share their random numbers, and whether the trials stop by what they showed.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from adversaries import estimators, stopping
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
    "The trials were to stop by what they showed, at one of {count} looks planned in advance, each "
    "with its share of the significance. At this look it is {share:.3g}: every interval and bound "
    "is computed at that much of 1 - confidence and holds with the stated confidence whichever the "
    "last look is."
)
EXTENDED = (
    "The campaign was extended from {first} to {count} trials. Intervals and bounds are those of "
    "{count} trials planned in advance: they hold if what the first {first} showed did not decide "
    "whether to go on."
)


def looks(config: Config) -> dict[int, float]:
    """Return after how many trials the interval is looked at, and each look's share.

    Of the significance; empty where all trials are run whatever they show.
    """
    trials = config.trials
    if not trials.until_halfwidth:
        return {}
    confidence, common = config.audit.confidence, trials.pairing == "common"
    return stopping.looks(trials.until_halfwidth, confidence, trials.count, trials.cohort, common)


def design(config: Config, trials: int) -> Design:
    """Return the design of a campaign that ended, or is looked at, after so many trials."""
    planned = looks(config)
    share = planned.get(trials, min(planned.values())) if planned else 1.0
    return Design(config.trials.pairing == "common", share)


def halfwidth(config: Config, worlds: Bools, log_odds: Floats) -> float:
    """Return half the length of the advantage's interval after these trials, at audit.confidence.

    log_odds: the final ones of the configured vantage, [T].
    """
    played = design(config, len(worlds))
    found = estimators.advantage(worlds, log_odds, config.audit.confidence, played).interval
    return (found.high - found.low) / 2


def assemble(
    config: Config,
    facts: Mapping[str, Any],
    transcript: Arrays,
    empirical: Mapping[str, Any],
    predicted: float | None,
) -> dict[str, Any]:
    """Return the `campaign` of report.json.

    planned: how many trials the report is of if none was spared; halfwidth: of the advantage's
    interval; looks: [trials, share of the significance] of each that was planned; reason: why no
    more trials were run. variance: the advantage's estimate under common random numbers against
    independent ones of the same rates, as measured and as predicted where the log-odds are normal.
    """
    worlds, final = transcript["worlds"], transcript["log_odds"][:, -1]
    trials, wanted = len(worlds), config.trials.until_halfwidth
    planned, schedule = facts.get("planned_trials", trials), looks(config)
    ends = empirical["advantage_interval"]
    reached = None if ends is None else (ends[1] - ends[0]) / 2
    return {
        "trials": trials,
        "planned": planned,
        "extended_from": config.trials.first or None,
        "pairing": config.trials.pairing,
        "until_halfwidth": wanted or None,
        "halfwidth": reached,
        "looks": [[look, share] for look, share in schedule.items()] or None,
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
                (
                    STOPPED.format(count=len(schedule), share=design(config, trials).share),
                    wanted > 0,
                ),
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
        return []
    return [EXTENDED.format(first=first, count=count)]


def entries(report: Report) -> list[tuple[str, str]]:
    """Return the section of the page; empty for older reports."""
    found = at(report, "campaign")
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
