"""The rules of an app audit: what is wrong with a configuration, why, and how to mend it.

A rule is a function of the configuration and the claim that returns a finding or None. A new rule
is one function and one entry in `RULES`. Rules only read the configuration; the attack shows
whether the guarantee is broken. The recorded rounds are checked in `audits.recorded.server_rounds`.
"""

import math
from dataclasses import dataclass

from fedsim.audits.app import guarantee as theory
from fedsim.audits.app.process import AppObservation, CentralNoise, Configuration, claim_of
from fedsim.audits.judgement.claim import Claim, Finding, Rule, Scope, objections
from fedsim.privacy.mechanism import Neighbouring, sensitivity


@dataclass(frozen=True)
class RuleSubject:
    """The input of a rule.

    Attributes:
        guarantee: at the claim's vantage, else the one that the noise protects against; None where
            theory cannot tell.
    """

    configuration: Configuration
    neighbouring: Neighbouring
    claim: Claim | None
    guarantee: theory.AppGuarantee | None

    @property
    def central(self) -> CentralNoise | None:
        return self.configuration.central

    @property
    def run(self) -> AppObservation | None:
        return self.configuration.observation


def _local_sensitivity(subject: RuleSubject) -> Finding | None:
    local = subject.configuration.local
    if local is None:
        return None
    needed = sensitivity(subject.neighbouring, local.clipping_norm)
    if local.sensitivity >= needed * (1 - 1e-9):
        return None
    return Finding(
        f"LocalDpMod clips to {local.clipping_norm:g}, so that one client's update can differ by "
        f"{needed:g} ({subject.neighbouring.value}). But it scales its noise to a sensitivity of "
        f"{local.sensitivity:g}",
        f"set sensitivity={needed:g}",
    )


def _local_formula(subject: RuleSubject) -> Finding | None:
    local = subject.configuration.local
    if local is None or local.epsilon <= 1 or not 0 < local.delta < 1 or not local.std:
        return None
    z = local.std / local.sensitivity
    tight = theory.enough_noise(Claim(local.epsilon, local.delta, Scope.ROUND, ""), 1)
    return Finding(
        "LocalDpMod computes its noise by the classic formula, which is proved for epsilon <= 1. "
        f"Here epsilon is {local.epsilon:g}: the formula gives noise of {z:.4g} times the "
        f"sensitivity, and {tight:.4g} times is needed",
        f"lower epsilon to 1 or less, or raise the sensitivity to {tight / z:.4g} times its value"
        if z < tight
        else "change nothing: here the formula gives more noise than needed",
        severity="alarm" if z < tight else "note",
    )


def _weighted_average(subject: RuleSubject) -> Finding | None:
    central, run = subject.central, subject.run
    if central is None or not central.plain_mean or central.equal_weights_enforced:
        return None
    if run is not None and run.constant_weights:
        return None
    effect = "one client can make up any part of the average"
    if run is not None:
        effect = f"one client can make up {theory.share(central, run, 0):.3f} of the average"
    return Finding(
        f"{central.strategy} divides its noise by {central.sampled_clients} clients, as if every "
        f"update counted 1/{central.sampled_clients}. But the average is weighted by "
        f"'{central.weighted_by}', which each client states itself and nothing bounds: {effect}",
        "weight all clients alike: send a constant 1 under the key of weighted_by_key, or pass "
        "accountant=RdpAccountant(...), which refuses unequal weights",
        # Before the run, weights may yet be constant.
        severity="alarm" if run is not None else "note",
    )


def _rebuilt_accountant(subject: RuleSubject) -> Finding | None:
    run = subject.run
    if run is None or not run.statements:
        return None
    last, releases = run.statements[-1], len(run.participants)
    if last.releases >= releases:
        return None
    return Finding(
        f"the accountant's last answer (epsilon {last.epsilon:.4g} at delta {last.delta:g}) "
        f"counts {last.releases} of {releases} releases: it was rebuilt during the run, and lost "
        "the rest",
        "build one accountant before the first round and keep it, or restore it with "
        "state_dict() and load_state_dict()",
    )


def _inner_strategy(subject: RuleSubject) -> Finding | None:
    central = subject.central
    if central is None or central.plain_mean:
        return None
    inner = subject.configuration.strategies[-1]
    return Finding(
        f"{central.strategy} scales its noise to the average of clipped updates, but adds it to "
        f"the output of {inner}, whose sensitivity is different and unknown",
        "wrap a plain FedAvg, and apply the server optimiser to its noisy result",
        # The app's own code may still compute an average.
        severity="alarm" if subject.configuration.known else "note",
    )


