"""What a configuration guarantees one client by theory.

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
from fedsim.audits.app.process import UNBOUNDED_WEIGHT, AppObservation, CentralNoise, Configuration
from fedsim.audits.judgement.claim import Claim, Scope
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

    @property
    def finite(self) -> bool:
        """Whether it predicts a distribution of the released models, or messages."""
        return all(map(math.isfinite, (*self.influences, *self.noise_stds)))

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
    local, rounds = configuration.local, configuration.rounds
    moved = math.inf if local is None else sensitivity(neighbouring, local.clipping_norm)
    std = 0.0 if local is None else local.std
    messages = _composed(Vantage.SERVER, neighbouring, (moved,) * rounds, (std,) * rounds)
    if vantage is Vantage.SERVER:
        return messages
    models = _of_models(configuration, neighbouring)
    if local is None:
        return models
    if models is None:
        # What the server adds is unknown, so that a released model has no predicted distribution.
        return replace(messages, vantage=vantage, influences=(math.inf,) * rounds)
    return replace(models, multipliers=tuple(map(max, models.multipliers, messages.multipliers)))


def _of_models(configuration: Configuration, neighbouring: Neighbouring) -> AppGuarantee | None:
    rounds, run = configuration.rounds, configuration.observation
    central, vantage = configuration.central, Vantage.PARTICIPANT
    if central is None:
        nothing = (math.inf,) * rounds, (0.0,) * rounds
        return _composed(vantage, neighbouring, *nothing) if configuration.known else None
    if not central.plain_mean:
        return None
    unlimited = run is not None and central.client_clips and run.client_norm_kept
    moved_by = tuple(
        math.inf if unlimited else sensitivity(neighbouring, norm) * share(central, run, round)
        for round, norm in enumerate(_every_round(central.clipping_norms, rounds))
    )
    realised = realised_shares(run, rounds)
    if run is not None and run.seeded:
        realised = (0.0,) * rounds
    norms = _every_round(central.noise_norms, rounds)
    scales = tuple(norm * share for norm, share in zip(norms, realised, strict=True))
    least = tuple(central.least_per_norm * scale for scale in scales)
    count_std = central.count_std if central.adaptive else None
    found = _composed(vantage, neighbouring, moved_by, least, count_std)
    per_norm = _every_round(central.noise_per_norm or (central.least_per_norm,), rounds)
    own = tuple(each * scale for each, scale in zip(per_norm, scales, strict=True))
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


def _composed(
    vantage: Vantage,
    neighbouring: Neighbouring,
    influences: tuple[float, ...],
    stds: tuple[float, ...],
    count_std: float | None = None,
) -> AppGuarantee:
    """count_std: standard deviation of the noise on a released count; None if none is released."""
    on_models = tuple(
        min(std / moved, MOST) if math.isfinite(moved) and std >= LEAST * moved else 0.0
        for std, moved in zip(stds, influences, strict=True)
    )
    both = on_models
    if count_std is not None:
        # One client changes the count of clipped updates by 1. Andrew et al. (2021) count +-1/2,
        # so that a client is worth 1/2. Flower counts 0 or 1, but sets its noise as they do.
        both = tuple(
            (z**-2 + count_std**-2) ** -0.5 if z > 0 and count_std > 0 else 0.0 for z in on_models
        )
    return AppGuarantee(vantage, neighbouring, both, on_models, influences, stds)
