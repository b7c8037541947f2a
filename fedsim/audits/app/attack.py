"""The client-level game against an app: did the target client send its update, or none?

In every trial a coin decides. The target's update is the worst that the configuration allows: a
thousand times the clipping norm, in a random direction that the adversary knows, under a weight
that outdoes all others where weights are the clients' own. All other clients send next to nothing,
which the adversary knows too: the data of others are no secret in differential privacy. What is
scored is the released model of every round, or the target's message where clients add the noise.

The score is the log-likelihood ratio by the noise that theory expects. Nothing is claimed on its
authority: the bounds on epsilon hold whatever the score is.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from adversaries.statistics.intervals import Interval, significance
from fedsim.audits.app import guarantee as theory
from fedsim.audits.app.configuration import (
    UNBOUNDED_WEIGHT,
    CentralNoise,
    Configuration,
    Observation,
)
from fedsim.audits.app.guarantee import Guarantee
from fedsim.audits.app.process import App, Execution, Script
from fedsim.audits.judgement.claim import Scope
from fedsim.common.randomness import Role, generator
from fedsim.privacy.mechanism import Neighbouring
from fedsim.privacy.trust.model import Vantage

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

HUGE, IDLE = 1e3, 1e-3
"""Norms of the target's and of the other clients' updates, in clipping norms."""

PILOTS = 24
"""Trials that only place the threshold, where theory does not."""


@dataclass(frozen=True)
class Game:
    """What T trials of k rounds showed.

    Attributes:
        worlds: bool [T]; True where the target sent its update, in half of the trials.
        ratios: float64 [T, k], log-likelihood ratio of each round; where theory does not know it,
            how far the round moved along the direction, less the threshold of `PILOTS` trials.
    """

    worlds: Bools
    ratios: Floats

    def scores(self, scope: Scope) -> tuple[Bools, Floats]:
        """Return worlds and scores of independent observations, each [T], or [T k] for a round.

        Given the coin, the noise of one round is independent of that of another.
        """
        if scope is Scope.RUN:
            return self.worlds, self.ratios.sum(axis=1)
        return np.repeat(self.worlds, self.ratios.shape[1]), self.ratios.ravel()


def observe(audited: App, seed: int, confidence: float) -> Configuration:
    """Run the app twice, honestly and with one huge update; return its configuration.

    Args:
        seed: the honest run takes the numbers of trial 0, the other one those of trial 1.
        confidence: of the intervals for the realised noise of all rounds together.
    """
    honest = audited.execute(_app_seed(seed, 0))
    configuration = honest.configuration
    if configuration.central is not None:
        central = _with_norms(configuration.central, honest)
        configuration = replace(configuration, central=central)
    weights: dict[int, float] = {}
    for each in honest.rounds:
        weights |= each.weights
    seen = Observation(
        participants=tuple(each.replies for each in honest.rounds),
        weights=weights,
        noise_ratios=_noise_ratios(honest, configuration, confidence),
        client_norm_kept=False,
        seeded=honest.seeded,
        statements=honest.statements,
        training=honest.training,
        noise_coordinates=honest.parameters,
    )
    configuration = replace(configuration, observation=seen)
    player = _Player(audited, configuration, Neighbouring.ADD_REMOVE, seed)
    probe = player.run(1, True)
    lengths = [each.message_norm for each in probe.rounds if not np.isnan(each.message_norm)]
    # Rounding in float32 changes a huge update far less than clipping it does.
    kept = bool(lengths) and max(lengths) > 0.5 * player.length
    seen = replace(seen, client_norm_kept=kept)
    return replace(configuration, observation=seen)


def _noise_ratios(
    honest: Execution, configuration: Configuration, confidence: float
) -> tuple[Interval, ...]:
    """Return intervals for realised over configured standard deviation of every round's noise.

    By the chi-square distribution of the squared noise over its configured variance, all parameters
    of a round together; all rounds' intervals hold at once with that confidence (Bonferroni). ()
    where no noise is configured or that of a round could not be watched.

    Args:
        confidence: in (0, 1), of all intervals together.
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

    A trial depends on the seed and its number alone.

    Args:
        configuration: as `observe` returned it.
        guarantee: theory's of that configuration, which scores the rounds. Where it is None or has
            no finite numbers, or the noise is seeded, `PILOTS` more trials place a threshold.
        neighbouring: under add-remove the target of the other world sends as little as everybody,
            under replace the opposite update.
        vantage: the server scores the target's message, any other the released model.
        trials: at least 1; of an odd number one more is in the world with the update.
        seed: of the worlds, the direction and the app's own randomness.
        progress: called with the number of trials done after each, pilots not counted.
    """
    player = _Player(audited, configuration, neighbouring, seed)
    worlds = generator(seed, Role.WORLD).permutation(np.arange(trials) % 2 == 0)
    known = guarantee is not None and all(
        np.isfinite([*guarantee.influences, *guarantee.noise_stds])
    )
    known = known and not (configuration.observation and configuration.observation.seeded)
    middle: Floats = np.zeros(configuration.rounds)
    if not known:
        # The first numbers are the pilots': their trials decide nothing else.
        coins = np.arange(PILOTS) % 2 == 0
        pilots = [player.run(2 + number, bool(coin)) for number, coin in enumerate(coins)]
        shifts = np.array([_shifts(each, vantage) for each in pilots])
        middle = (shifts[coins].mean(axis=0) + shifts[~coins].mean(axis=0)) / 2
    ratios = np.empty((trials, configuration.rounds))
    for trial, world in enumerate(worlds):
        execution = player.run(2 + PILOTS + trial, bool(world))
        shifts = _shifts(execution, vantage)
        if known and guarantee is not None:
            ratios[trial] = _ratios(shifts, _of_this_run(configuration, guarantee, execution))
        else:
            ratios[trial] = shifts - middle
        progress(trial + 1)
    return Game(worlds, ratios)


class _Player:
    """Runs the app with the target's update in it, or without."""

    def __init__(
        self,
        audited: App,
        configuration: Configuration,
        neighbouring: Neighbouring,
        seed: int,
    ) -> None:
        self._audited, self._neighbouring, self._seed = audited, neighbouring, seed
        central, local = configuration.central, configuration.local
        norms = [*(central.clipping_norms if central else ()), local.clipping_norm if local else 0]
        self.length = HUGE * (max(norms) or 1.0)
        # Far below every clipping, or what all others send would be as long as the target's.
        self._idle = IDLE * min([norm for norm in norms if norm] or [1.0])
        seen = configuration.observation
        free = central is None or not central.equal_weights_enforced
        constant = seen is None or seen.constant_weights
        self._weight = UNBOUNDED_WEIGHT if free and not constant else None
        self._weighted_by = central.weighted_by if central else "num-examples"

    def run(self, number: int, world: bool) -> Execution:
        """Return what trial `number` shows in the world where the update is sent, or the other."""
        # The other world's target sends as little as everybody, or the opposite update.
        absent = -self.length if self._neighbouring is Neighbouring.REPLACE else self._idle
        length = self.length if world else absent
        script = Script(0, length, self._weight, self._weighted_by, self._idle, self._seed)
        return self._audited.execute(_app_seed(self._seed, number), script)


