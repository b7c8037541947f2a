"""What a configuration guarantees one client by theory, and the client-level game against an app.

Theory: the two worlds differ in one client's update. Add-remove: in the other world that client
sends no change, but keeps its place in the round ("zero-out" neighbours; Kairouz et al., "Practical
and private deep learning without sampling or shuffling", 2021, Definition 1.1). Flower divides by
the number of replies, so that a client that stays away would also change the divisor. With zero-out
neighbours, Flower's own calibration C / n is right. Replace: the client sends any other update.
Client sampling amplifies nothing here: Flower samples a fixed number, and the server knows which.

The game: a coin decides in every trial whether the target client sends its update. That update is
the worst that the configuration allows: a thousand times the clipping norm, along a random
direction that the adversary knows. Where weights are the clients' own, its weight exceeds all
others. The other clients send almost nothing, which the adversary also knows: in differential
privacy the data of others are not secret. The score comes from the released model of every round,
or from the target's message where clients add the noise. It is the log-likelihood ratio under the
noise that theory expects. No verdict relies on it: the bounds on epsilon hold for any score.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from heapq import nlargest

import numpy as np
import numpy.typing as npt

from adversaries.arrays import Bools, Floats
from adversaries.statistics import gaussian
from fedsim.audits.app.process import (
    UNBOUNDED_WEIGHT,
    App,
    AppObservation,
    CentralNoise,
    Configuration,
    Execution,
    Script,
)
from fedsim.audits.judgement.claim import Claim, Scope
from fedsim.common.randomness import StreamRole, generator
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism, Neighbouring, Steps, sensitivity
from fedsim.privacy.trust.model import Vantage

LEAST, MOST = 1e-6, 1e100


@dataclass(frozen=True)
class AppGuarantee:
    """The true noise of every round; each tuple has one value a round.

    Attributes:
        vantage: the server sees messages, any other vantage released models.
        multipliers: noise over the largest change by one client, for all that is released; 0
            without noise.
        on_models: the same for released models (or messages) alone, which the attack scores.
        influences: largest L2 change of the released model, or message, by one client; inf without
            a limit.
        noise_stds: standard deviation of each round's noise on every coordinate, which scores the
            round. Multipliers count the least noise of any round.
    """

    vantage: Vantage
    neighbouring: Neighbouring
    multipliers: tuple[float, ...]
    on_models: tuple[float, ...]
    influences: tuple[float, ...]
    noise_stds: tuple[float, ...]

    def mechanism(self, scope: Scope = Scope.RUN) -> Mechanism:
        multipliers = self.multipliers if scope is Scope.RUN else (min(self.multipliers),)
        return Mechanism(tuple(Steps(z) for z in multipliers), self.neighbouring)

    def epsilon(self, delta: float, scope: Scope = Scope.RUN) -> float:
        return PLD.epsilon(self.mechanism(scope), delta)

    def advantage(self, scope: Scope = Scope.RUN) -> float:
        """Return the advantage that theory predicts for the attack: 2 Phi(mu/2) - 1."""
        multipliers = self.on_models if scope is Scope.RUN else (min(self.on_models),)
        if 0 in multipliers:
            return 1.0
        return gaussian.advantage(math.sqrt(sum(z**-2 for z in multipliers)))


def vantage_of(configuration: Configuration, claim: Claim | None = None) -> Vantage:
    """Return the vantage that the claim names, else the one that the noise protects against."""
    if claim is not None and claim.vantage is not None:
        return claim.vantage
    central = configuration.central
    by_clients_alone = central is None or not central.adds_noise
    by_clients_alone = by_clients_alone and configuration.local is not None
    return Vantage.SERVER if by_clients_alone else Vantage.PARTICIPANT


def guarantee(
    configuration: Configuration, neighbouring: Neighbouring, vantage: Vantage | None = None
) -> AppGuarantee | None:
    """Return what the configuration guarantees towards a vantage; None where theory cannot tell.

    Before the app runs, the strategy's own statements are used, equal weights included. Towards a
    participant the clients' own noise counts where it protects better than the server's: processing
    a noisy message reveals no more than the message.
    """
    vantage = vantage or vantage_of(configuration)
    rounds, local = configuration.rounds, configuration.local
    moved = math.inf if local is None else sensitivity(neighbouring, local.clipping_norm)
    std = 0.0 if local is None else local.std
    messages = _of(Vantage.SERVER, neighbouring, (moved,) * rounds, (std,) * rounds, None)
    if vantage is Vantage.SERVER:
        return messages
    models = _of_models(configuration, neighbouring)
    if configuration.local is None:
        return models
    if models is None:
        # What the server adds is unknown, so that a released model has no predicted distribution.
        unknown = (math.inf,) * configuration.rounds
        return replace(messages, vantage=vantage, influences=unknown)
    pairs = zip(models.multipliers, messages.multipliers, strict=True)
    return replace(models, multipliers=tuple(max(pair) for pair in pairs))


def _of_models(configuration: Configuration, neighbouring: Neighbouring) -> AppGuarantee | None:
    rounds, run = configuration.rounds, configuration.observation
    vantage = Vantage.PARTICIPANT
    if configuration.central is None:
        if not configuration.known:
            return None
        return _of(vantage, neighbouring, (math.inf,) * rounds, (0.0,) * rounds, None)
    central = configuration.central
    if not central.plain_mean:
        return None
    norms = _every_round(central.clipping_norms, rounds)
    shares = [share(central, run, each) for each in range(rounds)]
    moved_by = tuple(
        sensitivity(neighbouring, norm) * part for norm, part in zip(norms, shares, strict=True)
    )
    if run is not None and central.client_clips and run.client_norm_kept:
        moved_by = (math.inf,) * rounds
    scales = [
        norm * realised
        for norm, realised in zip(
            _every_round(central.noise_norms, rounds), realised_shares(run, rounds), strict=True
        )
    ]
    if run is not None and run.seeded:
        scales = [0.0] * rounds
    least = tuple(central.least_per_norm * scale for scale in scales)
    count_std = central.count_std if central.adaptive else None
    found = _of(vantage, neighbouring, moved_by, least, count_std)
    of_rounds = _every_round(central.noise_per_norm or (central.least_per_norm,), rounds)
    own = tuple(each * scale for each, scale in zip(of_rounds, scales, strict=True))
    return replace(found, noise_stds=own)


def share(central: CentralNoise, run: AppObservation | None, round: int) -> float:
    """Return the largest part of a round's average that one client's update can be.

    It is 1/n under equal weights. Where clients state their weights, it is the part of a client
    that states a huge weight: almost 1.
    """
    if run is None or not run.participants:
        return 1 / central.sampled_clients
    replies = run.participants[min(round, len(run.participants) - 1)]
    if central.equal_weights_enforced or run.constant_weights:
        return 1 / replies
    others = sum(nlargest(replies - 1, run.weights.values()))
    return UNBOUNDED_WEIGHT / (UNBOUNDED_WEIGHT + others)


def realised_shares(run: AppObservation | None, rounds: int) -> tuple[float, ...]:
    """Return realised over configured noise of every round; 1 where it is not surely less.

    More noise than configured counts for nothing, in this round or another.
    """
    if run is None or not run.noise_ratios:
        return (1.0,) * rounds
    shares = tuple(
        1.0 if each.high >= 1 else math.sqrt(each.low * each.high) for each in run.noise_ratios
    )
    return _every_round(shares, rounds)


def enough_noise(claim: Claim, steps: int) -> float:
    """Return the noise multiplier at which this many equal releases just keep the claim.

    Exact for Gaussian steps without sampling, which compose to one of mu = sqrt(steps)/z.
    """
    return math.sqrt(steps) / gaussian.mu_of_epsilon(claim.epsilon, claim.delta)


def _every_round(values: tuple[float, ...], rounds: int) -> tuple[float, ...]:
    return (*values[:rounds], *values[-1:] * (rounds - len(values)))


def _of(
    vantage: Vantage,
    neighbouring: Neighbouring,
    influences: tuple[float, ...],
    stds: tuple[float, ...],
    count_std: float | None,
) -> AppGuarantee:
    """count_std: standard deviation of the noise on a released count; None if none is released."""
    on_models = tuple(
        min(std / moved, MOST) if math.isfinite(moved) and std >= LEAST * moved else 0.0
        for std, moved in zip(stds, influences, strict=True)
    )
    # One client changes the count of clipped updates by 1. Andrew et al. (2021) count +-1/2, so
    # that a client is worth 1/2. Flower counts 0 or 1, but sets its noise as they do.
    both = on_models
    if count_std is not None:
        both = tuple(
            (z**-2 + count_std**-2) ** -0.5 if z > 0 and count_std > 0 else 0.0 for z in on_models
        )
    return AppGuarantee(vantage, neighbouring, both, on_models, influences, stds)


HUGE, IDLE = 1e3, 1e-3
"""Norms of the target's and of the other clients' updates, in clipping norms."""

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


def observe(audited: App, seed: int) -> Configuration:
    """Return the configuration of an honest run, with what a run with a huge update adds to it."""
    configuration = audited.execute(_app_seed(seed, 0)).configuration
    assert configuration.observation is not None
    player = _Player(audited, configuration, Neighbouring.ADD_REMOVE, seed)
    norms = [each.message_norm for each in player.run(1, True).rounds]
    # Rounding in float32 changes a huge update far less than clipping it does. nan is not above.
    kept = any(norm > 0.5 * player.length for norm in norms)
    kept = kept or configuration.observation.client_norm_kept
    observation = replace(configuration.observation, client_norm_kept=kept)
    return replace(configuration, observation=observation)


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
    worlds = generator(seed, StreamRole.WORLD).permutation(np.arange(trials) % 2 == 0)
    modelled = expected is not None and all(
        np.isfinite([*expected.influences, *expected.noise_stds])
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
        if modelled and expected is not None:
            current = expected
            if configuration.central is not None and configuration.central.adaptive:
                # Adaptive clipping moves the norms from run to run.
                moved = replace(configuration, central=execution.configuration.central)
                current = guarantee(moved, neighbouring, expected.vantage) or expected
            ratios[trial] = _ratios(shifts, current)
        else:
            ratios[trial] = shifts - middle
        progress(trial + 1)
    drawn = generator(seed, StreamRole.SAMPLING).integers(configuration.rounds, size=trials)
    return AppGame(worlds, ratios, drawn)


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


def _ratios(shifts: Floats, guarantee: AppGuarantee) -> Floats:
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


def _app_seed(seed: int, number: int) -> int:
    return int(generator(seed, StreamRole.NOISE, trial=number).integers(2**32))
