"""What a configuration guarantees one client, by theory.

The two worlds differ in one client's update. Add-remove: in the other world that client sends no
change, but keeps its place in the round ("zero-out" neighbours; Kairouz et al., "Practical and
private deep learning without sampling or shuffling", 2021, Definition 1.1). Flower divides by the
number of replies, so that a client that stays away would also change the divisor. With zero-out
neighbours, Flower's own calibration C / n is right. Replace: the client sends any other update.
Client sampling amplifies nothing here: Flower samples a fixed number, and the server knows which.
"""

import math
from dataclasses import dataclass, replace
from heapq import nlargest

from adversaries.statistics import gaussian
from fedsim.audits.app.process import UNBOUNDED_WEIGHT, CentralNoise, Configuration, Observation
from fedsim.audits.judgement.claim import Claim, Scope
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism, Neighbouring, Steps, sensitivity
from fedsim.privacy.trust.model import Vantage

LEAST, MOST = 1e-6, 1e100


@dataclass(frozen=True)
class Guarantee:
    """The true noise of every round; each tuple has one value a round.

    Attributes:
        vantage: the server sees messages, any other vantage released models.
        multipliers: noise over the largest change by one client, for all that is released; 0
            without noise.
        on_models: the same for released models (or messages) alone, which the attack scores.
        influences: largest L2 change of the released model, or message, by one client; inf without
            a limit.
        noise_stds: standard deviation of the noise on every coordinate.
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
    by_clients_alone = central is None or not central.noise_multiplier
    by_clients_alone = by_clients_alone and configuration.local is not None
    return Vantage.SERVER if by_clients_alone else Vantage.PARTICIPANT


def guarantee(
    configuration: Configuration, neighbouring: Neighbouring, vantage: Vantage | None = None
) -> Guarantee | None:
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


def _of_models(configuration: Configuration, neighbouring: Neighbouring) -> Guarantee | None:
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
    configured = tuple(
        central.noise_multiplier * norm / central.sampled_clients
        for norm in _every_round(central.noise_norms, rounds)
    )
    pairs = zip(configured, realised_shares(run, rounds), strict=True)
    stds = tuple(std * realised for std, realised in pairs)
    if run is not None and run.seeded:
        stds = (0.0,) * rounds
    count_std = central.count_std if central.adaptive else None
    return _of(vantage, neighbouring, moved_by, stds, count_std)


def share(central: CentralNoise, run: Observation | None, round: int) -> float:
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


def realised_shares(run: Observation | None, rounds: int) -> tuple[float, ...]:
    """Return realised over configured noise of every round; 1 where they do not contradict.

    Rounds are judged one by one: much noise in one round does not replace noise in another.
    """
    if run is None or not run.noise_ratios:
        return (1.0,) * rounds
    shares = tuple(
        1.0 if each.low <= 1 <= each.high else math.sqrt(each.low * each.high)
        for each in run.noise_ratios
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
) -> Guarantee:
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
    return Guarantee(vantage, neighbouring, both, on_models, influences, stds)
