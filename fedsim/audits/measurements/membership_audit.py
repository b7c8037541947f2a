"""Membership inference in the identification game: was the target used, judged by losses alone?

Half of the trials are shadow models, whose worlds the attack knows. It attacks the other half.
Given the shadows, these are independent games like those of the identification adversary.
"""

import numpy as np
import numpy.typing as npt

from adversaries.arrays import Bools, Floats
from adversaries.attacks import membership_attacks, roc
from adversaries.attacks.membership_attacks import Attack
from adversaries.attacks.shadow_models import FEWEST, Observations
from adversaries.statistics import estimators
from fedsim.audits.results.measured import MembershipAttack
from fedsim.federation.runs.run_directory import Arrays
from fedsim.game.observers.memory import LOSS_TRAJECTORY, POPULATION_LOSSES

LEAST = 2 * (FEWEST + 1)
"""Trials of each world that are needed to leave one shadow out."""

SEEN, SHADOWS_FOR_ONE = 10, 20
"""Most global models after the first whose losses are compared, and shadows for each of them."""

COINS_SEED = 0x5EED

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
    return {
        name: _entry(attack, losses, shadows, confidence)
        for name, attack in membership_attacks.chosen(attack_names).items()
        if attack.needs <= _knowledge(losses)
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
    losses, along, population = (
        transcript.get(name.replace("-", "_"))
        for name in ("challenge-loss", LOSS_TRAJECTORY, POPULATION_LOSSES)
    )
    if losses is None or not np.isfinite(losses).all():
        return None
    return Observations(
        losses[:, None],
        worlds[:, None],
        None if along is None else along[:, _points(along.shape[1], len(worlds)), None],
        population,
    )


def _points(models: int, trials: int) -> npt.NDArray[np.intp]:
    """Return the global models that are compared, evenly spaced; few where there are few trials.

    A covariance with as many entries as shadows would fit chance alone.
    """
    most = min(SEEN, max(1, trials // SHADOWS_FOR_ONE // 2))
    points = np.linspace(0, models - 1, min(models, most + 1)).round()
    return np.unique(points).astype(np.intp)


def of_shadows(worlds: Bools) -> Bools:
    """Return which trials are shadows, bool [T]: every second one of each world."""
    order = np.where(worlds, np.cumsum(worlds), np.cumsum(~worlds))
    return order % 2 == 1


def decisions(attack: Attack, losses: Observations, shadows: Bools) -> tuple[Floats, Bools]:
    """Return the scores [G] of the games, and whether each is called a member, bool [G]."""
    learning, games = losses.of(shadows), losses.of(~shadows)
    scores = attack.score(games, learning)[:, 0]
    # The score is the probability of "member". A fixed seed gives the same losses the same report.
    if attack.randomised:
        return scores, np.random.default_rng(COINS_SEED).random(len(scores)) < scores
    if attack.threshold is not None:
        return scores, scores >= attack.threshold
    learnt = roc.curve(attack.score(learning, None), learning.inclusion)
    return scores, scores >= learnt.best_threshold


def _knowledge(losses: Observations) -> frozenset[str]:
    held = {"shadows"}
    held |= {"trajectory"} if losses.trajectory is not None else set()
    return frozenset(held | ({"population"} if losses.population is not None else set()))


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
        area_interval=area.interval and area.interval.ends,
        shadow_trials=int(shadows.sum()),
        games=len(worlds),
    )
