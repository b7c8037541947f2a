"""A training is one run of the same rounds, attacked by nobody, whose model is kept."""

import hashlib
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from flwr.clientapp import ClientApp

import fedsim
from adversaries.errors import InputError
from fedsim import client_app, server_app
from fedsim.configuration import JOBS, from_run_config, to_run_config
from fedsim.configuration.federation import TOLERATED
from fedsim.federation.client import client_ledger
from fedsim.federation.protocol import messages
from fedsim.federation.protocol.messages import Request, Role
from fedsim.federation.protocol.secure_aggregation import SecureAggregationError, SecureSum
from fedsim.federation.runs import ledger, spending
from fedsim.federation.runs.ledger import Account
from fedsim.federation.runs.run_directory import CARD
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server import acceptance, checkpoint, nodes
from fedsim.federation.server.acceptance import ClientFailedError
from fedsim.federation.server.plan import prepare
from fedsim.federation.server.training import Training
from fedsim.game import federation
from fedsim.learning.data import dealing, distribution
from fedsim.learning.training import predictions, saved_model
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism, Neighbouring, Steps
from fedsim.reports import model_card, training_report
from fedsim.reports.document import worth

SEED = {"privacy.noise-source": "seed"}
ADAM = {"training.optimizer": "adam", "training.learning-rate": 0.01}


@pytest.fixture
def training(small, tmp_path):
    """Return a function that makes a small training, to be kept in a folder of its own."""

    def make(changes, folder="trained"):
        values = to_run_config(small(SEED | changes)) | {"run.out": str(tmp_path / folder)}
        return from_run_config(JOBS["training"](values))

    return make


def throw(error):
    raise error


def _train(config, app=client_app.app):
    plan = prepare(config)
    directory = plan.begin()
    grid = InProcessGrid(app, config.federation.clients, to_run_config(plan.config))
    server_app.carry_out(grid, plan, directory)
    return directory


@pytest.mark.parametrize("changes", [{}, {"federation.trust": "local"} | ADAM])
def test_the_model_is_that_of_an_experiment_with_one_trial(changes, small, run, training):
    once = {"trials.count": 1, "trials.batch": 1}
    repeated = run(small(changes | once))
    kept = checkpoint.read_checkpoint(_train(training(changes)))
    assert kept is not None
    assert kept.round == 3
    found = hashlib.sha256(kept.model[0].tobytes()).digest()
    assert found == repeated["final_models"][0].tobytes()


def test_plain_pytorch_scores_the_saved_model_as_the_run_did(training):
    directory = _train(training({}))
    model = fedsim.load_model(directory.path)
    with pytest.raises(InputError, match="has the report of a training, which played no trials"):
        fedsim.load(directory.path)
    config = directory.config
    public = dealing.draw(config.data, distribution.dataset(config.data, "")).held_out_records
    with torch.no_grad():
        predicted, probabilities = predictions.likeliest(model(torch.tensor(public.features)))
    card = model_card.read_card(directory)
    assert card.utility is not None
    assert np.mean(predicted.numpy() == public.labels) == pytest.approx(card.utility.accuracy)
    true = probabilities.numpy()[np.arange(len(public)), public.labels]
    assert -np.log(true).mean() == pytest.approx(card.utility.loss, rel=1e-5)


GIVEN = re.compile(r"(\d+) steps with noise multiplier (\S+) at sampling rate (\S+?)(?=;|$)")


@pytest.mark.parametrize(
    "changes",
    [
        {"federation.trust": "local", "training.local-steps": 5, "training.sampling-rate": 0.5},
        {"federation.trust": "local", "privacy.neighbouring": "replace"},
        {"federation.trust": "distributed", "training.sampling-rate": 0.25},
    ],
)
def test_epsilon_can_be_worked_out_again_from_the_text_of_the_card_alone(changes, training):
    text = (_train(training(changes)).path / model_card.PAGE).read_text()
    (delta,) = re.findall(r"At δ = (\S+), for one record \((\S+)\)", text)
    table = dict(re.findall(r"^\| the (\S.*?) \| .*? \| (\S+) \| \S+ \|$", text, re.M))
    lines = dict(re.findall(r"^- towards the (.*?): (.*)$", text, re.M))
    assert {*lines} == {*table} == {"server", "participant", "released model"}
    for vantage, line in lines.items():
        steps = tuple(
            Steps(float(z), int(count), float(rate)) for count, z, rate in GIVEN.findall(line)
        )
        found = PLD.epsilon(Mechanism(steps, Neighbouring(delta[1])), float(delta[0]))
        stated = math.inf if table[vantage] == "∞" else float(table[vantage])
        assert found == pytest.approx(stated, abs=6e-4)
    if "training.local-steps" in changes:
        assert "The accounting covers 3 rounds of 5 local steps each" in text
        assert lines["participant"].startswith("15 steps ")


