"""What hides the challenge from whom: the noise that is counted is the noise that is accounted."""

import itertools

import numpy as np
import pytest

from fedsim.game.mechanisms.vantages import measured, suffix, tells_noise
from fedsim.privacy.trust import Vantage


def test_the_configured_vantage_comes_first_and_has_the_plain_names(small):
    assert measured(small().federation.vantage, small().audit.vantages) == (Vantage.PARTICIPANT,)
    everywhere = small({"audit.vantages": "all", "federation.vantage": "released-model"})
    assert (
        measured(everywhere.federation.vantage, everywhere.audit.vantages)[0]
        is Vantage.RELEASED_MODEL
    )
    assert set(measured(everywhere.federation.vantage, everywhere.audit.vantages)) == set(Vantage)
    assert suffix(Vantage.SERVER, Vantage.SERVER) == ""
    assert suffix(Vantage.RELEASED_MODEL, Vantage.SERVER) == "_released_model"


def test_the_adversary_tells_its_noise_where_it_hides_from_somebody_else(small):
    local = small({"federation.trust": "local", "audit.vantages": "all"})
    adversary, other, target_client, colluder = (
        {"target_client": who == 2, "adversary": who == 0, "colluder": who == 3} for who in range(4)
    )
    assert not tells_noise(local.federation, local.audit.vantages, **adversary)
    assert not tells_noise(local.federation, local.audit.vantages, **colluder)
    assert tells_noise(local.federation, local.audit.vantages, **other)
    distributed = small({"federation.trust": "distributed", "audit.vantages": "all"})
    assert tells_noise(distributed.federation, distributed.audit.vantages, **adversary)
    server = small({"federation.trust": "local", "federation.vantage": "server"})
    assert tells_noise(server.federation, server.audit.vantages, **target_client)
    assert not tells_noise(server.federation, server.audit.vantages, **other)


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
    unit, trust, neighbouring, crowd, small, run
):
    """Compare the beliefs from the noise itself with those from messages and knowledge."""
    crowds = {
        "alone": {},
        "colluding": {"federation.clients": 5, "federation.colluding": 1},
        "missing": {
            "federation.clients": 6,
            "federation.colluding": 1,
            "federation.tolerated-dropouts": 2,
            "federation.dropout-rate": 0.2,
        },
    }
    changes = {
        "privacy.unit": unit,
        "privacy.neighbouring": neighbouring,
        "federation.trust": trust,
        "audit.vantages": "all",
    }
    known, worked_out = (
        run(small(changes | crowds[crowd] | {"audit.mode": mode}))
        for mode in ("oracle", "participant")
    )
    beliefs = {name for name in known if name.startswith(("log_odds", "noise_stds"))}
    assert {"log_odds", "log_odds_server"} <= beliefs
    for name in beliefs:
        # Infinite where the server sees clean sums. Distributed sums are rounded to a grid.
        tolerance = 1e-4 if trust == "distributed" else 1e-6
        np.testing.assert_allclose(known[name], worked_out[name], rtol=0, atol=tolerance)
