"""When a campaign is precise enough, by the design of its trials.

The design (`adversaries.statistics.design`) is the configuration's: whether pairs of trials share
their random numbers, and whether the trials stop by what they showed.
"""

from adversaries.errors import InputError
from adversaries.statistics import estimators, stopping
from adversaries.statistics.design import Design
from adversaries.statistics.trials import Bools, Floats
from fedsim.config.campaign import TrialsConfig


def interim_analyses(trials: TrialsConfig, confidence: float) -> dict[int, float]:
    """Return after how many trials the interim analyses are, and each one's share.

    Of the significance; empty where all trials are run whatever they show.

    confidence: of every interval and bound, in (0, 1).
    """
    if not trials.until_halfwidth:
        return {}
    common = trials.pairing == "common"
    return stopping.interim_analyses(
        trials.until_halfwidth, confidence, trials.count, trials.batch, common
    )


def design(trials_config: TrialsConfig, confidence: float, trials: int) -> Design:
    """Return the design of a campaign that ended, or is analysed, after so many trials.

    Raises InputError if trials stop by what they show, and no interim analysis was planned here.
    """
    planned = interim_analyses(trials_config, confidence) or {trials: 1.0}
    if trials not in planned:
        raise InputError(
            f"there are {trials} trials, but interim analyses were planned at "
            f"{', '.join(map(str, planned))}, which have all of the significance: no interval "
            "would hold; put trials.batch, trials.until-halfwidth and "
            "audit.confidence back where config.toml was changed, or begin another run (run.out)"
        )
    return Design(trials_config.pairing == "common", planned[trials])


def halfwidth(trials: TrialsConfig, confidence: float, worlds: Bools, log_odds: Floats) -> float:
    """Return half the length of the advantage's interval after some trials, at audit.confidence.

    worlds: bool [T].
    log_odds: the final ones of the configured vantage, [T].
    """
    played = design(trials, confidence, len(worlds))
    found = estimators.advantage(worlds, log_odds, confidence, played).interval
    return (found.high - found.low) / 2
