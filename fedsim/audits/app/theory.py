"""What a configuration guarantees one client by theory, and what is wrong with it.

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
from fedsim.audits.app.configuration import UNBOUNDED_WEIGHT, Configuration, claim_of
from fedsim.audits.app.strategies import CentralNoise
from fedsim.audits.judgement.claim import Claim, Finding, Rule, objections
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism, Neighbouring, Steps, sensitivity
from fedsim.privacy.trust import Vantage

LEAST, MOST = 1e-6, 1e100


@dataclass(frozen=True)
class AppGuarantee:
    """The true noise of every round; each tuple has one value a round.

    Attributes:
        multipliers: noise over the largest change by one client; 0 without noise.
        influences: largest L2 change of the released model, or message, by one client; inf without
            a limit.
    """

    vantage: Vantage
    neighbouring: Neighbouring
    multipliers: tuple[float, ...]
    influences: tuple[float, ...]
    noise_stds: tuple[float, ...]

    @property
    def finite(self) -> bool:
        """Whether it predicts a distribution of the released models, or messages."""
        return all(map(math.isfinite, (*self.influences, *self.noise_stds)))

    def epsilon(self, delta: float) -> float:
        return PLD.epsilon(Mechanism(tuple(map(Steps, self.multipliers)), self.neighbouring), delta)

    @property
    def mu(self) -> float:
        """Distance of the worlds, in standard deviations of the noise; inf without noise.

        The advantage of the attack is 2 Phi(mu/2) - 1.
        """
        if 0 in self.multipliers:
            return math.inf
        return math.sqrt(sum(z**-2 for z in self.multipliers))


def vantage_of(configuration: Configuration, claim: Claim | None = None) -> Vantage:
    """Return the vantage that the claim names, else the one that the noise protects against."""
    if claim is not None and claim.vantage is not None:
        return claim.vantage
    central = configuration.central
    by_server = central is not None and central.adds_noise
    by_clients_alone = configuration.local is not None and not by_server
    return Vantage.SERVER if by_clients_alone else Vantage.PARTICIPANT


def guarantee(
    configuration: Configuration, neighbouring: Neighbouring, vantage: Vantage | None = None
) -> AppGuarantee | None:
    """Return what the configuration guarantees towards a vantage; None where theory cannot tell.

    Towards a participant the clients' own noise counts where it protects better than the server's:
    processing a noisy message reveals no more than the message.
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
    rounds, central = configuration.rounds, configuration.central
    if central is None:
        nothing = (math.inf,) * rounds, (0.0,) * rounds
        known = _composed(Vantage.PARTICIPANT, neighbouring, *nothing)
        return known if configuration.known else None
    if not central.plain_mean or central.varies or central.adaptive:
        return None
    unlimited = central.client_clips and configuration.client_norm_kept
    per_norm = central.noise_multiplier / central.sampled_clients * (not configuration.seeded)
    norms = _every_round(central.clipping_norms, rounds)
    moved_by = tuple(
        math.inf if unlimited else sensitivity(neighbouring, norm) * _share(configuration, round)
        for round, norm in enumerate(norms)
    )
    realised = realised_shares(configuration)
    stds = tuple(per_norm * norm * share for norm, share in zip(norms, realised, strict=True))
    return _composed(Vantage.PARTICIPANT, neighbouring, moved_by, stds)


def _share(configuration: Configuration, round: int) -> float:
    """Return the largest part of a round's average that one client's update can be.

    It is 1/n under equal weights. Where clients state their weights, it is the part of a client
    that states a huge weight: almost 1.
    """
    central, replies = configuration.central, configuration.participants[round]
    if (central is not None and central.equal_weights_enforced) or configuration.constant_weights:
        return 1 / replies
    others = sum(nlargest(replies - 1, configuration.weights.values()))
    return UNBOUNDED_WEIGHT / (UNBOUNDED_WEIGHT + others)


