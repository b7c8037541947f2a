"""A round that is asked for again is answered to the bit, and costs the client's records nothing.

Anything else that is asked is a new release: another model, other records, or a lost file; and each
part of a secure sum, which hides it behind what the others add anew.
"""

from itertools import pairwise

import numpy as np
import pytest
from hostile import DELTA, FILES, Case, Z, contexts

from fedsim import client_app
from fedsim.federation.client import admission, client_ledger, kept_answer, training_node
from fedsim.federation.protocol import messages
from fedsim.federation.protocol.consent import RefusedError
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism, Steps

ROWS = FILES["ward-7/patients.csv"]
NODE = {"epsilon-limit": 50.0, "consent": "central"}


class Killed(BaseException):
    """What a signal does, in a test."""


def _asked(machine, rows=ROWS, **case):
    """Return what a client sends in answer to a request."""
    name = f"{len(rows)}/patients.csv"
    context, message = contexts(Case("", node=NODE, **case), name, machine, rows)
    return messages.only(client_app.app(message, context).content.array_records[messages.REPLY])


def _asked_of(node, machine, limit, **case):
    """Return what one of several nodes sends that share a folder for their ledger."""
    own = {**NODE, "partition-id": node, "epsilon-limit": limit}
    name = f"{len(ROWS)}/patients.csv"
    context, message = contexts(Case("", node=own, **case), name, machine, ROWS)
    context.node_id = 100 + node
    return messages.only(client_app.app(message, context).content.array_records[messages.REPLY])


def test_the_entry_of_another_node_is_not_its_own(tmp_path):
    """Nodes of one machine may share a folder: what one refused, no entry of another allows."""
    with pytest.raises(RefusedError, match="above its epsilon-limit"):
        _asked_of(1, tmp_path, 0.1)
    _asked_of(2, tmp_path, 50.0)
    for id in (1, 2):
        with pytest.raises(RefusedError, match="above its epsilon-limit"):
            _asked_of(1, tmp_path, 0.1, id=id)
    assert _entries(tmp_path) == 1
    # Out of order for the first node, and answered by the second.
    _asked_of(1, tmp_path, 50.0, id=3, lie={"round": 2})
    with pytest.raises(RefusedError, match="answered in this run already"):
        _asked_of(1, tmp_path, 50.0, id=3)
    _asked_of(2, tmp_path, 50.0, id=3, lie={"round": 3})
    with pytest.raises(RefusedError, match="answered in this run already"):
        _asked_of(1, tmp_path, 50.0, id=3)
    assert _entries(tmp_path) == 3


def _entries(machine):
    return len(client_ledger.read_answers(machine / "state"))


@pytest.mark.parametrize("trust", ["local", "central", "distributed"])
def test_an_interrupted_round_is_answered_again_to_the_bit(trust, tmp_path):
    run = {"federation.trust": trust, "federation.vantage": "participant"}
    first = _asked(tmp_path, run=run)
    np.testing.assert_array_equal(_asked(tmp_path, run=run, id=2), first)
    # Also where the training goes on without a client.
    without = run | {"federation.tolerated-dropouts": 1}
    np.testing.assert_array_equal(_asked(tmp_path, run=without, id=4), first)
    assert _entries(tmp_path) == 1
    # The round after it is another release.
    second = _asked(tmp_path, run=run, id=2, lie={"round": 2})
    assert _entries(tmp_path) == 2
    np.testing.assert_array_equal(_asked(tmp_path, run=run, id=3, lie={"round": 2}), second)
    (kept,) = (tmp_path / "state").glob("answer-*.npz")
    assert kept.stat().st_mode & 0o777 == 0o600


SECURE = {
    "federation.trust": "distributed",
    "federation.secure-aggregation": "secagg+",
    "federation.clients": 4,
}
"""Towards a server that hears sums alone."""

SEEN = Z * (3 / 4) ** 0.5
"""Noise multiplier of a sum towards one of its four clients."""


@pytest.fixture
def unmasked(tmp_path):
    """Return a function that returns what a client adds to a secure sum, before its masks."""
    keys = {"key-path": str(tmp_path / "node.key"), "peers-path": str(tmp_path)}

    def part(**case):
        case = Case("", node=NODE | keys, run=SECURE, **case)
        context, message = contexts(case, f"{len(ROWS)}/patients.csv", tmp_path, ROWS)
        reply = training_node.train(message, context)
        return messages.only(reply.content.array_records[messages.REPLY])

    return part


def test_a_part_of_a_secure_sum_is_never_sent_again(unmasked, tmp_path):
    """A hostile server sums it with new noise of the others, until only its own noise is left."""
    parts = [unmasked(id=id) for id in (1, 2, 3)]
    assert not any(np.array_equal(part, other) for part, other in pairwise(parts))
    assert not [*(tmp_path / "state").glob("answer-*")]
    # Independent releases of one round add up, towards a client that knows its own share of noise.
    answers = client_ledger.read_answers(tmp_path / "state")
    assert [(each.round, each.charged.noise_multiplier) for each in answers] == [(1, SEEN)] * 3
    three = Mechanism((Steps(SEEN, 3),))
    assert client_ledger.epsilon(answers, DELTA) == pytest.approx(PLD.epsilon(three, DELTA))


