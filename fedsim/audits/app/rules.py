"""What is wrong with the noise of an app that Flower's own code should add."""

from collections.abc import Mapping
from dataclasses import dataclass

from fedsim.audits.app.game import Observed
from fedsim.audits.judgement.claim import Claim, Finding, Rule, objections

COUNTED = ("weighted-average", "sampled-clients")
"""Rules whose mistake is in theory's epsilon, so that a claim may be supported beside them."""


@dataclass(frozen=True)
class RuleSubject:
    """The input of a rule."""

    seen: Observed
    claim: Claim | None

    @property
    def unprotected(self) -> bool:
        """Whether only training itself can add noise."""
        return self.seen.facts.bare and not self.seen.added

    @property
    def of_a_client(self) -> bool:
        return self.claim is not None and self.claim.unit == "client"


def _lost(subject: RuleSubject) -> tuple[int, int] | None:
    facts = subject.seen.facts
    counted = facts.rounds if facts.statement is None else facts.statement.releases
    return (counted, facts.rounds) if counted < facts.rounds else None


RULES: Mapping[str, Rule] = {
    "weighted-average": Rule(
        lambda subject: subject.seen.facts.multipliers and subject.seen.facts.weighted_by,
        "the noise is for clients that all count alike, but the average is weighted by '{0}', "
        "which each client states itself and nothing bounds: one client can make up any part of "
        "the average",
        "weight all clients alike: send a constant 1 under the key of weighted_by_key, or pass "
        "accountant=RdpAccountant(...), which refuses unequal weights",
    ),
    "rebuilt-accountant": Rule(
        _lost,
        "the accountant's last answer counts {0[0]} of {0[1]} releases: it was rebuilt during the "
        "run, and lost the rest; this audit composes all of them",
        "build one accountant before the first round and keep it, or restore it with "
        "state_dict() and load_state_dict()",
        "caution",
    ),
    "client-clipping": Rule(
        lambda subject: subject.seen.facts.client_clips and subject.seen.unclipped,
        "clipping is left to the clients, but a client's update far above the clipping norm "
        "arrived unclipped: one client can change the average without limit",
        "register fixedclipping_mod on the train function: @app.train(mods=[fixedclipping_mod])",
    ),
    "seeded-noise": Rule(
        lambda subject: subject.seen.facts.seeded and subject.seen.facts.clipping_norm,
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
}


def findings(seen: Observed, claim: Claim | None) -> tuple[Finding, ...]:
    """Return what the rules find, and the findings of the recorded rounds that no rule repeats."""
    found = objections(RULES, RuleSubject(seen, claim))
    named = {each.rule for each in found}
    return found + tuple(each for each in seen.facts.findings if each.rule not in named)