def test_no_client_is_anything_but_a_client(training):
    asked = []

    class Watched(ClientApp):
        def __call__(self, message, context):
            asked.append(message)
            return client_app.app(message, context)

    _train(training({}), Watched())
    requests = [
        Request.from_content(message.content)
        for message in asked
        if "request" in message.content.config_records
    ]
    assert {request.role for request in requests} == {Role.CLIENT.value}
    assert {(request.record, request.target_client) for request in requests} == {(-1, -1)}
    assert not any("worlds" in message.content for message in asked)
    assert not any("findings" in message.metadata.message_type for message in asked)


class Killed(BaseException):
    """What a signal does, in a test."""


@pytest.mark.parametrize("changes", [{}, ADAM, {"training.momentum": 0.9}])
def test_a_killed_training_goes_on_after_its_last_round(changes, training, monkeypatch):
    whole = _train(training(changes, "whole"))
    really = acceptance.accept_round

    def killed(batch, round, *rest):
        if round.number == 3:
            raise Killed
        return really(batch, round, *rest)

    monkeypatch.setattr(acceptance, "accept_round", killed)
    with pytest.raises(Killed):
        _train(training(changes))
    monkeypatch.setattr(acceptance, "accept_round", really)
    resumed = _train(training(changes))
    values = [run.path / saved_model.PUBLIC / saved_model.VALUES for run in (whole, resumed)]
    assert values[0].read_bytes() == values[1].read_bytes()
    # The third round was charged before the kill, and is charged once.
    assert [(row.attempt, row.round) for row in ledger.read(resumed)] == [(1, 1), (1, 2), (1, 3)]
    assert model_card.read_card(resumed).privacy.rounds_charged == 3


@pytest.mark.parametrize("killed_in", [1, 3])
@pytest.mark.parametrize("before", [True, False], ids=["before the checkpoint", "after it"])
def test_a_kill_costs_no_epsilon(killed_in, before, training, monkeypatch):
    """Nothing of a round leaves before its state is written, so its repetition is charged once."""
    real = {"privacy.noise-source": "system", "federation.trust": "local"}
    whole = model_card.read_card(_train(training(real, "whole")))
    assert whole.privacy.guaranteed
    really = checkpoint.write_checkpoint

    def killed(directory, state):
        if not before:
            really(directory, state)
        if state.round == killed_in:
            raise Killed
        really(directory, state)

    config = training(real)
    # Twice at the same place: the second attempt is no other than the first.
    for _ in range(2):
        monkeypatch.setattr(checkpoint, "write_checkpoint", killed)
        with pytest.raises(Killed):
            _train(config)
        if not before:
            break
    monkeypatch.setattr(checkpoint, "write_checkpoint", really)
    card = model_card.read_card(_train(config))
    assert (card.privacy.rounds_charged, card.privacy.attempts) == (3, 1)
    assert [row.epsilon for row in card.privacy.towards] == [
        row.epsilon for row in whole.privacy.towards
    ]


SECURE = {
    "federation.trust": "distributed",
    "federation.secure-aggregation": "secagg+",
    "privacy.noise-source": "system",
}


@pytest.fixture
def killed_before_its_state(monkeypatch):
    """Return a function that kills a training before the state of a round is written."""

    def train(config, number):
        really = checkpoint.write_checkpoint

        def killed(directory, state):
            if state.round == number:
                raise Killed
            really(directory, state)

        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, "write_checkpoint", killed)
            with pytest.raises(Killed):
                _train(config)

    return train


