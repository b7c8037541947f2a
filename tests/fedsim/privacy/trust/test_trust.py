"""What hides the target from whom: the noise that is counted is the noise that is accounted."""

import pytest

from fedsim.common.randomness import SERVER
from fedsim.game.mechanisms.vantages import EXACT
from fedsim.privacy.mechanism import aggregate_noise_multiplier, effective_noise_multiplier
from fedsim.privacy.trust import Trust, Vantage

CLIENTS, TARGET_CLIENT, ADVERSARY = 5, 1, 3


@pytest.mark.parametrize("trust", Trust)
@pytest.mark.parametrize("vantage", EXACT)
@pytest.mark.parametrize("colluders", [frozenset(), frozenset({0, 4})])
def test_the_unknown_noise_adds_up_to_the_effective_multiplier(trust, vantage, colluders):
    sources = trust.model.unknown_noise(
        vantage, range(CLIENTS), TARGET_CLIENT, ADVERSARY, colluders
    )
    ours = {Trust.CENTRAL: 1.0, Trust.LOCAL: 1.0, Trust.DISTRIBUTED: 1 / CLIENTS}
    each = ours.get(trust, trust.model.noise_share(CLIENTS, 1) ** 2)
    effective = effective_noise_multiplier(1.0, trust, vantage, CLIENTS, colluders=len(colluders))
    assert len(sources) * each == pytest.approx(effective**2)
    shared = aggregate_noise_multiplier(1.0, trust, CLIENTS, len(sources))
    assert shared == pytest.approx(effective)


@pytest.mark.parametrize("trust", [Trust.LOCAL, Trust.DISTRIBUTED])
@pytest.mark.parametrize(
    "present", [[TARGET_CLIENT, ADVERSARY], [TARGET_CLIENT], [ADVERSARY], [0, 3]]
)
def test_one_source_of_noise_counts_at_least(trust, present):
    """Without the target client, whose noise it is, there is nothing to hide."""
    colluders = frozenset({0, 4})
    sources = trust.model.unknown_noise(
        Vantage.PARTICIPANT, present, TARGET_CLIENT, ADVERSARY, colluders
    )
    least = 1.0 if trust is Trust.LOCAL else CLIENTS**-0.5
    assert aggregate_noise_multiplier(1.0, trust, CLIENTS, len(sources)) == pytest.approx(least)
    accounted = effective_noise_multiplier(
        *(1.0, trust, Vantage.PARTICIPANT, CLIENTS), participants=len(present), colluders=2
    )
    assert accounted == pytest.approx(least)


def test_who_sees_what():
    def unknown(vantage, trust):
        return trust.model.unknown_noise(vantage, range(CLIENTS), TARGET_CLIENT, ADVERSARY)

    assert unknown(Vantage.SERVER, Trust.CENTRAL) == frozenset()
    assert unknown(Vantage.SERVER, Trust.LOCAL) == {TARGET_CLIENT}
    assert unknown(Vantage.SERVER, Trust.DISTRIBUTED) == set(range(CLIENTS))
    assert unknown(Vantage.PARTICIPANT, Trust.CENTRAL) == {SERVER}
    for trust in (Trust.LOCAL, Trust.DISTRIBUTED):
        assert unknown(Vantage.PARTICIPANT, trust) == set(range(CLIENTS)) - {ADVERSARY}
        assert unknown(Vantage.RELEASED_MODEL, trust) == set(range(CLIENTS))
