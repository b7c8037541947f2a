"""A client that agreed says once how a model answers for records that it held back, and pays."""

from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Context, Message, RecordDict

from fedsim import client_app
from fedsim.configuration import from_run_config, to_run_config
from fedsim.federation.client import client_ledger, holding_back, measures_node, preparation
from fedsim.federation.protocol import messages
from fedsim.federation.protocol.consent import RefusedError
from fedsim.federation.protocol.flower_private import become_task
from fedsim.federation.protocol.messages import Request
from fedsim.game import federation

AGREED = {
    "partition-id": 1,
    "consent": "measures",
    "measures-share": 0.5,
    "measures-epsilon": 1.0,
    "epsilon-limit": 3.0,
}
RUN = {
    "run.job": "training",
    "federation.trust": "local",
    "federation.measures-epsilon": 0.75,
    "privacy.noise-source": "system",
    "privacy.rho-beta": 0.0,
    "privacy.noise-multiplier": 5.0,
    "trials.count": 1,
}
MODEL = torch.randn(1, 650, generator=torch.Generator().manual_seed(0)).numpy()


@pytest.fixture
def client(small, tmp_path):
    """Return a function that makes a client's context: its node's config, the run's, the run."""

    def make(node=None, run=None, id=1):
        become_task(id, 1)
        state = {"state-path": str(tmp_path / "state")}
        config = to_run_config(small(RUN | (run or {})))
        return Context(id, 7, AGREED | state | (node or {}), RecordDict(), config)

    return make


def _message(kind, round):
    content = RecordDict({messages.REQUEST: Request(round, 0, 1, 5.0).to_record()})
    content[messages.MODEL] = messages.array_record(parameters=MODEL)
    return Message(content, 7, kind)


def _asked(context):
    reply = client_app.app(_message("query.measures", 3), context)
    return messages.only(reply.content.array_records[messages.MEASURES])


def _trains(context, round):
    reply = client_app.app(_message("train", round), context)
    return messages.only(reply.content.array_records[messages.REPLY])


def _ledger(context):
    return client_ledger.read_answers(Path(str(context.node_config["state-path"])))


def test_it_is_charged_before_it_leaves_and_answered_once(client, monkeypatch):
    # A client's random key would hold back all of 8 records, or none, once in 128 times.
    monkeypatch.setattr("secrets.token_bytes", lambda size: b"k" * size)
    context = client()
    monkeypatch.setattr(measures_node.discrete_laplace, "draw", lambda scale: 0)
    for round in (1, 2, 3):
        _trains(context, round)
    rounds = client_ledger.epsilon(_ledger(context), 1e-5)
    counts = _asked(context)
    known = federation.load(from_run_config(context.run_config).experiment)
    assert 0 < counts.sum() < len(known.owned_by(1))
    assert client_ledger.epsilon(_ledger(context), 1e-5) == pytest.approx(rounds + 0.75)
    # The same request has the same answer. An earlier round has none.
    np.testing.assert_array_equal(_asked(context), counts)
    with pytest.raises(RefusedError, match="answered in this run already"):
        _trains(context, 3)
    assert len(_ledger(context)) == 4


def test_each_cell_has_noise_of_the_stated_scale(client, monkeypatch):
    scales = []

    def draw(scale):
        scales.append(float(scale))
        return 1000

    monkeypatch.setattr(measures_node.discrete_laplace, "draw", draw)
    assert _asked(client()).min() >= 1000
    assert scales == [pytest.approx(1 / 0.75)] * 100
    scales.clear()
    other = {"epsilon-limit": 9.0, "state-path": str(client().node_config["state-path"]) + "-2"}
    assert _asked(client(other, {"privacy.neighbouring": "replace"}, 2)).min() >= 1000
    assert scales == [pytest.approx(2 / 0.75)] * 100