def realised_shares(configuration: Configuration) -> tuple[float, ...]:
    """Return realised over configured noise of every round; 1 where it is not surely less.

    More noise than configured counts for nothing, in this round or another.
    """
    shares = tuple(
        1.0 if each.high >= 1 else math.sqrt(each.low * each.high)
        for each in configuration.noise_ratios
    )
    return _every_round(shares or (1.0,), configuration.rounds)


def _every_round(values: tuple[float, ...], rounds: int) -> tuple[float, ...]:
    return (*values[:rounds], *values[-1:] * (rounds - len(values)))


def _composed(
    vantage: Vantage,
    neighbouring: Neighbouring,
    influences: tuple[float, ...],
    stds: tuple[float, ...],
) -> AppGuarantee:
    multipliers = tuple(
        min(std / moved, MOST) if math.isfinite(moved) and std >= LEAST * moved else 0.0
        for std, moved in zip(stds, influences, strict=True)
    )
    return AppGuarantee(vantage, neighbouring, multipliers, influences, stds)


# Rules


@dataclass(frozen=True)
class RuleSubject:
    """The input of a rule."""

    configuration: Configuration
    neighbouring: Neighbouring
    claim: Claim | None
    guarantee: AppGuarantee | None

    @property
    def central(self) -> CentralNoise | None:
        return self.configuration.central

    @property
    def of_a_client(self) -> bool:
        return self.claim is not None and self.claim.unit == "client"

    @property
    def unprotected(self) -> bool:
        """Whether only the app's training can add noise."""
        noisy = self.central is not None and self.central.adds_noise
        return self.configuration.known and not noisy and self.configuration.local is None


def _local(subject: RuleSubject) -> tuple[float, float] | None:
    """Return the noise of LocalDpMod, and what its epsilon needs, if it adds less."""
    local = subject.configuration.local
    if local is None or local.epsilon <= 0 or not 0 < local.delta < 1:
        return None
    moved = sensitivity(subject.neighbouring, local.clipping_norm)
    needed = moved / gaussian.mu_of_epsilon(local.epsilon, local.delta)
    return (local.std, needed) if local.std < needed * (1 - 1e-9) else None


def _weights(subject: RuleSubject) -> CentralNoise | None:
    central = subject.central
    if central is None or not central.plain_mean or central.equal_weights_enforced:
        return None
    return None if subject.configuration.constant_weights else central


def _lost(subject: RuleSubject) -> tuple[int, int] | None:
    if not (statements := subject.configuration.statements):
        return None
    counted, releases = statements[-1].releases, len(subject.configuration.participants)
    return (counted, releases) if counted < releases else None


def _inner(subject: RuleSubject) -> tuple[str, ...] | None:
    central, configuration = subject.central, subject.configuration
    # The app's own code may still compute an average.
    wrong = central is not None and not central.plain_mean and configuration.known
    return (configuration.strategies[0], configuration.strategies[-1]) if wrong else None


def _unclipped(subject: RuleSubject) -> CentralNoise | None:
    central, kept = subject.central, subject.configuration.client_norm_kept
    return central if central is not None and central.client_clips and kept else None


def _too_little(subject: RuleSubject) -> tuple[float, float] | None:
    """Return the least multiplier and its epsilon, if that is above the claim."""
    claim, guarantee = subject.claim, subject.guarantee
    if claim is None or guarantee is None or claim.unit == "record":
        return None
    epsilon = guarantee.epsilon(claim.delta)
    return None if claim.allows(epsilon) else (min(guarantee.multipliers), epsilon)


