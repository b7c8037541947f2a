"""The process that answers one message at a deployed node, with the fedsim of the node's machine.

Flower's program unpacks the app that the server submits, and runs it. A hostile server would submit
an app without the checks of this node. Here the app's files stay packed: the node reads only the
app's name and version, and the SuperNode the defaults of its run config. The process is forked from
one that has imported fedsim and has fetched the message, so that no message waits for imports, and
a process that dies takes nothing along.
"""

import importlib
import logging
import multiprocessing
import os
import pickle
import signal
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import BinaryIO

import numpy as np
from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp

import fedsim
from adversaries.errors import InputError
from fedsim import client_app
from fedsim.common.parent import end_with_parent
from fedsim.federation.protocol.flower_private import ErrorCode, Run

log = logging.getLogger(__name__)

CLIENTS = (
    "fedsim.federation.client.training_node",
    "fedsim.federation.client.adversary_node",
    "fedsim.federation.protocol.secure_aggregation",
    "scipy.special",
    "scipy.fft",
)
"""Modules that `client_app` imports for a client's messages, and what these load at first use."""


@dataclass(frozen=True)
class Question:
    """A message to this node, with the context and the run that it belongs to."""

    message: Message
    context: Context
    run: Run

    def failed(self, reason: str) -> Message:
        """Return the reply that says that no process answered."""
        return Message(Error(ErrorCode.CLIENT_APP_CRASHED, reason), reply_to=self.message)


@dataclass(frozen=True)
class Answer:
    """A process that answers, and the file in memory into which it writes its answer."""

    process: BaseProcess
    file: BinaryIO

    def read(self) -> tuple[Message, Context]:
        """Return the reply and the context of a process that ended with status 0."""
        self.file.seek(0)
        reply, context = pickle.load(self.file)
        return reply, context


def own_app(run: Run) -> ClientApp:
    """Return this machine's ClientApp, for a run of the same app and version.

    Raises InputError for another app or version.
    """
    if run.fab_id.partition("/")[2] != fedsim.DISTRIBUTION:
        raise InputError(
            f"this node answers only for {fedsim.DISTRIBUTION}, but the server runs {run.fab_id}"
        )
    if run.fab_version != fedsim.__version__:
        raise InputError(
            f"this node has fedsim {fedsim.__version__}, but the server has {run.fab_version}; "
            "install the server's version on the node's machine, and restart the node"
        )
    return client_app.app


def import_ahead() -> None:
    """Import what a client's messages need, which takes seconds, before `begin` forks."""
    for module in CLIENTS:
        importlib.import_module(module)


def begin(question: Question) -> Answer:
    """Start the process that answers a message. It ends with this process.

    It leads its own process group. A new session would undo the node's NICE, since Linux may share
    a processor among sessions first.
    """
    file = os.fdopen(os.memfd_create("answer"), "w+b")
    # A daemon, so that this process does not wait for it when it ends.
    process = multiprocessing.get_context("fork").Process(
        target=_answer, args=(question, file), daemon=True
    )
    process.start()
    assert process.pid is not None
    with suppress(OSError):  # it does the same; here, so that it can be killed from now on
        os.setpgid(process.pid, process.pid)
    return Answer(process, file)


def _answer(question: Question, file: BinaryIO) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent(signal.SIGKILL)
    os.setpgid(0, 0)
    multiprocessing.current_process().daemon = False  # it may have child processes itself
    np.random.seed()  # noqa: NPY002  (a client's own code may use it, and forks are alike)
    try:
        reply = own_app(question.run)(question.message, question.context)
    except Exception as error:  # in Flower's form, as a simulation's client answers
        log.exception("this node answers with an error")
        reason = f"{type(error)}:<'{error}'>"
        code = ErrorCode.CLIENT_APP_RAISED_EXCEPTION
        reply = Message(Error(code, reason), reply_to=question.message)
    pickle.dump((reply, question.context), file)
    file.flush()
    os._exit(0)  # it waits for no process that it started
