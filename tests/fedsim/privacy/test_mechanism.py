"""The mechanism, and how much of its noise each vantage point faces."""

import math

import pytest

from adversaries.errors import InputError
from fedsim.privacy.calibration import advantage_at_most, least_multiplier
from fedsim.privacy.mechanism import (
    Mechanism,
    Neighbouring,
    effective_noise_multiplier,
    sensitivity,
)
from fedsim.privacy.releases import Releases, Rounds
from fedsim.privacy.trust import Trust, Vantage


def test_a_missing_record_moves_a_sum_by_the_clipping_norm_and_a_replaced_one_by_twice():
    assert sensitivity(Neighbouring.ADD_REMOVE, 3.0) == 3.0
    assert sensitivity(Neighbouring.REPLACE, 3.0) == 6.0


# Noise of standard deviation 2 in all, five clients; what is left of it after the adversary has
# subtracted what it knows. Local: the other four's sqrt(4) * 2. Distributed: sqrt(4/5) * 2.
@pytest.mark.parametrize(
    ("trust", "vantage", "effective"),
    [
        (Trust.CENTRAL, Vantage.SERVER, 0.0),
        (Trust.CENTRAL, Vantage.PARTICIPANT, 2.0),
        (Trust.CENTRAL, Vantage.RELEASED_MODEL, 2.0),
        (Trust.LOCAL, Vantage.SERVER, 2.0),
        (Trust.LOCAL, Vantage.PARTICIPANT, 4.0),
        (Trust.LOCAL, Vantage.RELEASED_MODEL, 4.0),
        (Trust.DISTRIBUTED, Vantage.SERVER, 2.0),
        (Trust.DISTRIBUTED, Vantage.PARTICIPANT, 2.0 * math.sqrt(4 / 5)),
        (Trust.DISTRIBUTED, Vantage.RELEASED_MODEL, 2.0 * math.sqrt(4 / 5)),
    ],
)
def test_each_vantage_faces_the_noise_that_it_cannot_subtract(trust, vantage, effective):
    assert effective_noise_multiplier(2.0, trust, vantage, 5) == pytest.approx(effective)


# The same with two colluders: five clients less the adversary's noise and theirs are two.
@pytest.mark.parametrize(
    ("trust", "vantage", "effective"),
    [
        (Trust.CENTRAL, Vantage.SERVER, 0.0),
        (Trust.CENTRAL, Vantage.PARTICIPANT, 2.0),
        (Trust.LOCAL, Vantage.SERVER, 2.0),
        (Trust.LOCAL, Vantage.PARTICIPANT, 2.0 * math.sqrt(2)),
        (Trust.LOCAL, Vantage.RELEASED_MODEL, 2.0 * math.sqrt(2)),
        (Trust.DISTRIBUTED, Vantage.SERVER, 2.0 * math.sqrt(3 / 5)),
        (Trust.DISTRIBUTED, Vantage.PARTICIPANT, 2.0 * math.sqrt(2 / 5)),
        (Trust.DISTRIBUTED, Vantage.RELEASED_MODEL, 2.0 * math.sqrt(2 / 5)),
    ],
)
def test_colluders_take_their_noise_away(trust, vantage, effective):
    found = effective_noise_multiplier(2.0, trust, vantage, 5, colluders=2)
    assert found == pytest.approx(effective)


@pytest.mark.parametrize("colluders", [-1, 4])
def test_neither_the_adversary_nor_the_records_client_is_a_colluder(colluders):
    with pytest.raises(InputError, match=f"{colluders} of 5 clients collude.*give 0 to 3"):
        effective_noise_multiplier(1.0, Trust.LOCAL, Vantage.PARTICIPANT, 5, colluders=colluders)


def test_no_noise_helps_against_a_server_that_sees_clean_sums():
    def faced(noise):
        return Releases((Rounds(noise),), clients=5).towards(Vantage.SERVER)

    with pytest.raises(InputError, match="no noise protects from the server"):
        least_multiplier(advantage_at_most(0.5), faced)


@pytest.mark.parametrize("clients", [-1, 0, 1])
def test_a_federation_has_at_least_two_clients(clients):
    with pytest.raises(InputError, match="at least 2"):
        effective_noise_multiplier(1.0, Trust.LOCAL, Vantage.PARTICIPANT, clients)


@pytest.mark.parametrize("vantage", Vantage)
def test_local_steps_are_hidden_by_the_clients_own_noise_alone(vantage):
    assert effective_noise_multiplier(2.0, Trust.LOCAL, vantage, 5, local_steps=3) == 2.0


@pytest.mark.parametrize("trust", [Trust.CENTRAL, Trust.DISTRIBUTED])
def test_local_steps_need_clients_that_add_their_own_noise(trust):
    with pytest.raises(InputError, match=f"3 local steps under {trust} trust.*choose trust local"):
        effective_noise_multiplier(2.0, trust, Vantage.PARTICIPANT, 5, local_steps=3)


@pytest.mark.parametrize("local_steps", [0, -2])
def test_a_client_takes_at_least_one_step_in_a_round(local_steps):
    with pytest.raises(InputError, match="number of local steps"):
        effective_noise_multiplier(2.0, Trust.LOCAL, Vantage.SERVER, 5, local_steps)


def test_signal_to_noise_grows_with_the_root_of_the_steps():
    assert Mechanism.alike(2.0, 36).mu == 3.0
    assert Mechanism.alike(0.0, 36).mu == math.inf


def test_a_sampled_record_takes_part_in_some_step_with_one_minus_the_chance_of_none():
    assert Mechanism.alike(1.0, 3, 0.5).participation == pytest.approx(1 - 0.5**3)
    assert Mechanism.alike(1.0, 3).participation == 1.0


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ((-1.0, 1), "noise multiplier"),
        ((math.nan, 1), "noise multiplier"),
        ((math.inf, 1), "noise multiplier"),
        ((1.0, 0), "steps"),
        ((1.0, 1, 0.0), "sampling rate"),
        ((1.0, 1, 1.1), "sampling rate"),
        ((1.0, 1, math.nan), "sampling rate"),
    ],
)
def test_a_mechanism_refuses_values_out_of_range(values, complaint):
    with pytest.raises(InputError, match=complaint):
        Mechanism.alike(*values)


@pytest.mark.parametrize("clipping_norm", [0.0, -1.0, math.inf, math.nan])
def test_a_clipping_norm_is_positive(clipping_norm):
    with pytest.raises(InputError, match="clipping norm"):
        sensitivity(Neighbouring.ADD_REMOVE, clipping_norm)
