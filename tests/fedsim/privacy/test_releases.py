"""One description of a federation's rounds, and the mechanism that each vantage faces."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adversaries.errors import InputError
from fedsim.privacy import releases_file
from fedsim.privacy.mechanism import Mechanism, Neighbouring, Steps
from fedsim.privacy.releases import Releases, Rounds
from fedsim.privacy.trust import Trust, Vantage

EXAMPLE = """
trust = "distributed"
clients = 8
clipping-norm = 2.0
neighbouring = "replace"

[[rounds]]
count = 90
noise-std = 8.0

[[rounds]]
noise-multiplier = 4.0
participants = 7
sampling-rate = 0.5
"""


def written(tmp_path, text):
    path = tmp_path / "rounds.toml"
    path.write_text(text)
    return path


def test_rounds_that_differ_compose_to_one_mechanism():
    described = Releases((Rounds(2.0, 10), Rounds(3.0, 5, 0.1), Rounds(2.0, 1)))
    expected = Mechanism((Steps(2.0, 11), Steps(3.0, 5, 0.1)))
    assert described.towards(Vantage.PARTICIPANT) == expected
    assert described.count == 16


@pytest.mark.parametrize(
    ("trust", "vantage", "effective"),
    [
        (Trust.CENTRAL, Vantage.PARTICIPANT, 2.0),
        (Trust.LOCAL, Vantage.SERVER, 2.0),
        (Trust.LOCAL, Vantage.PARTICIPANT, 2 * math.sqrt(2)),
        (Trust.DISTRIBUTED, Vantage.SERVER, 2 * math.sqrt(3 / 5)),
        (Trust.DISTRIBUTED, Vantage.PARTICIPANT, 2 * math.sqrt(2 / 5)),
    ],
)
def test_a_client_that_stays_away_takes_its_noise_with_it(trust, vantage, effective):
    described = Releases((Rounds(2.0, participants=3),), trust=trust, clients=5)
    (group,) = described.towards(vantage).groups
    assert group.noise_multiplier == pytest.approx(effective)


def test_the_first_rounds_are_cut_where_they_are_counted_off():
    described = Releases((Rounds(2.0, 10), Rounds(3.0, 5)))
    assert described.first(12).rounds == (Rounds(2.0, 10), Rounds(3.0, 2))
    assert described.first(99) == described
    with pytest.raises(InputError, match="at least 1"):
        described.first(0)


def test_several_trainings_cost_all_their_rounds_together():
    one = Releases((Rounds(2.0, 3), Rounds(4.0, 5)))
    towards = one.repeated(7).towards(Vantage.PARTICIPANT)
    assert towards.mu == pytest.approx(math.sqrt(7 * (3 / 2.0**2 + 5 / 4.0**2)), rel=1e-12)


def test_a_file_describes_rounds_by_multiplier_or_by_standard_deviation(tmp_path):
    read = releases_file.load(written(tmp_path, EXAMPLE))
    # Replacing a record moves a sum by twice the clipping norm: 8 / (2 x 2).
    assert read.rounds == (Rounds(2.0, 90), Rounds(4.0, 1, 0.5, participants=7))
    assert (read.trust, read.clients, read.neighbouring) == (
        Trust.DISTRIBUTED,
        8,
        Neighbouring.REPLACE,
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("rounds = [", "not valid TOML"),
        ("clients = 2", "rounds"),
        ("rounds = []", "rounds"),
        ("[[rounds]]\ncount = 3", "noise-multiplier or noise-std"),
        ("[[rounds]]\nnoise-std = 1.0", "clipping-norm"),
        ("[[rounds]]\nnoise-multiplier = 1.0\nnoize = 2", "noize"),
        ("[[rounds]]\nnoise-multiplier = 1.0\nparticipants = 3", "3 of 2 clients"),
        ("[[rounds]]\nnoise-multiplier = 1.0\nlocal-steps = 3", "choose trust local"),
        ("clients = 1\n[[rounds]]\nnoise-multiplier = 1.0", "clients"),
        ("[[rounds]]\nnoise-multiplier = -1.0", "noise-multiplier"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_in_one_line(tmp_path, text, complaint):
    with pytest.raises(InputError, match=complaint) as refused:
        releases_file.load(written(tmp_path, text))
    assert "\n" not in str(refused.value)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        releases_file.load(tmp_path / "nothing.toml")


@given(
    st.sampled_from(Trust),
    st.sampled_from(Vantage),
    st.integers(2, 40),
    st.floats(0.5, 20),
    st.integers(1, 100),
    st.data(),
)
def test_more_participants_more_noise_and_fewer_rounds_never_harm(
    trust, vantage, clients, z, count, data
):
    participants = data.draw(st.integers(1, clients - 1))

    def mu(z, count, participants):
        rounds = Rounds(z, count, participants=participants)
        return Releases((rounds,), trust=trust, clients=clients).towards(vantage).mu

    here = mu(z, count, participants)
    assert mu(z, count, participants + 1) <= here
    assert mu(1.1 * z, count, participants) <= here
    assert here <= mu(z, count + 1, participants)