RULES: dict[str, Rule] = {
    "local-noise": Rule(
        _local,
        "LocalDpMod adds noise with standard deviation {0[0]:.4g} to each update, and the epsilon "
        "that it states needs {0[1]:.4g}. Its sensitivity is not tied to the clipping norm, and "
        "its formula is proved for epsilon of at most 1",
        "set its sensitivity to the largest distance of two clipped updates, and its epsilon to 1 "
        "or less",
    ),
    "weighted-average": Rule(
        _weights,
        "{0.strategy} divides its noise by {0.sampled_clients} clients, as if every update counted "
        "alike. But the average is weighted by '{0.weighted_by}', which each client states itself "
        "and nothing bounds: one client can make up any part of the average",
        "weight all clients alike: send a constant 1 under the key of weighted_by_key, or pass "
        "accountant=RdpAccountant(...), which refuses unequal weights",
    ),
    "rebuilt-accountant": Rule(
        _lost,
        "the accountant's last answer counts {0[0]} of {0[1]} releases: it was rebuilt during the "
        "run, and lost the rest",
        "build one accountant before the first round and keep it, or restore it with "
        "state_dict() and load_state_dict()",
    ),
    "inner-strategy": Rule(
        _inner,
        "{0[0]} scales its noise to the average of clipped updates, but adds it to the output of "
        "{0[1]}, whose sensitivity is different and unknown",
        "wrap a plain FedAvg, and apply the server optimiser to its noisy result",
    ),
    "client-clipping": Rule(
        _unclipped,
        "{0.strategy} leaves clipping to the clients, but a client's update far above the "
        "clipping norm arrived unclipped: one client can change the average without limit",
        "register fixedclipping_mod (adaptiveclipping_mod for adaptive clipping) on the train "
        "function: @app.train(mods=[fixedclipping_mod])",
    ),
    "adaptive-clipping": Rule(
        lambda subject: subject.central is not None and subject.central.adaptive,
        "updates are clipped to C_t, but the noise is scaled to the already updated C_t+1. One "
        "client changes the count of clipped updates by 1, but the noise on the count is for a "
        "change of 1/2. No epsilon here covers that",
        "use fixed clipping",
    ),
    "varying-noise": Rule(
        lambda subject: subject.central is not None and subject.central.varies,
        "the noise multiplier or the number of clients that divides the noise differs between "
        "rounds (the least multiplier is {1.central.noise_multiplier:.4g}, the most clients "
        "{1.central.sampled_clients}), and no accountant here covers that",
        "keep noise_multiplier and num_sampled_clients the same in all rounds",
    ),
    "seeded-noise": Rule(
        lambda subject: subject.central and subject.configuration.seeded,
        "the server sets the seed or the state of NumPy's global generator (numpy.random.seed, "
        "set_state), and Flower draws its noise from it. Anyone who knows the code, or the noise "
        "of another round, may know the noise",
        "do not set NumPy's global generator in a run that protects people",
    ),
    "no-noise": Rule(
        lambda subject: subject.unprotected and subject.of_a_client,
        "nothing adds noise: every participant receives the average of the unchanged updates",
        "wrap the strategy in DifferentialPrivacyServerSideFixedClipping with an accountant",
    ),
    "no-noise-after-training": Rule(
        lambda subject: subject.unprotected and not subject.of_a_client,
        "nothing adds noise after training: every participant receives the average of the updates "
        "as training returns them, with whatever noise training adds",
        "change nothing if training is private by itself (for example with Opacus) and the claim "
        "is about records; otherwise wrap the strategy in "
        "DifferentialPrivacyServerSideFixedClipping",
        "note",
    ),
    "noise-below-claim": Rule(
        _too_little,
        "the least true noise multiplier is {0[0]:.4g}, with which all rounds have epsilon "
        "{0[1]:.4g} at delta {1.claim.delta:g}; the claim is {1.claim.epsilon:.4g}",
        "raise noise_multiplier, or run fewer rounds; fedsim account says which keeps the claim",
    ),
}


def findings(
    configuration: Configuration, neighbouring: Neighbouring, claim: Claim | None = None
) -> tuple[Finding, ...]:
    """Return what the rules find, and the checks of the recorded rounds that no rule repeats."""
    claim = claim or claim_of(configuration)
    known = guarantee(configuration, neighbouring, vantage_of(configuration, claim))
    found = objections(RULES, RuleSubject(configuration, neighbouring, claim, known))
    named = {each.rule for each in found}
    return found + tuple(each for each in configuration.checks if each.rule not in named)
