"""A run that plans more than is left of a client's budget is refused at its start."""

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
    """Return a client's answer to the question before a run's first round."""
    message, context = _request(machine, id, round, run, **more)
    asked = RecordDict({messages.REQUEST: message.content[messages.REQUEST]})
    return client_app.app(Message(asked, 7, "query.data"), context)


def _spent(machine):
    return client_ledger.epsilon(client_ledger.read_answers(machine / "state"), DELTA)


@pytest.mark.parametrize("asks_first", [True, False], ids=["before round 1", "in round 1"])
def test_a_run_that_does_not_fit_is_refused_at_its_start(asks_first, tmp_path):
    begins = _joins if asks_first else (lambda machine, id, run: _asked(machine, id, 1, run))
    for round in range(1, ROUNDS + 1):
        _asked(tmp_path, 1, round, FIRST)
    # The rest suffices for one round, not for three.
    with pytest.raises(RefusedError, match=r"'second', .* to epsilon \S+ at delta 1e-05 over all"):
        begins(tmp_path, 2, SECOND)
    assert _spent(tmp_path) == pytest.approx(_epsilon(ROUNDS))
    begins(tmp_path, 3, SECOND | {"training.rounds": 1})


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


def test_a_lie_about_what_is_planned_gains_no_answer(tmp_path):
    """Each answer is charged, and the limit holds, whatever noise a server names before."""
    for id, run in ((1, FIRST), (2, SECOND)):
        _joins(tmp_path, id, run, noise_multiplier=1e6)
    with pytest.raises(RefusedError, match="asks for a noise multiplier of 1e"):
        _asked(tmp_path, 1, 1, FIRST, noise_multiplier=1e6)
    places = [(id, round, run) for id, run in ((1, FIRST), (2, SECOND)) for round in (1, 2, 3)]
    answers = sum(_answered(tmp_path, *place) for place in places)
    assert answers == ROUNDS + 1
    assert _spent(tmp_path) == pytest.approx(_epsilon(answers))


def _answered(machine, id, round, run):
    try:
        _asked(machine, id, round, run)
    except RefusedError:
        return False
    return True


def test_a_plan_without_noise_is_refused(tmp_path):
    for noise in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(RefusedError, match="but a client adds finite noise"):
            _joins(tmp_path, 1, FIRST, noise_multiplier=noise)