def test_each_attempt_at_a_secure_sum_is_charged(training, killed_before_its_state):
    """The server may have seen an interrupted sum, and the clients add new noise to the next."""
    whole = model_card.read_card(_train(training(SECURE, "whole")))
    config = training(SECURE | {"privacy.stop-at": 100.0})
    for _ in range(2):
        killed_before_its_state(config, 2)
    card = model_card.read_card(_train(config))
    assert card.privacy.rounds_charged == whole.privacy.rounds_charged + 2
    for spent, planned in zip(card.privacy.towards, whole.privacy.towards, strict=True):
        assert spent.steps == [replace(each, count=each.count + 2) for each in planned.steps]
    # Three clients: their masks can be guessed.
    assert any("fewer than 4 honest clients" in warning for warning in card.warnings)


def test_a_budget_that_an_interrupted_round_used_up_ends_the_training(
    training, killed_before_its_state
):
    """The round before becomes the last, with all that is measured of a final model."""
    whole = model_card.read_card(_train(training(SECURE, "whole")))
    (_, planned, _) = (each.epsilon["pld"] for each in whole.privacy.towards)
    config = training(SECURE | {"privacy.stop-at": planned * 1.0001})
    killed_before_its_state(config, 3)
    card = model_card.read_card(_train(config))
    assert (card.rounds, card.privacy.rounds_charged) == (2, 3)
    assert card.utility is not None
    assert card.utility.clipped is not None


def test_a_client_that_is_away_when_keys_are_exchanged_costs_nothing(training, monkeypatch):
    really, exchanged = SecureSum.exchange_keys, []

    def failing(self):
        exchanged.append(self)
        if len(exchanged) == 2:
            raise SecureAggregationError("client 2 is away")
        return really(self)

    monkeypatch.setattr(SecureSum, "exchange_keys", failing)
    with pytest.raises(SecureAggregationError, match="is away"):
        _train(training(SECURE))
    assert [row.round for row in ledger.read(_train(training(SECURE)))] == [1, 2, 3]


@pytest.mark.parametrize(
    ("job", "changes"),
    [
        ("training", {"federation.trust": "local"}),
        ("experiment", {"federation.trust": "local"}),
    ],
)
def test_a_round_that_no_client_answered_costs_a_training_nothing(job, changes, small, tmp_path):
    """An experiment repeats its rounds with new noise, and asks before it costs more."""
    silent_in = 2

    class Refuses(ClientApp):
        def __call__(self, message, context):
            request = message.content.config_records.get(messages.REQUEST, {})
            if message.metadata.message_type == "train" and request.get("round") == silent_in:
                raise RuntimeError("it refuses")
            return client_app.app(message, context)

    once = {"privacy.noise-source": "system", "run.out": str(tmp_path / "run")}
    once |= {"trials.count": 1, "audit.attacks": "none"}
    config = from_run_config(JOBS[job](to_run_config(small(once | changes))))
    with pytest.raises(ClientFailedError, match=f"round {silent_in}: .*it refuses"):
        _train(config, Refuses())
    if job == "experiment":
        with pytest.raises(InputError, match=r"set privacy\.stop-at"):
            _train(config)
        return
    rows = ledger.read(_train(config))
    assert Account(rows).most == 3
    planned = spending.describe(config, rows[0].kind.noise_multiplier, [])
    assert spending.describe(config, 0.0, rows).count == planned.count


