"""The client-level game against an app: did the target client send its update, or not?

A coin decides in every trial. The target's update is the worst that the configuration allows: a
thousand times the clipping norm, along a random direction that the adversary knows. Where weights
are the clients' own, its weight exceeds all others. The other clients send almost nothing, which
the adversary also knows: in differential privacy the data of others are not secret. The score comes
from the released model of every round, or from the target's message where clients add the noise.

The score is the log-likelihood ratio under the noise that theory expects. No verdict relies on it:
the bounds on epsilon hold for any score.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from adversaries.statistics.intervals import Interval, significance
from fedsim.audits.app import guarantee as theory
from fedsim.audits.app.guarantee import Guarantee
from fedsim.audits.app.process import (
    UNBOUNDED_WEIGHT,
    App,
    CentralNoise,
    Configuration,
    Execution,
    Observation,
    Script,
)
from fedsim.audits.judgement.claim import Scope
from fedsim.common.randomness import Role, generator
from fedsim.privacy.mechanism import Neighbouring
from fedsim.privacy.trust.model import Vantage

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
HUGE, IDLE = 1e3, 1e-3
"""Norms of the target's and of the other clients' updates, in clipping norms."""

PILOTS = 24
"""Trials that place the threshold, where theory does not."""


@dataclass(frozen=True)
class Game:
    """Scores of T trials of k rounds.

    Attributes:
        worlds: bool [T]; True where the target sent its update, in half of the trials.
        ratios: float64 [T, k], log-likelihood ratio of each round. Where theory does not know it:
            shift of the round along the direction, less the threshold from `PILOTS` trials.
    """

    worlds: Bools
    ratios: Floats

    def scores(self, scope: Scope) -> tuple[Bools, Floats]:
        """Return worlds and scores of independent observations, each [T], or [T k] for a round."""
        if scope is Scope.RUN:
            return self.worlds, self.ratios.sum(axis=1)
        return np.repeat(self.worlds, self.ratios.shape[1]), self.ratios.ravel()


def observe(audited: App, seed: int, confidence: float) -> Configuration:
    """Run the app twice, honestly and with one huge update; return its configuration."""
    honest = audited.execute(_app_seed(seed, 0))
    configuration = honest.configuration
    if configuration.central is not None:
        central = _with_norms(configuration.central, honest)
        configuration = replace(configuration, central=central)
    weights: dict[int, float] = {}
    for each in honest.rounds:
        weights |= each.weights
    observation = Observation(
        participants=tuple(each.replies for each in honest.rounds),
        weights=weights,
        noise_ratios=_noise_ratios(honest, configuration, confidence),
        client_norm_kept=False,
        seeded=honest.seeded,
        statements=honest.statements,
        training=honest.training,
        noise_coordinates=honest.parameters,
    )
    configuration = replace(configuration, observation=observation)
    player = _Player(audited, configuration, Neighbouring.ADD_REMOVE, seed)
    probe = player.run(1, True)
    lengths = [each.message_norm for each in probe.rounds if not np.isnan(each.message_norm)]
    # Rounding in float32 changes a huge update far less than clipping it does.
    kept = bool(lengths) and max(lengths) > 0.5 * player.length
    observation = replace(observation, client_norm_kept=kept)
    return replace(configuration, observation=observation)


def _noise_ratios(
    honest: Execution, configuration: Configuration, confidence: float
) -> tuple[Interval, ...]:
    """Return intervals for the realised over configured standard deviation of each round's noise.

    The squared noise of a round, over its configured variance, is chi-square over all parameters.
    All intervals hold together with this confidence (Bonferroni). The result is () where no noise
    is configured, or where the noise of some round could not be measured.
    """
    central = configuration.central
    if central is None or not central.noise_multiplier:
        return ()
    tail = significance(confidence) / 2 / len(honest.rounds)
    ratios = []
    for each in honest.rounds:
        if each.noise_energy is None:
            return ()
        std = central.noise_multiplier * each.noise_norm / central.sampled_clients
        squares = each.noise_energy / std**2
        low, high = np.sqrt(squares / chi2.ppf([1 - tail, tail], honest.parameters))
        ratios.append(Interval(float(low), float(high), confidence))
    return tuple(ratios)


def play(
    audited: App,
    configuration: Configuration,
    guarantee: Guarantee | None,
    neighbouring: Neighbouring,
    vantage: Vantage,
    trials: int,
    seed: int,
    progress: Callable[[int], None] = lambda done: None,
) -> Game:
    """Play the game `trials` times, half in each world, and return the scores.

    A trial depends only on the seed and its number.

    Args:
        configuration: from `observe`.
        guarantee: theory for that configuration, which scores the rounds. Where it is None or
            infinite, or the noise is seeded, `PILOTS` more trials place a threshold.
        neighbouring: the target's message in the world without its update. Add-remove: an idle
            update, like all other clients. Replace: the opposite update.
        vantage: the server scores the target's message, any other vantage the released model.
        trials: at least 1; an odd number has one more trial with the update.
        seed: of the worlds, the direction and the app's own randomness.
        progress: called with the number of finished trials after each, pilots not counted.
    """
    player = _Player(audited, configuration, neighbouring, seed)
    worlds = generator(seed, Role.WORLD).permutation(np.arange(trials) % 2 == 0)
    modelled = guarantee is not None and all(
        np.isfinite([*guarantee.influences, *guarantee.noise_stds])
    )
    modelled = modelled and not (configuration.observation and configuration.observation.seeded)
    middle: Floats = np.zeros(configuration.rounds)
    if not modelled:
        # The pilots use the first numbers, and decide only the threshold.
        coins = np.arange(PILOTS) % 2 == 0
        pilots = [player.run(2 + number, bool(coin)) for number, coin in enumerate(coins)]
        shifts = np.array([_shifts(each, vantage) for each in pilots])
        middle = (shifts[coins].mean(axis=0) + shifts[~coins].mean(axis=0)) / 2
    ratios = np.empty((trials, configuration.rounds))
    for trial, world in enumerate(worlds):
        execution = player.run(2 + PILOTS + trial, bool(world))
        shifts = _shifts(execution, vantage)
        if modelled and guarantee is not None:
            current = guarantee
            if configuration.central is not None and configuration.central.adaptive:
                # Adaptive clipping moves the norms from run to run.
                central = _with_norms(configuration.central, execution)
                moved = replace(configuration, central=central)
                current = theory.guarantee(moved, neighbouring, guarantee.vantage) or guarantee
            ratios[trial] = _ratios(shifts, current)
        else:
            ratios[trial] = shifts - middle
        progress(trial + 1)
    return Game(worlds, ratios)


class _Player:
    def __init__(
        self, audited: App, configuration: Configuration, neighbouring: Neighbouring, seed: int
    ) -> None:
        self._audited, self._neighbouring, self._seed = audited, neighbouring, seed
        central, local = configuration.central, configuration.local
        norms = [*(central.clipping_norms if central else ()), local.clipping_norm if local else 0]
        self.length = HUGE * (max(norms) or 1.0)
        # Far below every clipping norm: clipped idle updates would be as long as the target's.
        self._idle = IDLE * min([norm for norm in norms if norm] or [1.0])
        observation = configuration.observation
        free = central is None or not central.equal_weights_enforced
        constant = observation is None or observation.constant_weights
        self._weight = UNBOUNDED_WEIGHT if free and not constant else None
        self._weighted_by = central.weighted_by if central else "num-examples"

    def run(self, number: int, world: bool) -> Execution:
        absent = -self.length if self._neighbouring is Neighbouring.REPLACE else self._idle
        length = self.length if world else absent
        script = Script(0, length, self._weight, self._weighted_by, self._idle, self._seed)
        return self._audited.execute(_app_seed(self._seed, number), script)


def _shifts(execution: Execution, vantage: Vantage) -> Floats:
    name = "message_shift" if vantage is Vantage.SERVER else "model_shift"
    return np.nan_to_num(np.array([getattr(each, name) for each in execution.rounds]))


def _ratios(shifts: Floats, guarantee: Guarantee) -> Floats:
    """Return the log-likelihood ratio of every round, [k], by theory's influence and noise.

    Without noise the ratio is that of unit noise, of which only the sign matters. A round without
    noise reveals the world, so that other rounds count for nothing beside it.
    """
    influences, stds = np.array(guarantee.influences), np.array(guarantee.noise_stds)
    # Opposite updates put the two worlds on either side of 0.
    middle = 0.0 if guarantee.neighbouring is Neighbouring.REPLACE else influences / 2
    silent = stds == 0
    variances = np.where(silent, 1.0, np.inf if silent.any() else stds**2)
    return influences * (shifts - middle) / variances


def _with_norms(central: CentralNoise, execution: Execution) -> CentralNoise:
    return replace(
        central,
        clipping_norms=tuple(each.clipped_to for each in execution.rounds),
        noise_norms=tuple(each.noise_norm for each in execution.rounds),
    )


def _app_seed(seed: int, number: int) -> int:
    return int(generator(seed, Role.NOISE, trial=number).integers(2**32))
