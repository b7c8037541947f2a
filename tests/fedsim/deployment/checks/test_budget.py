"""A client sees what runs have cost its records, and what is left."""

import pytest

from fedsim.deployment.checks import machines
from fedsim.deployment.checks.connection import NOTE, OK, WRONG
from fedsim.federation.client import client_ledger
from fedsim.federation.client.client_ledger import AnsweredMessage
from fedsim.federation.protocol.consent import Terms
from fedsim.privacy.accounting import accountant
from fedsim.privacy.mechanism import Mechanism, Neighbouring, Steps


def _answer(run, round, charged):
    unit = "record", Neighbouring.ADD_REMOVE, "pld"
    return AnsweredMessage(
        "2026-11-23T09:00:00+00:00",
        run,
        "digits",
        "7",
        "",
        "12ab",
        0,
        1,
        round,
        5.0,
        charged,
        *unit,
    )


@pytest.fixture
def place(written):
    """The folder of a client that answered two rounds of two runs each, the last uncharged."""
    place = written / "clients" / "client-0"
    terms = Terms(frozenset(), 1, 2.2, 1e-5, place / "state")
    for run, charged in (("5", Steps(5.0)), ("6", Steps(5.0)), ("8", None)):
        for round in (1, 2):
            client_ledger.enter(terms, _answer(run, round, charged))
    return place


def _said(place):
    findings = machines.check_machines(place.parents[1], place.name)
    return [(one.state, one.message) for one in findings if one.what in ("answered", "budget")]


def test_what_every_run_cost_is_listed_and_what_is_left(place):
    assert _said(place) == [
        (OK, "digits (run 5, records 12ab): rounds 2, trials 1; epsilon 1.061 after it"),
        (OK, "digits (run 6, records 12ab): rounds 2, trials 1; epsilon 1.555 after it"),
        (NOTE, "digits (run 8, records 12ab): rounds 2, trials 1; nothing charged"),
        (OK, "epsilon 1.555 of 2.2 is spent at delta 1e-05, 0.645 is left"),
    ]


def test_what_a_run_has_reserved_is_said(place):
    terms = Terms(frozenset(), 1, 9.0, 1e-5, place / "state")
    client_ledger.reserve(terms, _answer("9", 1, Steps(5.0, 4)))
    findings = machines.check_machines(place.parents[1], place.name)
    (said,) = (one.message for one in findings if one.what == "reserved")
    assert said.startswith("digits (run 9) has not ended, and what it reserved is kept from other")
    whole = accountant("pld").epsilon(Mechanism((Steps(5.0, 8),)), 1e-5)
    assert said.endswith(f"epsilon {whole:.4g} with all that is reserved")


@pytest.mark.parametrize(
    ("old", "new", "state", "message"),
    [
        (
            "epsilon-limit = 2.2",
            "epsilon-limit = 1.0",
            NOTE,
            "answers nothing more; to agree to more",
        ),
        ('consent = ""', 'consent = "experiment"', NOTE, "nothing is charged, since consent has"),
    ],
)
def test_a_budget_that_is_spent_or_waived_is_said(place, old, new, state, message):
    path = place / "node.toml"
    path.write_text(path.read_text().replace(old, new))
    found, said = _said(place)[-1]
    assert found == state
    assert message in said


def test_a_damaged_ledger_is_wrong(place):
    path = place / "state" / client_ledger.FILE
    path.write_bytes(path.read_bytes().replace(b"5.0", b"9.0", 1))
    ((state, message),) = _said(place)
    assert state == WRONG
    assert "damaged in line 1" in message
