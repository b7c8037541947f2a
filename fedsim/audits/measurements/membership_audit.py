"""Membership inference in the identification game: was the target used, judged by losses alone?

Half of the trials are shadow models, whose worlds the attack knows. It attacks the other half.
Given the shadows, these are independent games like those of the identification adversary.
"""

import numpy as np

from adversaries.arrays import Bools, Floats
from adversaries.attacks import membership_attacks, roc
from adversaries.attacks.membership_attacks import Attack
from adversaries.attacks.shadow_models import FEWEST, Observations
from adversaries.statistics import estimators
from fedsim.audits.results.measured import MembershipAttack
from fedsim.federation.runs.run_directory import Arrays
from fedsim.game.observers.memory import POPULATION_LOSSES

LEAST = 2 * (FEWEST + 1)
"""Trials of each world that are needed to leave one shadow out."""

WITHOUT_LOSS = (
    "Attacks by losses are left out: the target is a crafted gradient that belongs to no record, "
    "so that it has no loss. The record that it replaces belongs to neither world."
)


WITHHELD = (
    "Attacks by losses are left out: the clients protect their records, so that they sent no "
    "losses. Play these attacks on records that need no protection."
)


def withheld(transcript: Arrays) -> bool:
    return "true_positive_rate" not in transcript


def attacks(
    challenge_kind: str, attack_names: str, transcript: Arrays, confidence: float
) -> dict[str, MembershipAttack]:
    """Return the result of each configured attack on the target, by its name in the report.

    An attack without a fixed threshold chooses its threshold on the shadows. The result is empty
    where `why_none` has a reason.
    """
    losses, worlds = observations(transcript), transcript["worlds"]
    if losses is None or why_none(challenge_kind, attack_names, transcript):
        return {}
    shadows = of_shadows(worlds)
    known = {"shadows"} if losses.population is None else {"shadows", "population"}
    return {
        name: _entry(attack, losses, shadows, confidence)
        for name, attack in membership_attacks.chosen(attack_names).items()
        if attack.needs <= known
    }


def why_none(challenge_kind: str, attack_names: str, transcript: Arrays) -> str | None:
    worlds = transcript["worlds"]
    if withheld(transcript):
        return WITHHELD
    if challenge_kind == "gradient":
        return WITHOUT_LOSS
    if not membership_attacks.chosen(attack_names):
        return None
    if observations(transcript) is None:
        return "No membership attack was played: the transcript has no finite losses of the target."
    if (fewest := min(worlds.sum(), (~worlds).sum())) < LEAST:
        return (
            f"No membership attack was played: {fewest} trials of a world are too few. The attacks "
            f"learn from every second trial, and need {LEAST} trials of each world."
        )
    return None


def observations(transcript: Arrays) -> Observations | None:
    """Return the target's losses in all trials, [T, 1]; None for a transcript without them."""
    worlds = transcript["worlds"]
    losses, population = (
        transcript.get(name.replace("-", "_")) for name in ("challenge-loss", POPULATION_LOSSES)
    )
    if losses is None or not np.isfinite(losses).all():
        return None
    return Observations(losses[:, None], worlds[:, None], population)


def of_shadows(worlds: Bools) -> Bools:
    """Return which trials are shadows, bool [T]: every second one of each world."""
    order = np.where(worlds, np.cumsum(worlds), np.cumsum(~worlds))
    return order % 2 == 1


def decisions(attack: Attack, losses: Observations, shadows: Bools) -> tuple[Floats, Bools]:
    """Return the scores [G] of the games, and whether each is called a member, bool [G]."""
    learning, games = losses.of(shadows), losses.of(~shadows)
    scores = attack.scores(games, learning)[:, 0]
    if attack.threshold is not None:
        return scores, scores >= attack.threshold
    learnt = roc.curve(attack.scores(learning, None), learning.inclusion)
    return scores, scores >= learnt.best_threshold


def _entry(
    attack: Attack, losses: Observations, shadows: Bools, confidence: float
) -> MembershipAttack:
    games = losses.of(~shadows)
    worlds = games.inclusion[:, 0]
    scores, called = decisions(attack, losses, shadows)
    won = estimators.advantage(worlds, np.where(called, 1.0, -1.0), confidence)
    area = roc.independent_area(scores, worlds, confidence)
    return MembershipAttack(
        advantage=won.point,
        advantage_interval=won.interval.ends,
        tpr=float(called[worlds].mean()),
        fpr=float(called[~worlds].mean()),
        area=area.point,
    )
