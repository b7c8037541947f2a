"""Rules: what is wrong with a configuration, why, and how to mend it.

A rule is a function of the configuration and the claim; it returns a finding or None. A new rule is
one function and one entry in `RULES`. A rule reads; whether the guarantee is really broken is for
the attack to show.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from fedsim.audits.app import guarantee as theory
from fedsim.audits.app import training
from fedsim.audits.app.configuration import Configuration, claim_of, local_claim
from fedsim.audits.judgement.claim import Claim, Scope
from fedsim.audits.judgement.judge import Finding
from fedsim.privacy.mechanism import Neighbouring, sensitivity
from fedsim.privacy.trust.model import Vantage


@dataclass(frozen=True)
class Subject:
    """What a rule looks at.

    Attributes:
        guarantee: of the claim's vantage, else of whom the noise is for; None where theory cannot
            tell.
    """

    configuration: Configuration
    neighbouring: Neighbouring
    claim: Claim | None
    guarantee: theory.Guarantee | None


def _local_sensitivity(subject: Subject) -> Finding | None:
    """LocalDpMod takes a sensitivity beside the clipping norm, and nothing ties the two."""
    local = subject.configuration.local
    if local is None:
        return None
    needed = sensitivity(subject.neighbouring, local.clipping_norm)
    if local.sensitivity >= needed * (1 - 1e-9):
        return None
    return Finding(
        "alarm",
        "local-sensitivity",
        f"LocalDpMod clips to {local.clipping_norm:g}, so one client's update can differ by "
        f"{needed:g} ({subject.neighbouring.value}), but scales its noise to a sensitivity of "
        f"{local.sensitivity:g}: {needed / local.sensitivity:.3g} times too little noise"
        if local.sensitivity
        else "LocalDpMod has sensitivity 0, so it adds no noise",
        f"set sensitivity={needed:g}",
    )


def _local_formula(subject: Subject) -> Finding | None:
    """The classic formula behind LocalDpMod is proved for epsilon <= 1 only."""
    local = subject.configuration.local
    if local is None or local.epsilon <= 1 or not 0 < local.delta < 1 or not local.std:
        return None
    z = local.std / local.sensitivity
    tight = theory.enough_noise(Claim(local.epsilon, local.delta, Scope.ROUND, ""), 1)
    return Finding(
        "alarm" if z < tight else "note",
        "local-formula",
        f"LocalDpMod computes its noise by the classic formula, which is proved for epsilon <= 1; "
        f"here epsilon is {local.epsilon:g}, where it gives {z:.4g} times the sensitivity and "
        f"{tight:.4g} is needed",
        f"lower epsilon to 1 or less, or raise the sensitivity to {tight / z:.4g} times its value"
        if z < tight
        else "nothing: here the formula errs on the safe side",
    )


def _weighted_average(subject: Subject) -> Finding | None:
    """Noise for a plain average of n updates, while clients weight themselves."""
    central, seen = subject.configuration.central, subject.configuration.observation
    if central is None or not central.plain_mean or central.equal_weights_enforced:
        return None
    if seen is not None and seen.constant_weights:
        return None
    effect = "one client can count for any part of it"
    if seen is not None:
        effect = f"one client can count {theory.share(central, seen, 0):.3f}"
        total = sum(seen.weights.values())
        effect += f" (with the weights of this run, up to {max(seen.weights.values()) / total:.3f})"
    return Finding(
        "alarm" if seen is not None else "note",  # before the run, clients may yet send a constant
        "weighted-average",
        f"{central.strategy} divides its noise by {central.sampled_clients} clients, as if every "
        f"update counted 1/{central.sampled_clients}, but the average is weighted by "
        f"'{central.weighted_by}', which each client states itself and nothing bounds: {effect}",
        "weight all clients alike: send a constant 1 under the key of weighted_by_key, or pass "
        "accountant=RdpAccountant(...), which refuses unequal weights",
    )


def _sampled_clients(subject: Subject) -> Finding | None:
    """The number by which the noise is divided is not the number of replies."""
    central, seen = subject.configuration.central, subject.configuration.observation
    if central is None or seen is None or not seen.participants:
        return None
    fewest = min(seen.participants)
    if fewest == central.sampled_clients and max(seen.participants) == fewest:
        return None
    return Finding(
        "alarm" if fewest < central.sampled_clients else "note",
        "sampled-clients",
        f"{central.strategy} divides its noise by num_sampled_clients={central.sampled_clients}, "
        f"but the smallest round averaged {fewest} replies",
        f"set num_sampled_clients={fewest}, and refuse rounds with fewer replies",
    )


def _rebuilt_accountant(subject: Subject) -> Finding | None:
    """An accountant that forgets: it speaks of fewer releases than there were."""
    seen = subject.configuration.observation
    if seen is None or not seen.statements:
        return None
    last, releases = seen.statements[-1], len(seen.participants)
    if last.releases >= releases:
        return None
    return Finding(
        "alarm",
        "rebuilt-accountant",
        f"the accountant's last word (epsilon {last.epsilon:.4g} at delta {last.delta:g}) counts "
        f"{last.releases} of {releases} releases: it was built anew on the way and forgot the rest",
        "build one accountant before the first round and keep it, or restore it with "
        "state_dict() and load_state_dict()",
    )


def _inner_strategy(subject: Subject) -> Finding | None:
    """Noise for an average, added to something else."""
    central = subject.configuration.central
    if central is None or central.plain_mean:
        return None
    inner = subject.configuration.strategies[-1]
    return Finding(
        # Code of the app's own may yet be an average.
        "alarm" if subject.configuration.known else "note",
        "inner-strategy",
        f"{central.strategy} adds noise for the average of clipped updates to what {inner} makes "
        "of it, whose sensitivity is another and not known",
        "wrap a plain FedAvg, and apply the server optimiser to its noisy result",
    )


def _client_clipping(subject: Subject) -> Finding | None:
    """The strategy relies on clients to clip, and they do not."""
    central, seen = subject.configuration.central, subject.configuration.observation
    if central is None or not central.client_clips or seen is None or not seen.client_norm_kept:
        return None
    mod = "adaptiveclipping_mod" if central.adaptive else "fixedclipping_mod"
    return Finding(
        "alarm",
        "client-clipping",
        f"{central.strategy} leaves clipping to the clients, but a client's update far above the "
        "clipping norm arrived as it was: one client can change the average without limit",
        f"register {mod} on the train function: @app.train(mods=[{mod}])",
    )


def _adaptive_clipping(subject: Subject) -> Finding | None:
    """Flower's adaptive clipping scales its noise to the next round's norm."""
    central = subject.configuration.central
    if central is None or not central.adaptive:
        return None
    pairs = zip(central.noise_norms, central.clipping_norms, strict=False)
    ratios = [after / before for after, before in pairs]
    observed = subject.configuration.observation is not None and len(ratios) > 0
    span = f" (here {min(ratios):.4f} to {max(ratios):.4f} times it)" if observed else ""
    return Finding(
        "alarm",
        "adaptive-clipping",
        "updates are clipped to C_t but the noise is scaled to the already updated C_t+1"
        f"{span}, and the count of clipped updates, of which one client changes 1, has noise for "
        "a change of 1/2",
        "use fixed clipping, or choose noise_multiplier and clipped_count_stddev by the epsilon "
        "that is reported here",
    )


def _realised_noise(subject: Subject) -> Finding | None:
    """The noise that was added is not the noise that was configured."""
    seen = subject.configuration.observation
    if seen is None:
        return None
    shares = theory.realised_shares(seen, subject.configuration.rounds)
    different = [number for number, each in enumerate(shares) if each != 1]
    if not different:
        return None
    least = min(different, key=lambda number: shares[number])
    ratio = seen.noise_ratios[least]
    return Finding(
        "alarm" if ratio.high < 1 else "note",
        "realised-noise",
        f"the noise that was really added in round {least + 1} is {ratio.low:.3g} to "
        f"{ratio.high:.3g} times the configured one, and in {len(different)} of {len(shares)} "
        f"rounds another than it ({ratio.confidence:.1%} confidence for all rounds at once)",
        "look for code that scales, rounds or replaces the noise",
    )


def _seeded_noise(subject: Subject) -> Finding | None:
    """Noise that everybody can draw again."""
    seen = subject.configuration.observation
    if seen is None or not seen.seeded or subject.configuration.central is None:
        return None
    return Finding(
        "alarm",
        "seeded-noise",
        "the server sets the seed or the state of NumPy's global generator (numpy.random.seed, "
        "set_state), and Flower draws its noise from it: whoever knows the code, or the noise of "
        "another round, may know the noise",
        "leave NumPy's global generator alone in a run that is to protect anybody",
    )


def _no_noise(subject: Subject) -> Finding | None:
    configuration = subject.configuration
    silent = configuration.central is not None and not configuration.central.noise_multiplier
    if configuration.local is not None or (configuration.central is not None and not silent):
        return None
    if not configuration.known:
        return Finding(
            "note",
            "unknown-strategy",
            f"{configuration.strategies[0]} is not one of Flower's strategies: theory cannot tell "
            "what it adds, only the attack speaks",
            "state the claimed epsilon and delta",
        )
    seen = configuration.observation
    # Before the run nobody knows what training does.
    trained = seen is not None and seen.training is not None and not training.unseen(configuration)
    return Finding(
        "alarm" if trained else "note",
        "no-noise",
        "nothing adds noise: every update reaches every participant as it is, in the average"
        if trained
        else "nothing adds noise to an update on its way: it reaches every participant, in the "
        "average, as the client's training returns it, with what noise there may be in that",
        "wrap the strategy in DifferentialPrivacyServerSideFixedClipping with an accountant"
        if trained
        else "nothing if training is private by itself (Opacus, say) and records are what is "
        "claimed; else wrap the strategy in DifferentialPrivacyServerSideFixedClipping",
    )


def _noise_below_claim(subject: Subject) -> Finding | None:
    """The true noise does not amount to the claim."""
    claim, guarantee = subject.claim, subject.guarantee
    if claim is None or guarantee is None or training.unseen(subject.configuration, claim):
        return None
    epsilon = guarantee.epsilon(claim.delta, claim.scope)
    if claim.allows(epsilon):
        return None
    steps = len(guarantee.multipliers) if claim.scope is Scope.RUN else 1
    least = min(guarantee.multipliers)
    return Finding(
        "alarm",
        "noise-below-claim",
        f"{steps} {'rounds' if steps > 1 else 'round'} of true noise multiplier {least:.4g} "
        f"{'is' if steps == 1 else 'are'} private at epsilon "
        f"{'infinity' if math.isinf(epsilon) else f'{epsilon:.4g}'}, delta {claim.delta:g}; "
        f"claimed is {claim.epsilon:.4g}",
        f"a true noise multiplier of {theory.enough_noise(claim, steps):.4g} keeps the claim"
        if claim.epsilon > 0
        else "no finite noise keeps epsilon 0",
    )


def _local_below_claim(subject: Subject) -> Finding | None:
    """LocalDpMod's own claim, where another one is judged."""
    said = local_claim(subject.configuration)
    if said is None or subject.claim in (None, said):
        return None
    guarantee = theory.guarantee(subject.configuration, subject.neighbouring, Vantage.SERVER)
    if guarantee is None:
        return None
    epsilon = guarantee.epsilon(said.delta, said.scope)
    if said.allows(epsilon):
        return None
    return Finding(
        "alarm",
        "local-below-claim",
        f"LocalDpMod says epsilon {said.epsilon:.4g} of every message, towards the server; its "
        f"noise keeps {'no' if math.isinf(epsilon) else f'{epsilon:.4g}, not that'} epsilon "
        "(the verdict is on another claim)",
        f"a true noise multiplier of {theory.enough_noise(said, 1):.4g} keeps it"
        if said.epsilon > 0
        else "no finite noise keeps epsilon 0",
    )


RULES: dict[str, Callable[[Subject], Finding | None]] = {
    "local-sensitivity": _local_sensitivity,
    "local-formula": _local_formula,
    "weighted-average": _weighted_average,
    "sampled-clients": _sampled_clients,
    "rebuilt-accountant": _rebuilt_accountant,
    "inner-strategy": _inner_strategy,
    "client-clipping": _client_clipping,
    "adaptive-clipping": _adaptive_clipping,
    "realised-noise": _realised_noise,
    "seeded-noise": _seeded_noise,
    "no-noise": _no_noise,
    "noise-below-claim": _noise_below_claim,
    "local-below-claim": _local_below_claim,
}
"""Name -> function of a subject."""


def findings(
    configuration: Configuration, neighbouring: Neighbouring, claim: Claim | None = None
) -> list[Finding]:
    """Return what every rule objects to, in the order of `RULES`."""
    claim = claim or claim_of(configuration)
    vantage = theory.vantage_of(configuration, claim)
    guarantee = theory.guarantee(configuration, neighbouring, vantage)
    subject = Subject(configuration, neighbouring, claim, guarantee)
    found = (rule(subject) for rule in RULES.values())
    return [finding for finding in found if finding is not None]
