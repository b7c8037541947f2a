"""What a node answers, and what it refuses."""

import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from flwr.app import Context, Message, RecordDict
from safetensors.torch import save_file

from adversaries.errors import InputError
from fedsim import client_app
from fedsim.configuration import from_run_config, to_run_config
from fedsim.federation.client import adversary_node, client_ledger
from fedsim.federation.protocol import messages, replies
from fedsim.federation.protocol.consent import RefusedError
from fedsim.federation.protocol.flower_private import become_task
from fedsim.federation.protocol.messages import Request, Role
from fedsim.federation.transcripts import reader
from fedsim.game import federation
from fedsim.learning.training import pretrained

PARAMETERS = 650


@pytest.fixture
def context(small):
    become_task(1, 1)
    return Context(
        run_id=1,
        node_id=7,
        node_config={"partition-id": 1},
        state=RecordDict(),
        run_config=to_run_config(small()),
    )


def _train(round, role, target_client=-1, **arrays):
    request = Request(round, 0, 2, 5.0, role, record=0, target_client=target_client)
    content = RecordDict({messages.REQUEST: request.to_record()})
    model = np.zeros((2, PARAMETERS), dtype=np.float32)
    content[messages.MODEL] = messages.array_record(parameters=model)
    for name, array in arrays.items():
        content[name] = messages.array_record(array=array)
    return Message(content, 7, "train")


def test_a_node_says_which_partition_it_holds(context):
    reply = client_app.app(Message(RecordDict(), 7, "query.identify"), context)
    assert replies.metric(reply, "partition") == 1


def test_an_ordinary_client_keeps_nothing(context):
    reply = client_app.app(_train(1, Role.CLIENT), context)
    assert messages.only(reply.content.array_records[messages.REPLY]).shape == (2, PARAMETERS)
    assert len(context.state) == 0


def test_the_adversary_answers_as_an_ordinary_client_does(context):
    replies = [
        messages.only(client_app.app(_train(1, role), context).content[messages.REPLY])
        for role in (Role.CLIENT, Role.ADVERSARY)
    ]
    np.testing.assert_array_equal(*replies)


def test_the_adversary_notices_that_its_state_was_lost(context):
    aggregate = np.zeros((2, PARAMETERS), dtype=np.float32)
    with pytest.raises(RuntimeError, match="its Flower state was lost between rounds"):
        client_app.app(_train(2, Role.ADVERSARY, aggregate=aggregate), context)
    client_app.app(_train(1, Role.ADVERSARY), context)
    with pytest.raises(RuntimeError, match="state is of round 1, but the message is of round 3"):
        client_app.app(_train(3, Role.ADVERSARY, aggregate=aggregate), context)


def test_a_new_batch_starts_from_the_prior(context):
    aggregate = np.ones((2, PARAMETERS), dtype=np.float32)
    for round in (1, 2):
        client_app.app(_train(round, Role.ADVERSARY, aggregate=aggregate), context)
    client_app.app(_train(1, Role.ADVERSARY), context)
    memory = messages.arrays_of(context.state.array_records[adversary_node.MEMORY])
    assert memory["ratios"].shape == (2, 0)


def test_a_node_starts_from_its_own_copy_of_the_weights_and_from_no_other_file(
    context, small, tmp_path
):
    theirs, own = tmp_path / "theirs", tmp_path / "own"
    save_file({"1.weight": torch.ones(10, 64), "1.bias": torch.ones(10)}, own)
    agreed = {"model.weights": str(theirs), "model.weights-sha256": pretrained.digest(str(own))}
    context.run_config = to_run_config(small(agreed))
    with pytest.raises(RefusedError, match=r"set weights-path in its node\.toml") as refused:
        client_app.app(_train(1, Role.CLIENT), context)
    assert str(tmp_path) not in str(refused.value)
    # A machine that has files of its own opens none that a message names, were it the right one.
    context.run_config = to_run_config(small(agreed | {"model.weights": str(own)}))
    alone = dict(context.node_config)
    context.node_config |= {"data-path": str(tmp_path), "state-path": str(tmp_path / "state")}
    with pytest.raises(RefusedError, match=r"set weights-path in its node\.toml"):
        client_app.app(_train(1, Role.CLIENT), context)
    context.node_config = alone | {"weights-path": str(own)}
    client_app.app(_train(1, Role.CLIENT), context)
    save_file({"1.weight": torch.zeros(10, 64), "1.bias": torch.ones(10)}, own)
    with pytest.raises(RefusedError, match=r"no copy of model\.weights"):
        client_app.app(_train(1, Role.CLIENT), context)


def test_a_node_refuses_another_schema_than_the_one_that_it_keeps(context, small, tmp_path):
    schema = 'classes = ["a", "b"]\n[columns]\nage = [0, {}]\n'
    run = {"data.name": "own", "data.public-schema": schema.format(90), "run.job": "training"}
    context.run_config = to_run_config(small(run))
    context.node_config["schema-path"] = str(tmp_path / "own.toml")
    with pytest.raises(RefusedError, match=r"names no valid schema; its own log says why"):
        client_app.app(_train(1, Role.CLIENT), context)
    (tmp_path / "own.toml").write_text(schema.format(120))
    with pytest.raises(
        RefusedError, match=re.escape("age.range is [0.0, 90.0] in the run's schema, but [")
    ):
        client_app.app(_train(1, Role.CLIENT), context)


