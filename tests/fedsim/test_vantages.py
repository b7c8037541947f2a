"""What hides the challenge from whom: the noise that is counted is the noise that is accounted."""

from collections.abc import Callable

import pytest

from fedsim.config import Config
from fedsim.mechanism import Trust, Vantage, effective_noise_multiplier
from fedsim.randomness import SERVER
from fedsim.vantages import EXACT, measured, suffix, tells_noise, unknown_noise

OWNERS, CHALLENGED, ADVERSARY = 5, 1, 3


@pytest.mark.parametrize("trust", Trust)
@pytest.mark.parametrize("vantage", EXACT)
def test_the_unknown_noise_adds_up_to_the_effective_multiplier(
    trust: Trust, vantage: Vantage
) -> None:
    sources = unknown_noise(vantage, trust, OWNERS, CHALLENGED, ADVERSARY)
    each = {Trust.CENTRAL: 1.0, Trust.LOCAL: 1.0, Trust.DISTRIBUTED: 1 / OWNERS}[trust]
    effective = effective_noise_multiplier(1.0, trust, vantage, OWNERS)
    assert len(sources) * each == pytest.approx(effective**2)


def test_who_sees_what() -> None:
    def unknown(vantage: Vantage, trust: Trust) -> frozenset[int]:
        return unknown_noise(vantage, trust, OWNERS, CHALLENGED, ADVERSARY)

    assert unknown(Vantage.SERVER, Trust.CENTRAL) == frozenset()
    assert unknown(Vantage.SERVER, Trust.LOCAL) == {CHALLENGED}
    assert unknown(Vantage.SERVER, Trust.DISTRIBUTED) == set(range(OWNERS))
    assert unknown(Vantage.PARTICIPANT, Trust.CENTRAL) == {SERVER}
    for trust in (Trust.LOCAL, Trust.DISTRIBUTED):
        assert unknown(Vantage.PARTICIPANT, trust) == set(range(OWNERS)) - {ADVERSARY}
        assert unknown(Vantage.RELEASED_MODEL, trust) == set(range(OWNERS))


def test_the_configured_vantage_comes_first_and_has_the_plain_names(
    small: Callable[..., Config],
) -> None:
    assert measured(small()) == (Vantage.PARTICIPANT,)
    everywhere = small({"audit.vantages": "all", "federation.vantage": "released-model"})
    assert measured(everywhere)[0] is Vantage.RELEASED_MODEL
    assert set(measured(everywhere)) == set(Vantage)
    assert suffix(Vantage.SERVER, Vantage.SERVER) == ""
    assert suffix(Vantage.RELEASED_MODEL, Vantage.SERVER) == "_released_model"


def test_the_adversary_tells_its_noise_where_it_hides_from_somebody_else(
    small: Callable[..., Config],
) -> None:
    local = small({"federation.trust": "local", "audit.vantages": "all"})
    assert not tells_noise(local, challenged=False, adversary=True)
    assert tells_noise(local, challenged=False, adversary=False)
    shares = local.federation.model_copy(update={"trust": Trust.DISTRIBUTED})
    distributed = local.model_copy(update={"federation": shares})
    assert tells_noise(distributed, challenged=False, adversary=True)
    server = small({"federation.trust": "local", "federation.vantage": "server"})
    assert tells_noise(server, challenged=True, adversary=False)
    assert not tells_noise(server, challenged=False, adversary=False)
