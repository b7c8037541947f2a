"""A node refuses what its owner did not agree to; simulated people are not asked."""

from pathlib import Path

import pytest

from fedsim.federation.client import admission
from fedsim.federation.protocol import consent
from fedsim.federation.protocol.messages import Request, Role

PROTECTED = {
    "federation.trust": "local",
    "privacy.noise-source": "system",
    "privacy.noise-multiplier": 5.0,
    "privacy.rho-beta": 0.0,
}
"""A run that needs nobody's consent."""

NODE = {"state-path": "state"}


@pytest.mark.parametrize(
    ("changes", "role", "kinds"),
    [
        ({}, Role.CLIENT, set()),
        ({"federation.trust": "central"}, Role.CLIENT, {"central"}),
        ({"privacy.noise-source": "seed"}, Role.CLIENT, {"experiment"}),
        ({"training.clipping": False}, Role.CLIENT, {"experiment"}),
        ({"federation.vantage": "server"}, Role.ADVERSARY, {"adversary"}),
        ({"federation.vantage": "participant"}, Role.ADVERSARY, {"adversary", "experiment"}),
        ({"federation.vantage": "released-model"}, Role.ADVERSARY, {"adversary", "experiment"}),
        ({}, Role.COLLUDER, {"oracle", "experiment"}),
        ({}, Role.TARGET_CLIENT, {"challenge"}),
        ({"challenge.kind": "clipbkd"}, Role.TARGET_CLIENT, {"challenge", "canaries"}),
        ({"canaries.count": 3}, Role.CLIENT, {"canaries"}),
        ({"canaries.count": 1}, Role.CLIENT, set()),
        ({"audit.mode": "oracle"}, Role.CLIENT, {"oracle", "experiment"}),
    ],
)
def test_what_a_message_needs(small, changes, role, kinds):
    config = small(PROTECTED | changes)
    assert set(admission.needed(config, Request(1, 0, 8, 1.0, role), 1)) == kinds


def _asked(*kinds):
    return dict.fromkeys(kinds, "the run asks for it")


def test_nobody_asks_simulated_people():
    consent.require({"partition-id": 0}, _asked(*consent.KINDS))


@pytest.mark.parametrize("said", ["", "canaries", "challenge"])
def test_what_was_not_agreed_to_is_refused_with_what_to_set(said):
    with pytest.raises(consent.RefusedError, match="did not consent to 'oracle'") as refusal:
        consent.require(NODE | {"consent": said}, _asked("oracle"))
    wanted = str(refusal.value).rpartition(' set consent = "')[2].partition('"')[0]
    consent.require(NODE | {"consent": wanted}, _asked("oracle"))
    assert set(filter(None, said.split(","))) <= set(wanted.split(","))


@pytest.mark.parametrize("key", [key for key in consent.DEPLOYED if key != consent.KEY])
def test_a_config_of_a_deployed_node_without_its_line_of_consent_consents_to_nothing(key):
    said = NODE | {"epsilon-limit": 2.2, "delta-limit": 1e-5, "max-trials": 1, "data-path": "data"}
    terms = consent.terms({name: said[name] for name in {key, "state-path"}})
    assert terms is not None
    assert terms.kinds == frozenset()
    with pytest.raises(consent.RefusedError, match="did not consent to 'central'"):
        consent.require(said, _asked("central"))


def test_what_is_not_said_is_agreed_to_as_little_as_may_be():
    terms = consent.terms(NODE | {"consent": ""})
    assert terms == consent.Terms(frozenset(), 1, 0.0, 1e-5, Path("state"))


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({"consent": "chalenge"}, "has 'chalenge'; choose from"),
        ({"state-path": ""}, "has no state-path"),
        ({"max-trials": 0}, "max-trials is 0; give a whole number"),
        ({"max-trials": 1.5}, "max-trials is 1.5; give a whole number"),
        ({"epsilon-limit": "3"}, "epsilon-limit is '3'; give a finite number"),
        ({"epsilon-limit": float("inf")}, "epsilon-limit is inf"),
        ({"epsilon-limit": float("nan")}, "epsilon-limit is nan"),
        ({"delta-limit": 1}, "delta-limit is 1; give a probability"),
    ],
)
def test_terms_that_mean_nothing_are_no_consent(said, complaint):
    with pytest.raises(consent.RefusedError, match=complaint):
        consent.require(NODE | {"consent": ""} | said, {})