@pytest.mark.parametrize(
    ("role", "agreed", "answers"),
    [
        (Role.TARGET_CLIENT, "", False),
        (Role.TARGET_CLIENT, "challenge", True),
        (Role.CLIENT, "", True),
    ],
)
def test_a_node_answers_only_what_its_client_agreed_to(
    context, small, tmp_path, role, agreed, answers
):
    given = {"privacy.rho-beta": 0.0, "privacy.noise-multiplier": 5.0}
    context.run_config = to_run_config(small(given))
    client = int(federation.load(from_run_config(context.run_config)).client_of[0])
    context.node_config = _agreeing_to(agreed, tmp_path) | {"partition-id": client}
    message = _train(1, role, worlds=np.ones(2, dtype=bool), target_client=client)
    if answers:
        assert messages.REPLY in client_app.app(message, context).content.array_records
    else:
        with pytest.raises(RefusedError, match="did not consent to 'challenge'"):
            client_app.app(message, context)


def test_a_sensitivity_leaves_the_client_only_with_consent_to_instruments(context, small, tmp_path):
    given = {"privacy.rho-beta": 0.0, "privacy.noise-multiplier": 5.0}
    context.run_config = to_run_config(small(given))
    client = int(federation.load(from_run_config(context.run_config)).client_of[0])
    context.node_config = _agreeing_to("challenge", tmp_path) | {"partition-id": client}
    content = _train(1, Role.TARGET_CLIENT, target_client=client).content
    query = Message(content, 7, "query.sensitivity")
    with pytest.raises(RefusedError, match="did not consent to 'oracle'"):
        client_app.app(query, context)
    context.node_config |= _agreeing_to("challenge,oracle", tmp_path)
    reply = client_app.app(query, context)
    assert messages.only(reply.content.array_records[messages.SENSITIVITY]).shape == (2,)
    assert replies.metric(reply, "round") == 1


def _agreeing_to(kinds, folder):
    said = f"central,experiment,{kinds}"
    return {"consent": said, "max-trials": 8, "state-path": str(folder / "state")}


def test_a_node_reads_its_data_where_its_own_config_says_and_downloads_none(
    context, small, tmp_path
):
    context.run_config = to_run_config(small({"data.name": "mnist", "data.download": True}))
    context.node_config |= _agreeing_to("", tmp_path) | {"data-path": str(tmp_path / "own")}
    with pytest.raises(InputError, match=re.escape(f"there is no folder '{tmp_path / 'own'}'")):
        client_app.app(_train(1, Role.CLIENT), context)


def test_an_adversary_with_files_finds_what_one_with_flowers_state_finds(context, small, tmp_path):
    given = {"privacy.rho-beta": 0.0, "privacy.noise-multiplier": 5.0}
    context.run_config = to_run_config(small(given))
    client_of = federation.load(from_run_config(context.run_config)).client_of
    own = next(int(client) for client in client_of if client != client_of[0])
    aggregate = np.full((2, PARAMETERS), 0.1, dtype=np.float32)
    found = []
    for node_config in ({}, _agreeing_to("adversary", tmp_path)):
        context.node_config = {"partition-id": own, **node_config}
        context.state = RecordDict()
        for round in (1, 2, 3):
            client_app.app(_train(round, Role.ADVERSARY, aggregate=aggregate), context)
            if node_config:
                context.state = RecordDict()  # as after a restart of the SuperNode
        final = Message(_train(4, Role.ADVERSARY, aggregate=aggregate).content, 7, "evaluate")
        client_app.app(final, context)
        reply = client_app.app(Message(RecordDict(), 7, "query.findings"), context)
        found.append(messages.arrays_of(reply.content.array_records[adversary_node.MEMORY]))
    assert found[0]["ratios"].shape == (2, 3)
    assert found[0].keys() == found[1].keys()
    for name, array in found[0].items():
        np.testing.assert_array_equal(found[1][name], array)
    # Nothing is left but what it answered.
    left = {path.name for path in (tmp_path / "state").iterdir()}
    assert left == {client_ledger.FILE, "ledger.lock"}


AN_AUDITORS_ROUND = """
import sys

sys.modules.update(dict.fromkeys(["torch", "scipy", "sklearn", "dp_accounting"]))

import numpy as np
from flwr.app import Context, Message, MessageType, RecordDict

from fedsim import client_app
from fedsim.configuration import Config, to_run_config
from fedsim.federation.protocol import messages, replies
from fedsim.federation.protocol.flower_private import become_task

become_task(1, 1)
request = messages.Request(1, 0, 2, 1.0, role=messages.Role.AUDITOR).to_record()
model = messages.array_record(parameters=np.zeros((2, 3)))
context = Context(
    run_id=1,
    node_id=5,
    node_config={"role": "auditor", "transcript-path": sys.argv[1]},
    state=RecordDict(),
    run_config=to_run_config(Config()),
)
for kind, content in (
    ("query.identify", RecordDict()),
    (MessageType.TRAIN, RecordDict({messages.REQUEST: request, messages.MODEL: model})),
):
    reply = client_app.app(Message(content, 5, kind), context)
    assert replies.metric(reply, "partition") == -1
"""


def test_an_auditors_node_starts_without_what_computes(tmp_path):
    # Flower starts a process for every message, on cores that clients may need.
    command = [sys.executable, "-c", AN_AUDITORS_ROUND, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    (recording,) = tmp_path.glob("*.fedt")
    assert len(reader.read_transcript(recording).rounds) == 1
