"""A deployed node answers with its own fedsim: code that a server submits stays packed."""

import inspect
import os
from dataclasses import replace

import pytest
from flwr.app import Context, Message, RecordDict

import fedsim
from adversaries.errors import InputError
from fedsim import client_app
from fedsim.common import randomness
from fedsim.deployment import own_app
from fedsim.deployment.own_app import Question
from fedsim.federation.protocol import flower_private
from fedsim.federation.protocol.messages import array_record
from fedsim.federation.runtimes import flower_services

NAME = f"fedsim/{fedsim.DISTRIBUTION}"


def _run(name=NAME, version=fedsim.__version__):
    return replace(flower_private.empty_run(3), fab_id=name, fab_version=version)


def _answered(monkeypatch):
    """Return noise of a message's process, which leads a process group."""

    def app(message, context):
        noise = randomness.gaussian_noise(None, range(1), 1, 0, 4)
        context.node_config["group"] = os.getpgid(0)
        return Message(RecordDict({"noise": array_record(noise=noise)}), reply_to=message)

    monkeypatch.setattr(own_app, "own_app", lambda _: app)
    flower_private.become_task(3, 1)
    message = Message(RecordDict(), 7, "train")
    flower_private.assign_message_id(message)
    answer = own_app.begin(Question(message, Context(3, 7, {}, RecordDict(), {}), _run()))
    answer.process.join(60)
    assert answer.process.exitcode == 0
    reply, context = answer.read()
    answer.file.close()
    assert context.node_config["group"] == answer.process.pid
    return reply.content.array_records["noise"]["noise"].numpy().ravel().tolist()


def test_forked_processes_draw_other_noise(monkeypatch):
    assert _answered(monkeypatch) != _answered(monkeypatch)


def test_no_program_of_the_node_unpacks_an_app():
    # These functions of Flower do, by the names that its own program calls.
    for module in (own_app, flower_services):
        source = inspect.getsource(module)
        assert not any(name in source for name in ("install_from_fab", "get_load_client_app_fn"))


def test_a_node_answers_with_its_own_app():
    assert own_app.own_app(_run()) is client_app.app


@pytest.mark.parametrize(
    ("name", "version", "said"),
    [
        (NAME, "9.9", rf"this node has fedsim {fedsim.__version__}, but the server has 9\.9;"),
        ("fedsim/echo", fedsim.__version__, "answers only for fedsim-identifiability, .*echo"),
    ],
)
def test_a_node_refuses_another_app_or_version(name, version, said):
    with pytest.raises(InputError, match=said):
        own_app.own_app(_run(name, version))
