"""Membership inference in the adversary's own game: was the challenge used, from losses alone?

Some of the trials are shadow models, whose worlds the attacker knows, and the others are attacked:
given the shadows these are independent games, as those of the identification adversary are.
"""

import numpy as np
import numpy.typing as npt

from adversaries.attacks import membership_attacks, roc
from adversaries.attacks.membership_attacks import Attack
from adversaries.attacks.shadow_models import FEWEST, Observations
from adversaries.statistics import estimators
from adversaries.statistics.design import Design
from adversaries.statistics.trials import Bools, Floats
from fedsim.audits.results.measured import MembershipAttack
from fedsim.federation.runs.run_directory import Arrays
from fedsim.game.observers.memory import LOSS_TRAJECTORY, POPULATION_LOSSES

LEAST = 2 * (FEWEST + 1)
"""Trials of each world without which there are no shadows to leave one out of."""

SEEN, SHADOWS_FOR_ONE = 10, 20
"""At how many global models after the first losses are compared at most; shadows for each."""

COINS_SEED = 0x5EED
"""Of rules that answer at random: the same transcript gets the same report."""

WITHOUT_LOSS = (
    "The challenge is a gradient that no record has, and so has no loss: attacks on it by losses "
    "are left out. What stands in its place belongs to neither world."
)


WITHHELD = (
    "The clients protect their records: no loss of any left them, and attacks by losses are left "
    "out. They are played on records that need no protection."
)


def withheld(transcript: Arrays) -> bool:
    """Return whether no adversary's node disclosed how its attacks on the final model went."""
    return "true_positive_rate" not in transcript


def attacks(
    challenge_kind: str, attack_names: str, transcript: Arrays, confidence: float, played: Design
) -> dict[str, MembershipAttack]:
    """Return what each configured attack achieves on the challenge, by its name in the report.

    Those that go by a threshold which is not fixed in advance choose it on the shadows. Nothing
    where `why_none` has a reason.
    """
    seen, worlds = observations(transcript), transcript["worlds"]
    if seen is None or why_none(challenge_kind, attack_names, transcript):
        return {}
    shadows = of_shadows(worlds)
    return {
        name: _entry(attack, seen, shadows, confidence, played)
        for name, attack in membership_attacks.chosen(attack_names).items()
        if attack.needs <= _known(seen)
    }


def why_none(challenge_kind: str, attack_names: str, transcript: Arrays) -> str | None:
    """Return why attacks that were asked for were not played, None if they were or none was."""
    worlds = transcript["worlds"]
    if withheld(transcript):
        return WITHHELD
    if challenge_kind == "gradient":
        return WITHOUT_LOSS
    if not membership_attacks.chosen(attack_names):
        return None
    if observations(transcript) is None:
        return "The transcript has no finite losses of the challenge: no membership attack."
    if (fewest := min(worlds.sum(), (~worlds).sum())) < LEAST:
        return (
            f"{fewest} trials of a world are too few for membership attacks, which are fitted "
            f"to every second trial and need {LEAST} of each: none was played."
        )
    return None


def observations(transcript: Arrays) -> Observations | None:
    """Return the challenge's losses in all trials, [T, 1]; None for a transcript without them."""
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
    """Return which of the global models are compared: evenly, and few where there are few trials.

    A covariance of as many numbers as there are shadows for it would be of chance alone.
    """
    most = min(SEEN, max(1, trials // SHADOWS_FOR_ONE // 2))
    points = np.linspace(0, models - 1, min(models, most + 1)).round()
    return np.unique(points).astype(np.intp)


def of_shadows(worlds: Bools) -> Bools:
    """Return which trials are shadows, bool [T]: every second one of each world."""
    order = np.where(worlds, np.cumsum(worlds), np.cumsum(~worlds))
    return order % 2 == 1


def decisions(attack: Attack, seen: Observations, shadows: Bools) -> tuple[Floats, Bools]:
    """Return the scores [G] of the games, and whether each is taken for a member, bool [G].

    Args:
        shadows: bool [T], the trials that thresholds are learnt on; the others are the games.
    """
    given, games = seen.of(shadows), seen.of(~shadows)
    scores = attack.score(games, given)[:, 0]
    if attack.randomised:
        return scores, np.random.default_rng(COINS_SEED).random(len(scores)) < scores
    if attack.threshold is not None:
        return scores, scores >= attack.threshold
    learnt = roc.curve(attack.score(given, None), given.inclusion)
    return scores, scores >= learnt.best_threshold


def _known(seen: Observations) -> frozenset[str]:
    """Return what is known of the models: not the losses of other records, members or not."""
    known = {"shadows"}
    known |= {"trajectory"} if seen.trajectory is not None else set()
    return frozenset(known | ({"population"} if seen.population is not None else set()))


def _entry(
    attack: Attack, seen: Observations, shadows: Bools, confidence: float, played: Design
) -> MembershipAttack:
    games = seen.of(~shadows)
    worlds = games.inclusion[:, 0]
    scores, called = decisions(attack, seen, shadows)
    won = estimators.advantage(worlds, np.where(called, 1.0, -1.0), confidence, played)
    area = roc.independent_area(scores, worlds, played.level(confidence))
    # The interval of the area takes the games of one world for independent of the other's.
    ends = None if played.common else area.interval
    return MembershipAttack(
        advantage=won.point,
        advantage_interval=(won.interval.low, won.interval.high),
        tpr=float(called[worlds].mean()),
        fpr=float(called[~worlds].mean()),
        area=area.point,
        area_interval=None if ends is None else (ends.low, ends.high),
        shadow_trials=int(shadows.sum()),
        games=len(worlds),
    )
