"""A node answers each message: by its process, or by an error at once."""

import fcntl
import os
import signal
import time

import pytest
from flwr.app import Context, Message, RecordDict

from adversaries.errors import InputError
from fedsim.configuration.federation import FederationConfig
from fedsim.deployment import kit, own_app, supernode
from fedsim.deployment.own_app import Question
from fedsim.deployment.supernode import Answering
from fedsim.federation.protocol import flower_private


class Runtime:
    """A SuperNode with one task, and what it was answered."""

    def __init__(self, claimed=True):
        self.claimed = claimed
        self.kept = 0
        self.answers: list[Message] = []

    def __call__(self, *_):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def task(self):
        return "token"

    def message(self, token):
        assert token == "token"
        question = _question()
        return question.message, question.context, question.run

    def keep(self, token):
        assert token == "token"
        self.kept += 1
        return self.claimed

    def answer(self, token, reply, context):
        assert token == "token"
        self.answers.append(reply)


def _question():
    flower_private.become_task(3, 1)
    message = Message(RecordDict(), 7, "train")
    flower_private.assign_message_id(message)
    return Question(message, Context(3, 7, {}, RecordDict(), {}), flower_private.empty_run(3))


@pytest.fixture
def asked(monkeypatch):
    """Return a function that asks this node a message, which an app answers."""

    def ask(runtime, app, deadline=60):
        monkeypatch.setattr(own_app, "own_app", lambda _: app)
        one = Answering(runtime, "token", deadline)
        one._question.exception(30)  # the message is there
        return one

    return ask


def _end(one, runtime):
    deadline = time.monotonic() + 30
    while one.goes_on(runtime):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _reply(message, _):
    return Message(RecordDict(), reply_to=message)


def _sleep(message, _):
    time.sleep(600)
    raise AssertionError


def _die(message, _):
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def test_an_answer_and_its_state_come_from_the_process(tmp_path, monkeypatch, asked):
    def app(message, context):
        context.node_config["own process"] = os.getpid()
        return _reply(message, context)

    runtime, contexts = Runtime(), []
    monkeypatch.setattr(runtime, "answer", lambda *said: contexts.append(said[2]))
    _end(asked(runtime, app), runtime)
    (context,) = contexts
    assert context.node_config["own process"] != os.getpid()


def _leave(message, _):
    os._exit(0)


@pytest.mark.parametrize(
    ("app", "how"),
    [(_die, "was killed by signal 9 (SIGKILL)"), (_leave, "ended with status 0")],
)
def test_a_message_whose_process_ends_is_answered_with_an_error_at_once(app, how, asked):
    runtime, begun = Runtime(), time.monotonic()
    _end(asked(runtime, app), runtime)
    assert time.monotonic() - begun < 15
    (reply,) = runtime.answers
    assert reply.error.code in flower_private.GONE
    assert how in reply.error.reason


def test_an_error_of_the_app_leaves_in_flowers_form(asked):
    def refuse(*_):
        raise InputError("too many rounds")

    runtime = Runtime()
    _end(asked(runtime, refuse), runtime)
    (reply,) = runtime.answers
    assert reply.error.reason == "<class 'adversaries.errors.InputError'>:<'too many rounds'>"


def _is_free(path):
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@pytest.mark.parametrize("ends_by", ["its deadline", "a kill", "its answer"])
def test_a_process_takes_along_what_it_forked(tmp_path, asked, ends_by):
    lock = tmp_path / "lock"

    def forks(message, context):
        # The child inherits the open file, and the lock with it, and ignores its parent's end.
        held = lock.open("w")
        fcntl.flock(held, fcntl.LOCK_EX)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            time.sleep(600)
        if ends_by == "a kill":
            _die(message, context)
        return _sleep(message, context) if ends_by == "its deadline" else _reply(message, context)

    runtime = Runtime()
    _end(asked(runtime, forks, 0.5 if ends_by == "its deadline" else 60), runtime)
    deadline = time.monotonic() + 10
    while not _is_free(lock):
        assert time.monotonic() < deadline, "a forked child lives and holds the lock"
        time.sleep(0.02)
    (reply,) = runtime.answers
    assert reply.has_error() is (ends_by != "its answer")
    assert ("DEADLINE" in reply.error.reason if reply.has_error() else False) is (
        ends_by == "its deadline"
    )


def test_a_message_that_was_given_up_is_not_answered(asked):
    runtime = Runtime(claimed=False)
    one = asked(runtime, _sleep)
    assert one._look(time.monotonic()) is None  # its process begins
    _end(one, runtime)
    assert (runtime.kept, runtime.answers) == (1, [])
    assert one._answer is not None
    one._answer.process.join(10)
    assert one._answer.process.exitcode == -signal.SIGKILL


class Supervised:
    """A SuperNode that lives for some looks, and why it was to start again."""

    def __init__(self, looks):
        self._looks = iter(range(looks))
        self.restarted: list[str] = []

    def watch(self):
        return not self.restarted and next(self._looks, None) is not None

    def restart(self, _, why):
        self.restarted.append(why)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The folder of a node, whose requests go to `Runtime`."""
    kit.write_file(tmp_path / "state" / "runtime" / "ca", b"")
    kit.write_file(tmp_path / "state" / "runtime" / "secret", b"")
    monkeypatch.setattr(supernode, "pause", lambda *_: 0.01)
    return tmp_path


def test_a_message_is_not_begun_twice_and_ends_with_its_supernode(place, monkeypatch):
    started = []
    begin = own_app.begin

    def begun(question):
        started.append(begin(question))
        return started[-1]

    monkeypatch.setattr(supernode, "RuntimeApi", Runtime())
    monkeypatch.setattr(own_app, "own_app", lambda _: _sleep)
    monkeypatch.setattr(own_app, "begin", begun)
    supernode._answer_all(place, Supervised(200), "", 60)
    (answer,) = started
    answer.process.join(10)
    assert answer.process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("claimed", [True, False])
def test_a_supernode_that_passes_no_message_starts_again(place, monkeypatch, claimed):
    runtime, service = Runtime(claimed), Supervised(200)

    def lost(_):
        raise RuntimeError("No messages received from Runtime API")

    monkeypatch.setattr(runtime, "message", lost)
    monkeypatch.setattr(supernode, "RuntimeApi", runtime)
    supernode._answer_all(place, service, "", 60)
    if claimed:
        (why,) = service.restarted
        assert why.startswith("the SuperNode does not pass a message (RuntimeError: No messages")
    else:  # its run has ended, and the SuperNode waits for no answer
        assert not service.restarted


@pytest.mark.parametrize("value", ["soon", "0", "-3", "inf", "nan", ""])
def test_a_deadline_that_is_none_is_refused(tmp_path, value):
    (tmp_path / "settings.env").write_text(f"DEADLINE={value}\n")
    with pytest.raises(InputError, match=r"DEADLINE is .*give seconds"):
        kit.deadline(tmp_path)


def test_a_node_of_an_older_kit_has_the_deadline_of_a_run(tmp_path):
    (tmp_path / "settings.env").write_text("NODE_PORT=9094\n")
    assert kit.deadline(tmp_path) == FederationConfig().timeout
