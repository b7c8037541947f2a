"""What hides the challenge from whom: the noise that is counted is the noise that is accounted."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from fedsim.config import Config, Scalar
from fedsim.mechanism import Trust, Vantage, aggregate_noise_multiplier, effective_noise_multiplier
from fedsim.randomness import SERVER
from fedsim.run_directory import Arrays
from fedsim.vantages import EXACT, measured, suffix, tells_noise, unknown_noise

OWNERS, CHALLENGED, ADVERSARY = 5, 1, 3


@pytest.mark.parametrize("trust", Trust)
@pytest.mark.parametrize("vantage", EXACT)
@pytest.mark.parametrize("colluders", [frozenset(), frozenset({0, 4})])
def test_the_unknown_noise_adds_up_to_the_effective_multiplier(
    trust: Trust, vantage: Vantage, colluders: frozenset[int]
) -> None:
    sources = unknown_noise(vantage, trust, range(OWNERS), CHALLENGED, ADVERSARY, colluders)
    each = {Trust.CENTRAL: 1.0, Trust.LOCAL: 1.0, Trust.DISTRIBUTED: 1 / OWNERS}[trust]
    effective = effective_noise_multiplier(1.0, trust, vantage, OWNERS, colluders=len(colluders))
    assert len(sources) * each == pytest.approx(effective**2)
    shared = aggregate_noise_multiplier(1.0, trust, OWNERS, len(sources))
    assert shared == pytest.approx(effective)


@pytest.mark.parametrize("trust", [Trust.LOCAL, Trust.DISTRIBUTED])
@pytest.mark.parametrize("present", [[CHALLENGED, ADVERSARY], [CHALLENGED], [ADVERSARY], [0, 3]])
def test_one_source_of_noise_counts_at_least(trust: Trust, present: list[int]) -> None:
    """Without the owner of the challenge, whose noise it is, there is nothing to hide."""
    colluders = frozenset({0, 4})
    sources = unknown_noise(Vantage.PARTICIPANT, trust, present, CHALLENGED, ADVERSARY, colluders)
    least = 1.0 if trust is Trust.LOCAL else OWNERS**-0.5
    assert aggregate_noise_multiplier(1.0, trust, OWNERS, len(sources)) == pytest.approx(least)
    accounted = effective_noise_multiplier(
        *(1.0, trust, Vantage.PARTICIPANT, OWNERS), participants=len(present), colluders=2
    )
    assert accounted == pytest.approx(least)


def test_who_sees_what() -> None:
    def unknown(vantage: Vantage, trust: Trust) -> frozenset[int]:
        return unknown_noise(vantage, trust, range(OWNERS), CHALLENGED, ADVERSARY)

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
    adversary, other, challenged, colluder = (
        {"challenged": who == 2, "adversary": who == 0, "colluder": who == 3} for who in range(4)
    )
    assert not tells_noise(local, **adversary)
    assert not tells_noise(local, **colluder)
    assert tells_noise(local, **other)
    distributed = small({"federation.trust": "distributed", "audit.vantages": "all"})
    assert tells_noise(distributed, **adversary)
    server = small({"federation.trust": "local", "federation.vantage": "server"})
    assert tells_noise(server, **challenged)
    assert not tells_noise(server, **other)


COMBINATIONS = [
    # Every seventh on every run: all units, trusts, relations and crowds are among them.
    pytest.param(*each, marks=[pytest.mark.slow] if place % 7 else [])
    for place, each in enumerate(
        itertools.product(
            ("record", "client"),
            ("central", "local", "distributed"),
            ("add-remove", "replace"),
            ("alone", "colluding", "missing"),
        )
    )
]


@pytest.mark.parametrize(("unit", "trust", "neighbouring", "crowd"), COMBINATIONS)
def test_the_auditors_reckoning_is_what_each_vantage_works_out_by_itself(
    unit: str,
    trust: str,
    neighbouring: str,
    crowd: str,
    small: Callable[..., Config],
    run: Callable[[Config], Arrays],
) -> None:
    """Compare the beliefs from the noise itself with those from messages and knowledge."""
    crowds: dict[str, dict[str, Scalar]] = {
        "alone": {},
        "colluding": {"federation.owners": 5, "federation.colluding": 1},
        "missing": {
            "federation.owners": 6,
            "federation.colluding": 1,
            "federation.tolerated-dropouts": 2,
            "federation.dropout-rate": 0.2,
        },
    }
    changes: dict[str, Scalar] = {
        "privacy.unit": unit,
        "privacy.neighbouring": neighbouring,
        "federation.trust": trust,
        "audit.vantages": "all",
    }
    known, worked_out = (
        run(small(changes | crowds[crowd] | {"audit.mode": mode}))
        for mode in ("instrumented", "participant")
    )
    beliefs = {name for name in known if name.startswith(("log_odds", "noise_stds"))}
    assert {"log_odds", "log_odds_server"} <= beliefs
    for name in beliefs:
        # Infinite where the server sees clean sums. Distributed sums are rounded to a grid.
        tolerance = 1e-4 if trust == "distributed" else 1e-6
        np.testing.assert_allclose(known[name], worked_out[name], rtol=0, atol=tolerance)
