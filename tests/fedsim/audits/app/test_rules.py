"""Every rule objects to its mistake and to nothing else, on Flower's own objects."""

from dataclasses import replace

import pytest
from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod
from flwr.serverapp import NeighboringRelation, PrivacyConfig, RdpAccountant, SamplingMethod
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
)

from adversaries.statistics.intervals import Interval
from fedsim.audits.app.configuration import AppStatement, configuration_of
from fedsim.audits.app.theory import RULES, findings
from fedsim.audits.judgement.claim import Claim, Finding
from fedsim.privacy.mechanism import Neighbouring

HONEST = {
    "participants": (5, 5),
    "weights": dict.fromkeys(range(5), 1.0),
    "noise_ratios": (Interval(0.97, 1.02, 0.999),) * 2,
}


def fixed(z=4.0, clients=5, inner=None):
    return DifferentialPrivacyServerSideFixedClipping(inner or FedAvg(), z, 1.0, clients)


def observed(strategy, mods=(), **changes):
    return replace(configuration_of(strategy, mods, 2), **(HONEST | changes))


def varying(strategy):
    configuration = observed(strategy)
    assert configuration.central is not None
    central = replace(configuration.central, varies=True)
    return replace(configuration, central=central)


def broken(configuration, claim=None):
    found = findings(configuration, Neighbouring.ADD_REMOVE, claim)
    return [finding.rule for finding in found if finding.breaks]


def local(norm, sensitivity, epsilon=1.0, neighbouring=Neighbouring.ADD_REMOVE):
    mods = [LocalDpMod(norm, sensitivity, epsilon, 1e-5)]
    return findings(configuration_of(FedAvg(), mods), neighbouring)


def test_an_honest_configuration_is_left_alone():
    assert findings(observed(fixed()), Neighbouring.ADD_REMOVE) == ()


@pytest.mark.parametrize(
    ("rule", "configuration"),
    [
        ("local-noise", observed(FedAvg(), (LocalDpMod(1.0, 0.1, 1.0, 1e-5),))),
        ("local-noise", observed(FedAvg(), (LocalDpMod(1.0, 1.0, 12.0, 1e-5),))),
        ("weighted-average", observed(fixed(), weights={0: 10.0, 1: 30.0})),
        ("varying-noise", varying(fixed())),
        ("rebuilt-accountant", observed(fixed(), statements=(AppStatement(9.0, 1e-5, 1),))),
        ("inner-strategy", observed(fixed(inner=FedAdam()))),
        (
            "client-clipping",
            observed(
                DifferentialPrivacyClientSideFixedClipping(FedAvg(), 4.0, 1.0, 5),
                client_norm_kept=True,
            ),
        ),
        (
            "adaptive-clipping",
            observed(
                DifferentialPrivacyServerSideAdaptiveClipping(
                    FedAvg(), 4.0, 5, clipped_count_stddev=8.0
                )
            ),
        ),
        ("seeded-noise", observed(fixed(), seeded=True)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_rule_finds_its_mistake(rule, configuration):
    assert rule in broken(configuration)
    assert set(broken(configuration)) <= {rule, "noise-below-claim"}


@pytest.mark.parametrize(("unit", "alarms"), [("client", ["no-noise"]), ("record", [])])
def test_updates_without_noise_break_a_claim_about_clients_alone(unit, alarms):
    plain, claim = observed(FedAvg()), Claim(1.4, 1e-5, "given", unit=unit)
    assert [rule for rule in broken(plain, claim) if rule == "no-noise"] == alarms
    assert broken(plain) == []
    rules = [finding.rule for finding in findings(plain, Neighbouring.ADD_REMOVE)]
    assert rules == ["no-noise-after-training"]


def test_noise_is_compared_with_the_claim():
    kept, broken_claim = (Claim(e, 1e-5, "given") for e in (1.4, 1.3))
    # sqrt(2)/4 standard deviations are private at epsilon 1.356, delta 1e-5.
    assert broken(observed(fixed()), kept) == []
    assert broken(observed(fixed()), broken_claim) == ["noise-below-claim"]


def test_where_another_claim_is_judged_the_clients_own_is_judged_beside_it():
    claim = Claim(1.4, 1e-5, "given")
    tight, loose = (observed(fixed(), (LocalDpMod(1.0, s, 1.0, 1e-5),)) for s in (1.0, 0.1))
    assert broken(tight, claim) == []
    assert broken(loose, claim) == ["local-noise"]


def test_checks_of_the_recorded_rounds_are_findings_but_not_beside_their_own_rule():
    checks = tuple(Finding("why", rule=rule) for rule in ("realised-noise", "seeded-noise"))
    found = findings(observed(fixed(), checks=checks, seeded=True), Neighbouring.ADD_REMOVE)
    assert [each.rule for each in found] == ["seeded-noise", "realised-noise"]
    assert found[0].why != "why"


def test_every_rule_is_tested_here():
    marks = test_a_rule_finds_its_mistake.pytestmark
    tested = {case[0] for mark in marks for case in mark.args[1]}
    assert tested | {"no-noise", "no-noise-after-training", "noise-below-claim"} == set(RULES)


@pytest.mark.parametrize(
    ("norm", "sensitivity", "epsilon"), [(1.0, 1.0, 1.0), (0.5, 0.5, 0.3), (1.0, 2.0, 1.0)]
)
def test_a_tied_sensitivity_is_right(norm, sensitivity, epsilon):
    assert local(norm, sensitivity, epsilon) == ()


def test_the_sensitivity_of_replacement_is_twice_the_norm():
    found = local(1.0, 1.0, neighbouring=Neighbouring.REPLACE)
    assert "local-noise" in [each.rule for each in found]


def test_an_accountant_that_refuses_unequal_weights_is_enough():
    config = PrivacyConfig(
        1e-5, 5, NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.NO_AMPLIFICATION
    )
    strategy = DifferentialPrivacyServerSideFixedClipping(
        FedAvg(), 4.0, 1.0, 5, accountant=RdpAccountant(config)
    )
    assert findings(observed(strategy, weights={0: 10.0, 1: 30.0}), Neighbouring.ADD_REMOVE) == ()


def test_wrappers_are_read_through():
    configuration = configuration_of(fixed(inner=FedAdam()), [fixedclipping_mod], 7)
    assert configuration.strategies == ("DifferentialPrivacyServerSideFixedClipping", "FedAdam")
    assert configuration.mods == ("fixedclipping_mod",)
    assert configuration.rounds == 7