def _shifts(execution: Execution, vantage: Vantage) -> Floats:
    """Return how far every round moved along the direction, [k]; 0 where there was no message."""
    name = "message_shift" if vantage is Vantage.SERVER else "model_shift"
    return np.nan_to_num(np.array([getattr(each, name) for each in execution.rounds]))


def _ratios(shifts: Floats, guarantee: Guarantee) -> Floats:
    """Return the log-likelihood ratio of every round, [k], by theory's influence and noise.

    Without noise the ratio is that of unit noise: only its sign matters. A round without noise
    tells all, so that beside one the others count for nothing.
    """
    influences, stds = np.array(guarantee.influences), np.array(guarantee.noise_stds)
    # Opposite updates put the two worlds on either side of 0.
    middle = 0.0 if guarantee.neighbouring is Neighbouring.REPLACE else influences / 2
    silent = stds == 0
    variances = np.where(silent, 1.0, np.inf if silent.any() else stds**2)
    return influences * (shifts - middle) / variances


def _of_this_run(
    configuration: Configuration, guarantee: Guarantee, execution: Execution
) -> Guarantee:
    """Return the guarantee with the clipping norms of one run, which adaptive clipping moves."""
    if configuration.central is None or not configuration.central.adaptive:
        return guarantee
    configuration = replace(configuration, central=_with_norms(configuration.central, execution))
    return theory.guarantee(configuration, guarantee.neighbouring, guarantee.vantage) or guarantee


def _with_norms(central: CentralNoise, execution: Execution) -> CentralNoise:
    return replace(
        central,
        clipping_norms=tuple(each.clipped_to for each in execution.rounds),
        noise_norms=tuple(each.noise_norm for each in execution.rounds),
    )


def _app_seed(seed: int, number: int) -> int:
    """Return the seed of all of the app's own randomness in one of its runs."""
    return int(generator(seed, Role.NOISE, trial=number).integers(2**32))