def test_a_repeated_secure_round_is_planned_with_those_to_come(tmp_path):
    """Three rounds are planned. An interrupted one is the fourth, which this budget lacks."""
    keys = {"key-path": str(tmp_path / "node.key"), "peers-path": str(tmp_path)}
    limit = PLD.epsilon(Mechanism((Steps(SEEN, 3),)), DELTA)
    node = NODE | keys | {"epsilon-limit": limit * (1 + 1e-6)}
    for run, refused in ((SECURE, True), ({"federation.trust": "local"}, False)):
        machine = tmp_path / run["federation.trust"]
        for id, ask in ((1, training_node.train), (2, training_node.data_digest)):
            case = Case("", node=node, run=run, id=id)
            context, message = contexts(case, "patients.csv", machine, ROWS)
            if refused and id == 2:
                with pytest.raises(RefusedError, match=r"with all rounds and trials that it plans"):
                    ask(message, context)
            else:
                ask(message, context)


def test_finished_rounds_are_not_taken_off_a_plan_up_to_stop_at_twice(tmp_path):
    """Two of four rounds are answered, the second twice; the budget has no room for two more."""
    keys = {"key-path": str(tmp_path / "node.key"), "peers-path": str(tmp_path)}
    four = PLD.epsilon(Mechanism((Steps(SEEN, 4),)), DELTA)
    node = NODE | keys | {"epsilon-limit": four * (1 + 1e-6)}
    limit = PLD.epsilon(Mechanism((Steps(SEEN, 5),)), DELTA) * (1 + 1e-6)
    run = SECURE | {"training.rounds": 4, "privacy.stop-at": limit}
    asked = ((1, 1), (1, 2), (2, 2))
    for id, round in asked:
        case = Case("", node=NODE | keys, run=run, id=id, lie={"round": round})
        training_node.train(*reversed(contexts(case, "patients.csv", tmp_path, ROWS)))
    case = Case("", node=node, run=run, id=3, lie={"round": 3})
    context, message = contexts(case, "patients.csv", tmp_path, ROWS)
    with pytest.raises(RefusedError, match=r"with all rounds and trials that it plans"):
        training_node.data_digest(message, context)


@pytest.mark.parametrize(
    "other",
    [
        {"model": lambda model: model + np.float32(1e-3)},
        {"rows": ROWS[:-1]},
        {"run": {"training.learning-rate": 0.5}},
    ],
    ids=["model", "records", "configuration"],
)
def test_another_request_is_another_release(other, tmp_path):
    first = _asked(tmp_path)
    assert not np.array_equal(_asked(tmp_path, id=2, **other), first)
    assert _entries(tmp_path) == 2
    # The first answer is no longer kept.
    assert not np.array_equal(_asked(tmp_path, id=3), first)
    assert _entries(tmp_path) == 3


def test_a_second_model_for_an_answered_round_is_refused_each_time(tmp_path):
    """Its refusal leaves no trace by which the round's charge would pay for it too."""
    first = _asked(tmp_path)
    for _ in range(3):
        with pytest.raises(RefusedError, match="answered in this run already"):
            _asked(tmp_path, model=lambda model: model + np.float32(1e-3))
    assert _entries(tmp_path) == 1
    # The first answer is no longer kept, and this run has no second one.
    with pytest.raises(RefusedError, match="answered in this run already"):
        _asked(tmp_path)
    assert not np.array_equal(_asked(tmp_path, id=2), first)
    assert _entries(tmp_path) == 2


def test_a_lost_or_damaged_answer_is_charged_again(tmp_path):
    first = _asked(tmp_path)
    (kept,) = (tmp_path / "state").glob("answer-*.npz")
    for number, content in enumerate((kept.read_bytes()[:-40], None), start=2):
        kept.unlink() if content is None else kept.write_bytes(content)
        assert not np.array_equal(_asked(tmp_path, id=number), first)
        assert _entries(tmp_path) == number


@pytest.mark.parametrize(
    ("place", "name", "left"),
    [
        (admission, "enter", False),
        (training_node, "local_steps", False),
        (training_node, "_encoded", False),
        (kept_answer, "_write", False),
        (messages, "reply", True),
    ],
)
def test_a_kill_at_any_moment_costs_one_release(place, name, left, tmp_path, monkeypatch):
    """Before the answer is kept nothing has left, and new noise repeats no release."""
    really = getattr(place, name)

    def killed(*arguments, **named):
        if name == "_write" and not arguments[0].arrays:  # of the request, before its charge
            return really(*arguments)
        raise Killed

    for id in (1, 2):
        monkeypatch.setattr(place, name, killed)
        with pytest.raises(Killed):
            _asked(tmp_path, id=id)
    monkeypatch.setattr(place, name, really)
    kept = next((tmp_path / "state").glob("answer-*.npz")).read_bytes()
    sent = _asked(tmp_path, id=3)
    assert _entries(tmp_path) == 1
    if left:
        np.testing.assert_array_equal(np.load(_file(tmp_path, kept))["sum"], sent)


def _file(machine, content):
    path = machine / "kept.npz"
    path.write_bytes(content)
    return path


def test_the_ledger_is_read_once_for_each_message(tmp_path, monkeypatch):
    read, files = client_ledger.journal.read, []
    _asked(tmp_path)
    monkeypatch.setattr(client_ledger.journal, "read", lambda *of: files.append(of) or read(*of))
    _asked(tmp_path, id=2, lie={"round": 2})
    assert len(files) == 1