@pytest.mark.parametrize("trust", ["local", "distributed"])
def test_a_training_goes_on_without_a_client_that_left(trust, training, tmp_path, monkeypatch):
    """Its share of the noise is missing from then on; the others answer no round twice."""
    monkeypatch.setattr(nodes, "LEAVING", 0.0)
    monkeypatch.setattr(nodes, "POLL_INTERVAL", 0.0)
    changes = {"privacy.noise-source": "system", "federation.trust": trust}
    changes |= {"federation.clients": 3, "privacy.rho-beta": 0.0, "privacy.noise-multiplier": 9.0}
    whole = model_card.read_card(_train(training(changes, "whole")))

    class Leaves(ClientApp):
        """Answers for all clients, but for the last one from its second round on."""

        def __call__(self, message, context):
            request = message.content.config_records.get(messages.REQUEST, {})
            if context.node_config["partition-id"] == 2 and request.get("round") == 2:
                raise RuntimeError("it is gone")
            return client_app.app(message, context)

    def carried_out(config, app, clients):
        plan = prepare(config)
        grid = InProcessGrid(app, clients, to_run_config(plan.config))
        for client, context in enumerate(grid.contexts.values()):
            context.node_config |= {"state-path": str(tmp_path / f"state-{client}")}
            context.node_config |= {"consent": "", "epsilon-limit": 9.0}
        directory = plan.begin()
        server_app.carry_out(grid, plan, directory)
        return directory

    more = "If that stays so, the same command with federation.tolerated-dropouts=1 goes on"
    with pytest.raises(ClientFailedError, match=f"round 2: client 2 failed: .*{more}"):
        carried_out(training(changes), Leaves(), 3)
    directory = carried_out(training(changes | {TOLERATED: 1}), client_app.app, 2)
    rows = [(row.round, row.kind.participants, row.present) for row in ledger.read(directory)]
    assert rows == [(1, 3, None), (2, 2, (0, 1)), (3, 2, (0, 1))]
    for client in (0, 1):
        answers = client_ledger.read_answers(tmp_path / f"state-{client}")
        assert [answer.round for answer in answers] == [1, 2, 3]
    without = model_card.read_card(directory)
    for row, before in zip(without.privacy.towards, whole.privacy.towards, strict=True):
        # Under local trust the noise of each message hides it from the server.
        least = before.epsilon["pld"]
        if trust == "local" and row.vantage == "server":
            assert row.epsilon["pld"] == pytest.approx(least)
        else:
            assert row.epsilon["pld"] > 1.01 * least
    with pytest.raises(InputError, match="another configuration"):
        prepare(training(changes))  # a run never tolerates less than it did


def test_a_damaged_model_is_refused_in_a_line(training):
    directory = _train(training({}))
    public = directory.path / saved_model.PUBLIC
    values = public / saved_model.VALUES
    values.write_bytes(values.read_bytes()[:-4])
    with pytest.raises(InputError, match="not a safetensors file, or it is damaged"):
        fedsim.load_model(directory.path)
    (public / saved_model.DESCRIPTION).unlink()
    with pytest.raises(InputError, match="name the directory of a finished fedsim train"):
        fedsim.load_model(directory.path)


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (Training, "play"),  # of the third round, after two
        pytest.param(saved_model, "write_model", marks=pytest.mark.slow),
        (model_card, "write_card"),
        pytest.param(training_report, "write_training_report", marks=pytest.mark.slow),
    ],
    ids=["between rounds", "before the model", "before its card", "before its report"],
)
def test_a_training_killed_outside_of_a_round_goes_on_and_spends_nothing_twice(
    place, name, training, monkeypatch
):
    whole = _train(training({}, "whole"))
    really = getattr(place, name)

    def killed(*arguments, **named):
        if name == "play" and arguments[1].round < 2:
            return really(*arguments, **named)
        raise Killed

    monkeypatch.setattr(place, name, killed)
    with pytest.raises(Killed):
        _train(training({}))
    monkeypatch.undo()
    resumed = _train(training({}))
    assert resumed.finished
    values = [run.path / saved_model.PUBLIC / saved_model.VALUES for run in (whole, resumed)]
    assert values[0].read_bytes() == values[1].read_bytes()
    assert [row.round for row in ledger.read(resumed)] == [1, 2, 3]
    towards = [model_card.read_card(run).privacy.towards for run in (whole, resumed)]
    assert towards[0] == towards[1]


def test_a_checkpoint_of_another_run_is_refused(training):
    one, other = _train(training({}, "one")), training({}, "other")
    directory = prepare(other).begin()
    (directory.path / checkpoint.FILE).write_bytes((one.path / checkpoint.FILE).read_bytes())
    with pytest.raises(InputError, match="it belongs to another run"):
        _train(other)


def test_what_undoes_the_guarantee_is_refused(training):
    for changes in (
        {"training.clipping": False, "privacy.noise-multiplier": 1.0, "privacy.rho-beta": 0.0},
        {"privacy.sensitivity": "local"},
        {"federation.colluding": 1},
    ):
        with pytest.raises(InputError, match=r"run.job is 'training'.*fedsim run"):
            training(changes)


