"""The client-level game against an app.

A coin decides in every trial whether the target client sends its update. That update is the worst
that the configuration allows: a thousand times the clipping norm, along a random direction that the
adversary knows. Where weights are the clients' own, its weight exceeds all others. The other
clients send almost nothing, which the adversary also knows: in differential privacy the data of
others are not secret. The score comes from the released model of every round, or from the target's
message where clients add the noise. It is the log-likelihood ratio under the noise that theory
expects. No verdict relies on it: the bounds on epsilon hold for any score.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from adversaries.arrays import Bools, Floats
from fedsim.audits.app.guarantee import AppGuarantee
from fedsim.audits.app.process import (
    UNBOUNDED_WEIGHT,
    App,
    AppRound,
    ClientRun,
    Configuration,
    Script,
)
from fedsim.audits.judgement.claim import Scope
from fedsim.common.randomness import StreamRole, generator
from fedsim.privacy.mechanism import Neighbouring
from fedsim.privacy.trust.model import Vantage

HUGE, IDLE = 1e3, 1e-3
"""Norms of the target's and of the other clients' updates, in clipping norms."""

SECOND = 2**32
"""Number of the second honest run, which no trial has."""

PILOTS = 24
"""Trials that place the threshold, where theory does not."""


@dataclass(frozen=True)
class AppGame:
    """Scores of T trials of k rounds.

    Attributes:
        worlds: bool [T]; True where the target sent its update, in half of the trials.
        ratios: float64 [T, k], log-likelihood ratio of each round. Where theory does not know it:
            shift of the round along the direction, less the threshold from `PILOTS` trials.
        judged: int [T], the round of each trial that judges a claim about one round. It is drawn
            whatever the world, and one a trial, since rounds of one trial may depend on each other.
    """

    worlds: Bools
    ratios: Floats
    judged: npt.NDArray[np.integer]

    def scores(self, scope: Scope) -> tuple[Bools, Floats]:
        """Return worlds and scores of independent observations, each [T]."""
        if scope is Scope.RUN:
            return self.worlds, self.ratios.sum(axis=1)
        return self.worlds, self.ratios[np.arange(self.worlds.size), self.judged]


def observe(audited: App, seed: int) -> tuple[Configuration, list[dict[int, ClientRun]]]:
    """Return an app's configuration as observed, and the clients' trainings in honest runs.

    A run with a huge update adds to the first honest run. Where clients take steps of Opacus, a
    second honest run shows whether the noise follows a seed.
    """
    honest = audited.honest(_app_seed(seed, 0))
    trainings = [honest.clients]
    if any(client.run.steps for client in honest.clients.values()):
        trainings.append(audited.honest(_app_seed(seed, SECOND)).clients)
    configuration, observation = honest.configuration, honest.configuration.observation
    assert observation is not None
    player = _Player(audited, configuration, Neighbouring.ADD_REMOVE, seed)
    norms = [each.message_norm for each in player.run(1, True)]
    # Rounding in float32 changes a huge update far less than clipping it does. nan is not above.
    kept = any(norm > 0.5 * player.length for norm in norms) or observation.client_norm_kept
    observation = replace(observation, client_norm_kept=kept)
    return replace(configuration, observation=observation), trainings


def play(
    audited: App,
    configuration: Configuration,
    expected: AppGuarantee | None,
    neighbouring: Neighbouring,
    vantage: Vantage,
    trials: int,
    seed: int,
    progress: Callable[[int], None] = lambda done: None,
) -> AppGame:
    """Play the game `trials` times, half in each world, and return the scores.

    A trial depends only on the seed and its number.

    Args:
        configuration: from `observe`.
        expected: theory for that configuration, which scores the rounds. Where it is None or
            infinite, or the noise is seeded, `PILOTS` more trials place a threshold.
        neighbouring: the target's message in the world without its update. Add-remove: an idle
            update, like all other clients. Replace: the opposite update.
        vantage: the server scores the target's message, any other vantage the released model.
        trials: at least 1; an odd number has one more trial with the update.
        seed: of the worlds, the direction and the app's own randomness.
        progress: called with the number of finished trials after each, pilots not counted.
    """
    player = _Player(audited, configuration, neighbouring, seed)
    shown = "message_shift" if vantage is Vantage.SERVER else "model_shift"
    seeded = configuration.observation is not None and configuration.observation.seeded
    threshold: Floats | None = None
    if expected is None or seeded or not expected.finite:
        # The pilots use the first numbers, and decide only the threshold.
        coins = np.arange(PILOTS) % 2 == 0
        pilots = enumerate(coins, 2)
        seen = np.array([_shifts(player.run(number, bool(coin)), shown) for number, coin in pilots])
        threshold = (seen[coins].mean(axis=0) + seen[~coins].mean(axis=0)) / 2
    worlds = generator(seed, StreamRole.WORLD).permutation(np.arange(trials) % 2 == 0)
    ratios = np.empty((trials, configuration.rounds))
    for trial, world in enumerate(worlds):
        ratios[trial] = _shifts(player.run(2 + PILOTS + trial, bool(world)), shown)
        if threshold is not None:
            ratios[trial] -= threshold
        elif expected is not None:
            ratios[trial] = _ratios(ratios[trial], expected)
        progress(trial + 1)
    drawn = generator(seed, StreamRole.SAMPLING).integers(configuration.rounds, size=trials)
    return AppGame(worlds, ratios, drawn)


class _Player:
    def __init__(
        self, audited: App, configuration: Configuration, neighbouring: Neighbouring, seed: int
    ) -> None:
        self._audited, self._seed = audited, seed
        central, local = configuration.central, configuration.local
        norms = [*(central.clipping_norms if central else ()), local.clipping_norm if local else 0]
        self.length = HUGE * (max(norms) or 1.0)
        # Far below every clipping norm: clipped idle updates would be as long as the target's.
        idle = IDLE * min([norm for norm in norms if norm] or [1.0])
        self._absent = -self.length if neighbouring is Neighbouring.REPLACE else idle
        observation = configuration.observation
        free = central is None or not central.equal_weights_enforced
        constant = observation is None or observation.constant_weights
        self._script = Script(
            target=0,
            length=self.length,
            weight=UNBOUNDED_WEIGHT if free and not constant else None,
            weighted_by=central.weighted_by if central else "num-examples",
            idle=idle,
            seed=seed,
        )

    def run(self, number: int, world: bool) -> tuple[AppRound, ...]:
        script = replace(self._script, length=self.length if world else self._absent)
        return self._audited.scripted(_app_seed(self._seed, number), script)


def _shifts(rounds: Sequence[AppRound], shown: str) -> Floats:
    return np.nan_to_num(np.array([getattr(each, shown) for each in rounds]))


def _ratios(shifts: Floats, expected: AppGuarantee) -> Floats:
    """Return the log-likelihood ratio of every round, [k], by theory's influence and noise.

    Without noise the ratio is that of unit noise, of which only the sign matters. A round without
    noise reveals the world, so that other rounds count for nothing beside it.
    """
    influences, stds = np.array(expected.influences), np.array(expected.noise_stds)
    # Opposite updates put the two worlds on either side of 0.
    middle = 0.0 if expected.neighbouring is Neighbouring.REPLACE else influences / 2
    silent = stds == 0
    variances = np.where(silent, 1.0, np.inf if silent.any() else stds**2)
    return influences * (shifts - middle) / variances


def _app_seed(seed: int, number: int) -> int:
    return int(generator(seed, StreamRole.NOISE, trial=number).integers(2**32))