@pytest.mark.parametrize(
    ("node", "run", "refusal"),
    [
        ({"consent": ""}, {}, "did not consent to 'measures'"),
        ({"measures-epsilon": 0.5}, {}, "is 0.75, but this client agreed to measures-epsilon"),
        ({"measures-epsilon": "much"}, {}, "measures-epsilon is 'much'"),
        ({"measures-share": 0.75}, {}, "measures-share is 0.75; give a number above 0 and at most"),
        ({"epsilon-limit": 0.7}, {}, "the confusion matrix after .* above its epsilon-limit"),
        ({}, {"federation.measures-epsilon": 0.0}, "only a training with"),
        ({"consent": "measures,experiment"}, {"run.job": "experiment"}, "only a training with"),
        ({}, {"privacy.unit": "client"}, "configuration is invalid"),
    ],
)
def test_what_the_owner_did_not_agree_to_is_refused_and_not_charged(client, node, run, refusal):
    context = client(node)
    context.run_config |= run
    with pytest.raises(RefusedError, match=refusal):
        _asked(context)
    assert _ledger(context) == []


def test_a_training_whose_measures_the_budget_does_not_allow_is_not_begun(client):
    fits = client_ledger.epsilon(_entered(client), 1e-5)
    context = client({"epsilon-limit": fits + 0.7, "state-path": _elsewhere(client)}, id=2)
    with pytest.raises(RefusedError, match="with all rounds and trials that it plans"):
        _trains(context, 1)
    _trains(client({"epsilon-limit": fits + 0.8, "state-path": _elsewhere(client)}, id=3), 1)


def test_a_training_whose_measures_cost_more_than_was_agreed_is_not_begun(client):
    context = client({"measures-epsilon": 0.7})
    with pytest.raises(RefusedError, match=r"is 0\.75, but this client agreed to measures-e"):
        _trains(context, 1)
    assert _ledger(context) == []
    _trains(client({"measures-epsilon": 0.7}, {"federation.measures-epsilon": 0.0}, 2), 1)


def _entered(client):
    context = client()
    for round in (1, 2, 3):
        _trains(context, round)
    return _ledger(context)


def _elsewhere(client):
    return str(client().node_config["state-path"]) + "-2"


def test_what_is_held_back_is_the_clients_own_choice_in_every_training(client):
    def held(context):
        received = preparation.prepared(_message("train", 1), context)
        back = holding_back.held_back(received.whole, received.loaded, 1)
        rows = received.whole.split.members_records.take(back).features
        return sorted(row.tobytes() for row in rows)

    mine = held(client())
    assert mine
    other = {"run.seed": 5, "training.rounds": 2, "federation.measures-epsilon": 0.0}
    assert held(client({}, other, 2)) == mine
    assert held(client({"state-path": _elsewhere(client)}, id=3)) != mine
    # Another record more or less moves no other: each is chosen by itself.
    fewer = set(held(client({}, {"data.records": 23}, 4)))
    whole = preparation.prepared(_message("train", 1), client({}, {"data.records": 23}, 4)).whole
    left = {row.tobytes() for row in whole.split.members_records.take(whole.owned_by(1)).features}
    assert fewer & set(mine) == set(mine) & left


def test_records_that_are_held_back_are_in_no_message(client, monkeypatch):
    for node in ({}, {"consent": ""}):
        context = client(node | {"state-path": f"{_elsewhere(client)}-{len(node)}"})
        received = preparation.prepared(_message("train", 1), context)
        back = holding_back.held_back(received.whole, received.loaded, 1)
        own = received.loaded.owned_by(1)
        assert bool(len(back)) == (not node)
        monkeypatch.setattr(
            "fedsim.federation.client.training_node.noise",
            lambda *_: torch.zeros(1, MODEL.shape[1]).double(),
        )
        sent = _trains(context, 1)
        expected = received.whole.clipped_sum(torch.tensor(MODEL), own).float().numpy()
        np.testing.assert_allclose(sent, expected, rtol=1e-6)
        monkeypatch.undo()


def test_no_record_shares_a_kernel_with_another(client, monkeypatch):
    """Else its absence could, by rounding that a model amplifies, move others between cells."""
    rows, logits = [], measures_node.evaluation.logits

    def counted(model, theta, some):
        rows.append(len(some))
        return logits(model, theta, some)

    monkeypatch.setattr(measures_node.evaluation, "logits", counted)
    _asked(client({}, {"data.records": 72}))
    assert len(rows) > 1 and set(rows) == {1}
