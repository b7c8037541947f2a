"""What a configuration guarantees, against sensitivities worked out by hand."""

import math
from dataclasses import replace

import pytest

from adversaries.errors import InputError
from adversaries.statistics import gaussian
from adversaries.statistics.intervals import Interval
from fedsim.audits.app.configuration import (
    AppStatement,
    Configuration,
    LocalNoise,
    claim_of,
)
from fedsim.audits.app.strategies import CentralNoise
from fedsim.audits.app.theory import guarantee, vantage_of
from fedsim.audits.judgement.claim import Claim
from fedsim.privacy.mechanism import Neighbouring
from fedsim.privacy.trust import Vantage

CENTRAL = CentralNoise("DP", 2.0, (0.5,), 4)
CONFIGURATION = Configuration(
    3,
    ("DP", "FedAvg"),
    central=CENTRAL,
    participants=(4, 4, 4),
    weights=dict.fromkeys(range(4), 1.0),
)
LOCAL = Configuration(3, ("FedAvg",), local=LocalNoise(2.0, 2.0, 1.0, 1e-5))


def multipliers(configuration, neighbouring="add-remove"):
    found = guarantee(configuration, Neighbouring(neighbouring))
    assert found is not None
    return list(found.multipliers)


def seen(**changes):
    return replace(CONFIGURATION, **changes)


def central(**changes):
    return replace(CONFIGURATION, central=replace(CENTRAL, **changes))


def test_equal_weights_give_the_configured_multiplier():
    assert multipliers(CONFIGURATION) == pytest.approx([2.0] * 3)


def test_another_update_moves_the_average_twice_as_far_as_none():
    assert multipliers(CONFIGURATION, "replace") == pytest.approx([1.0] * 3)


def test_weights_of_the_clients_own_leave_an_nth_of_the_noise():
    weights = {0: 10.0, 1: 20.0, 2: 30.0, 3: 40.0}
    assert multipliers(seen(weights=weights)) == pytest.approx([2.0 / 4] * 3, rel=1e-6)


def test_equal_counts_of_examples_are_no_constant():
    assert multipliers(seen(weights=dict.fromkeys(range(4), 25.0))) == pytest.approx(
        [2.0 / 4] * 3, rel=1e-6
    )


def test_enforced_equal_weights_are_equal():
    weights = dict.fromkeys(range(4), 25.0)
    configuration = replace(
        seen(weights=weights), central=replace(CENTRAL, equal_weights_enforced=True)
    )
    assert multipliers(configuration) == pytest.approx([2.0] * 3)


def test_a_round_of_fewer_replies_has_less_noise_for_each():
    assert multipliers(seen(participants=(4, 2, 1))) == pytest.approx([2.0, 1.0, 0.5])


def test_realised_noise_counts_where_it_contradicts_the_configured():
    fits, less = Interval(0.98, 1.03, 0.999), Interval(0.09, 0.11, 0.999)
    assert multipliers(seen(noise_ratios=(fits,) * 3)) == pytest.approx([2.0] * 3)
    more = Interval(1.9, 2.1, 0.999)
    assert multipliers(seen(noise_ratios=(more,) * 3)) == pytest.approx([2.0] * 3)
    tenth = 2.0 * math.sqrt(0.09 * 0.11)
    assert multipliers(seen(noise_ratios=(fits, less, fits))) == pytest.approx([2.0, tenth, 2.0])


@pytest.mark.parametrize(
    "configuration",
    [
        seen(seeded=True),
        replace(seen(client_norm_kept=True), central=replace(CENTRAL, client_clips=True)),
        Configuration(3, ("FedAvg",)),
        central(noise_multiplier=0.0),
        replace(LOCAL, local=LocalNoise(2.0, 0.0, 1.0, 1e-5)),
    ],
    ids=["predictable noise", "nobody clips", "no DP", "no noise", "sensitivity 0"],
)
def test_no_protection_is_an_infinite_epsilon(configuration):
    found = guarantee(configuration, Neighbouring.ADD_REMOVE)
    assert found is not None
    assert found.epsilon(1e-5) == math.inf
    assert found.mu == math.inf


@pytest.mark.parametrize(
    "configuration",
    [
        central(plain_mean=False),
        central(varies=True),
        central(adaptive=True),
        Configuration(3, ("Own",), known=False),
    ],
    ids=[
        "noise on no average",
        "noise that varies",
        "adaptive clipping",
        "somebody's own strategy",
    ],
)
def test_theory_is_silent_where_it_does_not_know(configuration):
    assert guarantee(configuration, Neighbouring.ADD_REMOVE) is None


def test_local_noise_is_measured_against_one_message():
    found = guarantee(LOCAL, Neighbouring.ADD_REMOVE)
    assert found is not None
    assert found.vantage is Vantage.SERVER
    z = math.sqrt(2 * math.log(1.25e5))
    assert found.multipliers == pytest.approx([z] * 3)
    assert found.epsilon(1e-5) == pytest.approx(gaussian.epsilon(math.sqrt(3) / z, 1e-5))


def test_the_app_claims_what_its_accountant_said_last():
    statements = (
        AppStatement(0.0, 1e-5, 0),
        AppStatement(1.0, 1e-5, 1),
        AppStatement(2.0, 1e-5, 2),
    )
    claim = claim_of(seen(statements=statements))
    assert claim is not None
    assert claim.epsilon == 2.0
    local = claim_of(LOCAL)
    assert local is not None
    assert (local.epsilon, local.delta) == (3.0, pytest.approx(3e-5))
    assert claim_of(CONFIGURATION) is None


@pytest.mark.parametrize(("epsilon", "delta"), [(-1.0, 0.1), (math.inf, 0.1), (1.0, 0.0)])
def test_an_impossible_claim_is_refused(epsilon, delta):
    with pytest.raises(InputError, match="claimed"):
        Claim(epsilon, delta, "")


def test_a_vantage_goes_with_its_claim_where_server_and_clients_add_noise():
    # Noise of the clients' that says next to nothing, beside the server's of multiplier 2.
    both = replace(CONFIGURATION, local=LocalNoise(0.5, 0.5, 200.0, 1e-5))
    stated = replace(both, statements=(AppStatement(3.0, 1e-5, 3),))
    assert vantage_of(stated, claim_of(stated)) is Vantage.PARTICIPANT
    assert vantage_of(both, Claim(3.0, 1e-5, "given")) is Vantage.PARTICIPANT
    assert vantage_of(LOCAL, Claim(3.0, 1e-5, "given")) is Vantage.SERVER
    assert multipliers(both) == pytest.approx([2.0] * 3)
    messages = guarantee(both, Neighbouring.ADD_REMOVE, Vantage.SERVER)
    assert messages is not None
    assert messages.multipliers == pytest.approx([math.sqrt(2 * math.log(1.25e5)) / 200] * 3)


def test_noisy_messages_bound_what_the_models_made_of_them_tell():
    both = replace(CONFIGURATION, local=LocalNoise(0.5, 0.5, 1.0, 1e-5))
    assert multipliers(both) == pytest.approx([math.sqrt(2 * math.log(1.25e5))] * 3)
    unknown = replace(both, central=replace(CENTRAL, plain_mean=False))
    assert multipliers(unknown) == pytest.approx([math.sqrt(2 * math.log(1.25e5))] * 3)
