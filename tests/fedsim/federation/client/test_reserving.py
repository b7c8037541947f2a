"""Of two runs whose budget suffices for one, the later is refused at its start."""

import numpy as np
import pytest
from flwr.app import Message, RecordDict
from hostile import FILES, Case, contexts

from fedsim import client_app
from fedsim.federation.client import client_ledger
from fedsim.federation.protocol import messages
from fedsim.federation.protocol.consent import RefusedError
from fedsim.privacy.accounting import accountant
from fedsim.privacy.mechanism import Mechanism, Steps

Z, DELTA, ROUNDS = 5.0, 1e-5, 3
FIRST = {"run.name": "first"}
SECOND = {"run.name": "second"}


def _epsilon(steps):
    return accountant("pld").epsilon(Mechanism((Steps(Z, steps),)), DELTA)


def _request(machine, id, round, run, limit=ROUNDS + 1, model=np.asarray, **lie):
    """Return a request to a client whose budget has room for as many rounds as `limit` says."""
    node = {"epsilon-limit": _epsilon(limit), "delta-limit": DELTA}
    case = Case("", run=run, node=node, id=id, model=model, lie={"round": round, **lie})
    name = "ward-7/patients.csv"
    context, message = contexts(case, name, machine, FILES[name])
    return message, context


def _asked(machine, id, round, run, **more):
    return client_app.app(*_request(machine, id, round, run, **more))


def _joins(machine, id, run, round=1, **more):
    """Return a client's answer to the question before a run's first round, which reserves."""
    message, context = _request(machine, id, round, run, **more)
    asked = RecordDict({messages.REQUEST: message.content[messages.REQUEST]})
    return client_app.app(Message(asked, 7, "query.data"), context)


def _spent(machine):
    return client_ledger.epsilon(client_ledger.read_answers(machine / "state"), DELTA)


@pytest.mark.parametrize("asks_first", [True, False], ids=["before round 1", "in round 1"])
def test_the_later_of_two_runs_is_refused_at_its_start(asks_first, tmp_path):
    begins = _joins if asks_first else (lambda machine, id, run: _asked(machine, id, 1, run))
    begins(tmp_path, 1, FIRST)
    before = _spent(tmp_path)
    with pytest.raises(RefusedError, match=r"'second', .* with what 'first' reserved\), above its"):
        begins(tmp_path, 2, SECOND)
    assert _spent(tmp_path) == before
    for round in range(1 + (not asks_first), ROUNDS + 1):
        _asked(tmp_path, 1, round, FIRST)
    assert _spent(tmp_path) == pytest.approx(_epsilon(ROUNDS))
    # The first run has used what it reserved, so the rest is free: for one round, not for three.
    with pytest.raises(RefusedError, match=r"to epsilon \S+ at delta 1e-05 over all runs \(\S+ be"):
        begins(tmp_path, 2, SECOND)
    begins(tmp_path, 3, SECOND | {"training.rounds": 1})


@pytest.mark.parametrize("how", ["named", "continued", "owner"])
def test_what_an_ended_run_did_not_use_is_free(how, tmp_path):
    _joins(tmp_path, 1, FIRST)
    if how == "owner":
        (tmp_path / "state" / client_ledger.RESERVED).unlink()
    run = FIRST if how == "continued" else SECOND
    _joins(tmp_path, 2, run, ended="17,1" if how == "named" else "")
    for round in range(1, ROUNDS + 1):
        _asked(tmp_path, 2, round, run)
    assert _spent(tmp_path) == pytest.approx(_epsilon(ROUNDS))


def test_an_interrupted_round_is_planned_once(tmp_path):
    """The budget of a whole training suffices for its continuation, and for no other answer."""
    for round in (1, 2):
        _asked(tmp_path, 1, round, FIRST, limit=ROUNDS)
    _joins(tmp_path, 2, FIRST, round=2, limit=ROUNDS)
    with pytest.raises(RefusedError, match="above its epsilon-limit"):
        _joins(tmp_path, 2, FIRST, round=1, limit=ROUNDS)
    for round in (2, 3):
        _asked(tmp_path, 2, round, FIRST, limit=ROUNDS)
    _joins(tmp_path, 3, FIRST, round=3, limit=ROUNDS)
    with pytest.raises(RefusedError, match="above its epsilon-limit"):
        _asked(tmp_path, 3, 3, FIRST, limit=ROUNDS, model=lambda model: model + np.float32(1e-3))
    assert _spent(tmp_path) == pytest.approx(_epsilon(ROUNDS))


def test_a_lie_about_what_is_reserved_or_has_ended_gains_no_answer(tmp_path):
    """Each answer is charged, and the limit holds, whatever a server reserves and frees."""
    _joins(tmp_path, 1, FIRST, noise_multiplier=1e6)  # which reserves next to nothing
    _joins(tmp_path, 2, SECOND, noise_multiplier=1e6)
    with pytest.raises(RefusedError, match="asks for a noise multiplier of 1e"):
        _asked(tmp_path, 1, 1, FIRST, noise_multiplier=1e6)
    _asked(tmp_path, 1, 1, FIRST)
    answers = 1
    for round in range(1, ROUNDS + 1):  # the other run, as if the first had ended
        answers += _answered(tmp_path, 2, round, SECOND, ended="1")
    for round in range(2, ROUNDS + 1):
        answers += _answered(tmp_path, 1, round, FIRST, ended="2")
    assert answers == ROUNDS + 1
    assert _spent(tmp_path) == pytest.approx(_epsilon(answers))


def _answered(machine, id, round, run, **lie):
    try:
        _asked(machine, id, round, run, **lie)
    except RefusedError:
        return False
    return True


def test_a_plan_without_noise_reserves_nothing(tmp_path):
    for noise in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(RefusedError, match="but a client adds finite noise"):
            _joins(tmp_path, 1, FIRST, noise_multiplier=noise)
    assert not (tmp_path / "state" / client_ledger.RESERVED).exists()


def test_a_damaged_plan_is_named_and_nothing_is_answered(tmp_path):
    _joins(tmp_path, 1, FIRST)
    (tmp_path / "state" / client_ledger.RESERVED).write_text('{"runs": [{}]}')
    with pytest.raises(RefusedError, match="its own log says why"):
        _asked(tmp_path, 1, 1, FIRST)


def test_a_client_keeps_a_limited_number_of_reservations(tmp_path, monkeypatch):
    """Else a server could fill the disk. The earlier ones stay, so no plan loses its budget."""
    monkeypatch.setattr(client_ledger, "MOST_RESERVED", 1)
    room = 20 * ROUNDS
    _joins(tmp_path, 1, FIRST, limit=room)
    before = (tmp_path / "state" / client_ledger.RESERVED).read_bytes()
    with pytest.raises(RefusedError, match=r"1 other runs have reserved .* delete reserved\.json"):
        _joins(tmp_path, 2, SECOND, limit=room)
    assert (tmp_path / "state" / client_ledger.RESERVED).read_bytes() == before
    _joins(tmp_path, 3, FIRST, limit=room)  # the same configuration replaces its plan
    _joins(tmp_path, 4, SECOND, limit=room, ended="17,1,3")