def _client_clipping(subject: RuleSubject) -> Finding | None:
    central, run = subject.central, subject.run
    if central is None or not central.client_clips or run is None or not run.client_norm_kept:
        return None
    mod = "adaptiveclipping_mod" if central.adaptive else "fixedclipping_mod"
    return Finding(
        f"{central.strategy} leaves clipping to the clients, but a client's update far above the "
        "clipping norm arrived unclipped: one client can change the average without limit",
        f"register {mod} on the train function: @app.train(mods=[{mod}])",
    )


def _adaptive_clipping(subject: RuleSubject) -> Finding | None:
    if subject.central is None or not subject.central.adaptive:
        return None
    return Finding(
        "updates are clipped to C_t, but the noise is scaled to the already updated C_t+1. One "
        "client changes the count of clipped updates by 1, but the noise on the count is for a "
        "change of 1/2",
        "use fixed clipping, or choose noise_multiplier and clipped_count_stddev by the epsilon "
        "that this report states",
    )


def _varying_noise(subject: RuleSubject) -> Finding | None:
    central = subject.central
    if central is None or not central.varies:
        return None
    return Finding(
        "the noise multiplier or the number of clients that divides the noise differs between "
        f"rounds. Every round counts with the least noise: multiplier "
        f"{central.noise_multiplier:.4g}, divided by {central.sampled_clients} clients",
        "keep noise_multiplier and num_sampled_clients the same in all rounds",
    )


def _seeded_noise(subject: RuleSubject) -> Finding | None:
    if subject.central is None or subject.run is None or not subject.run.seeded:
        return None
    return Finding(
        "the server sets the seed or the state of NumPy's global generator (numpy.random.seed, "
        "set_state), and Flower draws its noise from it. Anyone who knows the code, or the noise "
        "of another round, may know the noise",
        "do not set NumPy's global generator in a run that protects people",
    )


def _no_noise(subject: RuleSubject) -> Finding | None:
    central, configuration = subject.central, subject.configuration
    noisy = central is not None and central.adds_noise
    if not configuration.known or noisy or configuration.local is not None:
        return None
    if subject.run is not None and subject.claim is not None and subject.claim.unit == "client":
        return Finding(
            "nothing adds noise: every participant receives the average of the unchanged updates",
            "wrap the strategy in DifferentialPrivacyServerSideFixedClipping with an accountant",
        )
    # A claim about records may rest on noise within training.
    return Finding(
        "nothing adds noise after training: every participant receives the average of the updates "
        "as training returns them, with whatever noise training adds",
        "change nothing if training is private by itself (for example with Opacus) and the claim "
        "is about records; otherwise wrap the strategy in "
        "DifferentialPrivacyServerSideFixedClipping",
        severity="note",
    )


def _noise_below_claim(subject: RuleSubject) -> Finding | None:
    claim, guarantee = subject.claim, subject.guarantee
    if claim is None or guarantee is None or claim.unit == "record":
        return None
    epsilon = guarantee.epsilon(claim.delta, claim.scope)
    if claim.allows(epsilon):
        return None
    steps = len(guarantee.multipliers) if claim.scope is Scope.RUN else 1
    return Finding(
        f"the least true noise multiplier is {min(guarantee.multipliers):.4g} (rounds in the "
        f"claim: {steps}), which gives epsilon "
        f"{'infinity' if math.isinf(epsilon) else f'{epsilon:.4g}'} at delta {claim.delta:g}; the "
        f"claim is {claim.epsilon:.4g}",
        f"a true noise multiplier of {theory.enough_noise(claim, steps):.4g} keeps the claim"
        if claim.epsilon > 0
        else "no finite noise keeps epsilon 0",
    )


RULES: dict[str, Rule[RuleSubject]] = {
    "local-sensitivity": _local_sensitivity,
    "local-formula": _local_formula,
    "weighted-average": _weighted_average,
    "rebuilt-accountant": _rebuilt_accountant,
    "inner-strategy": _inner_strategy,
    "client-clipping": _client_clipping,
    "adaptive-clipping": _adaptive_clipping,
    "varying-noise": _varying_noise,
    "seeded-noise": _seeded_noise,
    "no-noise": _no_noise,
    "noise-below-claim": _noise_below_claim,
}


def findings(
    configuration: Configuration, neighbouring: Neighbouring, claim: Claim | None = None
) -> tuple[Finding, ...]:
    """Return what the rules find, and the checks of the recorded rounds that no rule repeats."""
    claim = claim or claim_of(configuration)
    vantage = theory.vantage_of(configuration, claim)
    guarantee = theory.guarantee(configuration, neighbouring, vantage)
    found = objections(RULES, RuleSubject(configuration, neighbouring, claim, guarantee))
    run, names = configuration.observation, {each.rule for each in found}
    checks = () if run is None else run.checks
    return found + tuple(each for each in checks if each.rule not in names)