def test_the_run_directory_is_json_and_safetensors(training):
    directory = _train(training({}))
    card = json.loads((directory.path / CARD).read_text())
    content = (directory.path / saved_model.PUBLIC / saved_model.VALUES).read_bytes()
    assert card["sha256"] == hashlib.sha256(content).hexdigest()


SCHEMA = """
classes = ["no", "yes"]

[columns]
one = [0, 1]
two = [0, 1]
"""
SIZES = (14, 8, 2)


@pytest.fixture
def own(small, tmp_path):
    """Return a function that makes a training on files of each client, or what rehearses it."""
    generator = np.random.default_rng(1)
    for name, size in zip(["0", "1", "2", "public"], [*SIZES, 30], strict=True):
        one, two = generator.random((2, size))
        labels = np.where(one + 0.1 * generator.random(size) > 0.5, "yes", "no")
        np.savez(tmp_path / f"{name}.npz", one=one, two=two, label=labels)

    def make(changes, job="training"):
        values = to_run_config(small(SEED)) | {
            "data.name": "own",
            "data.root": str(tmp_path / "{client}.npz"),
            "data.public-schema": SCHEMA,
            "data.public-root": str(tmp_path / "public.npz"),
            "run.out": str(tmp_path / job),
        }
        return from_run_config(JOBS[job](values | changes))

    return make


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"federation.trust": "local"},
        pytest.param(
            {"federation.trust": "distributed", "privacy.unit": "client"}, marks=pytest.mark.slow
        ),
        {"federation.trust": "distributed", "federation.secure-aggregation": "secagg+"},
    ],
)
def test_own_records_train_the_model_that_pooled_ones_would(changes, own, run):
    game = {
        "trials.count": 1,
        "trials.batch": 1,
        "audit.attacks": "none",
    }
    pooled = run(own(changes | {"audit.evaluated-trials": 1} | game, "rehearsal"))
    kept = checkpoint.read_checkpoint(_train(own(changes)))
    assert kept is not None
    assert hashlib.sha256(kept.model[0].tobytes()).digest() == pooled["final_models"][0].tobytes()


def test_neither_server_nor_client_reads_the_records_of_others(own):
    config = own({})
    assert not len(federation.load(config).client_of)
    for client, size in enumerate(SIZES):
        known = federation.load(config, client)
        assert known.client_of.tolist() == [client] * size


def test_a_record_that_the_schema_refuses_is_named_to_its_client_alone(own, tmp_path, caplog):
    path = tmp_path / "1.npz"
    arrays = dict(np.load(path))
    np.savez(path, **arrays | {"two": arrays["two"] + 7})
    with pytest.raises(RuntimeError, match=r"client 1 failed.*records do not fit") as told:
        _train(own({}))
    assert "column" not in str(told.value)
    assert "column 'two': outside of the range 0 to 1" in caplog.text


def test_a_rehearsal_counts_the_records_that_a_training_divides_by(own):
    with pytest.raises(InputError, match=r"24 records together.*rehearse with data\.records = 24"):
        federation.load(own({"data.records": 30}, "rehearsal"))


def test_the_share_of_clipped_gradients_is_that_of_plain_pytorch_and_gives_a_hint(training):
    norm = 3.9  # some gradients are longer, and some are not
    directory = _train(training({"training.clipping-norm": norm}))
    known = federation.load(directory.config)
    model = fedsim.load_model(directory.path)
    lengths = []
    for record, label in zip(*known.held_out(), strict=True):
        loss = torch.nn.functional.cross_entropy(model(record[None]), label[None])
        gradient = torch.autograd.grad(loss, list(model.parameters()))
        lengths.append(float(torch.cat([part.flatten() for part in gradient]).norm()))
    card = model_card.read_card(directory)
    assert card.utility is not None
    assert 0 < card.utility.clipped == np.mean(np.array(lengths) > norm) < 1
    assert "longer than training.clipping-norm" not in " ".join(worth.learning(card.utility))
    for share, hint in ((0.0, "a smaller one may learn more"), (1.0, "Try more training.rounds")):
        assert hint in " ".join(worth.learning(replace(card.utility, clipped=share)))
