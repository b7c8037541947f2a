"""The process that answers one message at a deployed node, with the fedsim of the node's machine.

Flower's program unpacks the app that the server submits, and runs it. A hostile server would submit
an app without the checks of this node. Here the app's files stay packed: the process reads only the
app's name and version, and the SuperNode the defaults of its run config. The process is forked from
one that has imported fedsim, so that no message waits for imports.
"""

import importlib
import logging
import multiprocessing
import os
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from multiprocessing.process import BaseProcess

import numpy as np
from flwr.clientapp import ClientApp
from flwr.supernode.runtime import run_clientapp as flower

import fedsim
from adversaries.errors import InputError
from fedsim import client_app

CLIENTS = (
    "fedsim.federation.client.training_node",
    "fedsim.federation.client.adversary_node",
    "fedsim.federation.client.measures_node",
    "fedsim.federation.protocol.secure_aggregation",
    "scipy.special",
    "scipy.fft",
)
"""Modules that `client_app` imports for a client's messages, and what these load at first use."""


def own_app(name: str, number: str, digest: str) -> ClientApp:
    """Return this machine's ClientApp, for a run of the same app and version.

    Raises InputError for another app or version.
    """
    if name.partition("/")[2] != fedsim.DISTRIBUTION:
        raise InputError(
            f"this node answers only for {fedsim.DISTRIBUTION}, but the server runs {name}"
        )
    if number != fedsim.__version__:
        raise InputError(
            f"this node has fedsim {fedsim.__version__}, but the server has {number}; install the "
            "server's version on the node's machine (install.sh of fedsim deploy upgrade) and "
            "restart it"
        )
    return client_app.app


INSTEAD: dict[str, Callable[..., object]] = {
    "install_from_fab": lambda *_, **__: None,
    "get_load_client_app_fn": lambda *_, **__: own_app,
}
"""By name, what stands in for Flower's functions that unpack the server's app and that load it."""

if not INSTEAD.keys() <= {*flower.run_clientapp.__code__.co_names}:
    raise ImportError(
        f"flwr {version('flwr')} unpacks the server's app by functions that fedsim does not know; "
        "install the version that pip install fedsim-identifiability chooses"
    )


def import_ahead() -> None:
    """Import what a client's messages need, which takes seconds, before `begin` forks."""
    for module in CLIENTS:
        importlib.import_module(module)


def begin(address: str, trusted: bytes, token: str, held: int) -> BaseProcess:
    """Start and return the process of a task, which ends with this process.

    It leads its own process group. A new session would undo the node's NICE, since Linux may share
    a processor among sessions first.

    Args:
        address: of the SuperNode's Runtime API.
        trusted: certificate of that API.
        token: of the task.
        held: a file descriptor that the process closes, because it holds a lock of this process.
    """
    # A daemon, so that this process does not wait for it when it ends.
    process = multiprocessing.get_context("fork").Process(
        target=_answer, args=(address, trusted, token, held, os.getpid()), daemon=True
    )
    process.start()
    assert process.pid is not None
    with suppress(OSError):  # it does the same; here, so that it can be killed from now on
        os.setpgid(process.pid, process.pid)
    return process


def _answer(address: str, trusted: bytes, token: str, held: int, parent: int) -> None:
    os.setpgid(0, 0)
    os.close(held)
    multiprocessing.current_process().daemon = False  # it may have child processes itself
    np.random.seed()  # noqa: NPY002  (a client's own code may use it, and forks are alike)
    # Flower's lines go to this node's log once, in its form.
    log = logging.getLogger("flwr")
    log.handlers.clear()
    log.setLevel(logging.INFO)
    for name, stand_in in INSTEAD.items():
        setattr(flower, name, stand_in)
    flower.run_clientapp(
        address,
        token,
        insecure=False,
        certificates=trusted,
        parent_pid=parent,
        runtime_dependency_install=False,
    )
