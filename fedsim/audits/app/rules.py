"""What is wrong with the noise of an app that Flower's own code should add."""

from fedsim.audits.app.game import Observed
from fedsim.audits.judgement.claim import Claim, Finding
from fedsim.audits.steps.rules import Rule, objections

COUNTED = ("weighted-average", "sampled-clients")
"""Rules whose mistake is in theory's epsilon, so that a claim may be supported beside them."""


OF_CLIENTS, OF_RECORDS = "no-noise", "no-noise-after-training"
"""Rules about updates without noise: for a claim about clients, and for every other claim."""


def _lost(seen: Observed) -> tuple[int, int] | None:
    facts = seen.facts
    counted = facts.rounds if facts.statement is None else facts.statement.steps
    return (counted, facts.rounds) if counted < facts.rounds else None


RULES = (
    Rule(
        "weighted-average",
        lambda seen: bool(seen.facts.multipliers) and seen.facts.weighted_by,
        "the noise is for clients that all count alike, but the average is weighted by '{0}', "
        "which each client states itself and nothing bounds: one client can make up any part of "
        "the average",
        "weight all clients alike: send a constant 1 under the key of weighted_by_key, or pass "
        "accountant=RdpAccountant(...), which refuses unequal weights",
    ),
    Rule(
        "rebuilt-accountant",
        _lost,
        "the accountant's last answer counts {0} of {1} releases: it was rebuilt during the run, "
        "and lost the rest; this audit composes all of them",
        "build one accountant before the first round and keep it, or restore it with "
        "state_dict() and load_state_dict()",
        "caution",
    ),
    Rule(
        "client-clipping",
        lambda seen: seen.facts.client_clips and seen.unclipped,
        "clipping is left to the clients, but a client's update far above the clipping norm "
        "arrived unclipped: one client can change the average without limit",
        "register fixedclipping_mod on the train function: @app.train(mods=[fixedclipping_mod])",
    ),
    Rule(
        "seeded-noise",
        lambda seen: seen.facts.seeded and seen.facts.clipping_norm,
        "the server sets the seed or the state of NumPy's global generator (numpy.random.seed, "
        "set_state), and Flower draws its noise from it. Anyone who knows the code, or the noise "
        "of another round, may know the noise",
        "do not set NumPy's global generator in a run that protects people",
    ),
    Rule(
        OF_CLIENTS,
        lambda seen: seen.unprotected,
        "nothing adds noise: every participant receives the average of the unchanged updates",
        "wrap the strategy in DifferentialPrivacyServerSideFixedClipping with an accountant",
    ),
    Rule(
        OF_RECORDS,
        lambda seen: seen.unprotected,
        "nothing adds noise after training: every participant receives the average of the updates "
        "as training returns them, with whatever noise training adds",
        "change nothing if training is private by itself (for example with Opacus) and the claim "
        "is about records; otherwise wrap the strategy in "
        "DifferentialPrivacyServerSideFixedClipping",
        "note",
    ),
)


def findings(seen: Observed, claim: Claim | None) -> tuple[Finding, ...]:
    """Return what the rules find, and the findings of the recorded rounds that no rule repeats."""
    of_a_client = claim is not None and claim.unit == "client"
    other = OF_RECORDS if of_a_client else OF_CLIENTS
    found = [each for each in objections(RULES, seen) if each.rule != other]
    named = {each.rule for each in found}
    return (*found, *(each for each in seen.facts.findings if each.rule not in named))
