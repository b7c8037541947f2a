"""Rules and theory of an app's facts, against numbers worked out by hand; Flower's own objects."""

import math
from dataclasses import replace

import pytest
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
)

from adversaries.errors import InputError
from adversaries.statistics import gaussian
from fedsim.audits.app.audit import ClientTheory
from fedsim.audits.app.execution import AppFacts
from fedsim.audits.app.game import Observed, findings
from fedsim.audits.judgement.claim import Claim, Finding
from fedsim.audits.recording.flower import averages, mechanism
from fedsim.audits.steps.watch import Statement
from fedsim.privacy.mechanism import Neighbouring

FACTS = AppFacts(
    rounds=2,
    strategies="DP > FedAvg",
    multipliers=(4.0, 4.0),
    clipping_norm=1.0,
    client_clips=False,
    weighted_by="",
    seeded=False,
    normal=True,
    bare=False,
    statement=None,
    findings=(),
    unknown="",
    doubts=(),
    detects=(0.9,),
)
BARE = {"multipliers": (), "bare": True, "normal": False}
CLAIM = Claim(1.4, 1e-5, "given", unit="client")


def seen(unclipped=False, added=False, **changes):
    return Observed(replace(FACTS, **changes), [], unclipped, added)


def rules(observed, claim=CLAIM):
    return {each.rule: each.severity for each in findings(observed, claim)}


def epsilon(observed, neighbouring=Neighbouring.ADD_REMOVE):
    mu = ClientTheory(observed, findings(observed, CLAIM), neighbouring).mu
    return None if mu is None else gaussian.epsilon(mu, 1e-5)


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        (seen(), {}),
        (seen(weighted_by="num-examples"), {"weighted-average": "alarm"}),
        (seen(statement=Statement(9.0, 1e-5, 1)), {"rebuilt-accountant": "caution"}),
        (seen(statement=Statement(9.0, 1e-5, 2)), {}),
        (seen(client_clips=True, unclipped=True), {"client-clipping": "alarm"}),
        (seen(unclipped=True), {}),  # the server clips
        (seen(seeded=True), {"seeded-noise": "alarm"}),
        (seen(seeded=True, clipping_norm=0.0, multipliers=()), {}),  # noise of its own code
        (seen(**BARE), {"no-noise": "alarm"}),
        (seen(**BARE, added=True), {}),  # the clients' own mods add something
    ],
)
def test_a_rule_finds_its_mistake_and_nothing_else(observed, expected):
    assert rules(observed) == expected


def test_updates_without_noise_break_a_claim_about_clients_alone():
    for claim in (None, replace(CLAIM, unit="record")):
        assert rules(seen(**BARE), claim) == {"no-noise-after-training": "note"}


def test_findings_of_the_recorded_rounds_stand_but_not_beside_their_own_rule():
    checks = tuple(Finding("why", rule=rule) for rule in ("realised-noise", "seeded-noise"))
    found = findings(seen(findings=checks, seeded=True), CLAIM)
    assert [each.rule for each in found] == ["seeded-noise", "realised-noise"]
    assert found[0].why != "why"


def test_theory_composes_the_rounds_and_knows_nothing_under_an_alarm():
    assert epsilon(seen()) == pytest.approx(gaussian.epsilon(math.sqrt(2) / 4, 1e-5))
    twice = epsilon(seen(), Neighbouring.REPLACE)
    assert twice == pytest.approx(gaussian.epsilon(math.sqrt(2) / 2, 1e-5))
    assert epsilon(seen(multipliers=(4.0, 0.0))) == math.inf
    assert epsilon(seen(**BARE)) == math.inf
    for unknown in (seen(seeded=True), seen(multipliers=()), seen(**BARE, added=True)):
        assert epsilon(unknown) is None
    assert epsilon(seen(weighted_by="num-examples")) is not None


@pytest.mark.parametrize(("epsilon", "delta"), [(-1.0, 0.1), (math.inf, 0.1), (1.0, 0.0)])
def test_an_impossible_claim_is_refused(epsilon, delta):
    with pytest.raises(InputError, match="claimed"):
        Claim(epsilon, delta, "")


class Own(FedAvg):
    def aggregate_train(self, server_round, replies):
        return super().aggregate_train(server_round, replies)


class OwnNoise(DifferentialPrivacyServerSideFixedClipping):
    def _add_noise_to_aggregated_arrays(self, aggregated_arrays):
        return aggregated_arrays


def test_only_flowers_own_mean_with_noise_of_a_fixed_norm_is_judged():
    adaptive = DifferentialPrivacyServerSideAdaptiveClipping(FedAvg(), 0.1, 3)
    for wrap in (
        DifferentialPrivacyServerSideFixedClipping,
        DifferentialPrivacyClientSideFixedClipping,
    ):
        assert averages(wrap(FedAvg(), 1.0, 1.0, 3))
        for inner in (FedAdam(), Own(), adaptive, wrap(FedAvg(), 2.0, 1.0, 3)):
            assert not averages(wrap(inner, 1.0, 1.0, 3))
    assert averages(FedAvg())
    assert not averages(adaptive)
    assert "noise_multiplier" not in mechanism(Own())
    assert mechanism(OwnNoise(FedAvg(), 2.0, 1.0, 3)) == {
        "strategy": "OwnNoise > FedAvg",
        "aggregation": "mean",
        "weighted_by": "num-examples",
        "own_noise": "OwnNoise._add_noise_to_aggregated_arrays",
        "clipping": "server",
        "noise_multiplier": 2.0,
        "clipping_norm": 1.0,
        "num_sampled_clients": 3,
    }
