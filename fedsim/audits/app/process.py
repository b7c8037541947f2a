"""An app in a process of its own, and what may be asked of it there.

The audit asks for one run after another and gets measurements back; the verdict is worked out here,
from them.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from fedsim.audits.app.measurement import Execution, Script
from fedsim.audits.sandbox.channel import Channel, Reply, started
from fedsim.config import Scalar


@dataclass(frozen=True)
class Order:
    """Which app is to be loaded, and how; the first message to the process.

    Attributes:
        directory: of the app's pyproject.toml.
        clients: nodes of the federation that the app is run in.
        overrides: of the app's run configuration, by dotted key.
    """

    directory: str
    clients: int
    overrides: dict[str, Scalar]


@dataclass(frozen=True)
class Request:
    """One run, asked for after an order was answered.

    Attributes:
        seed: of the global generators, set before the run.
        script: what clients send instead of training; None for an honest run.
    """

    seed: int
    script: Script | None


@dataclass(frozen=True)
class Answer(Reply):
    """What the process says to an order or a request; one of the fields is not None.

    Attributes:
        name: the app's, in answer to an order.
        execution: what a run showed, in answer to a request.
    """

    name: str | None = None
    execution: Execution | None = None


ORDER, REQUEST, ANSWER = TypeAdapter(Order), TypeAdapter(Request), TypeAdapter(Answer)


class AppProcess:
    """An app that runs in another process. Made by `opened`."""

    def __init__(self, order: Order, channel: Channel) -> None:
        self._channel = channel
        self.clients = order.clients
        self.name = channel.ask(order, ANSWER).name or ""

    def execute(self, seed: int, script: Script | None = None) -> Execution:
        """Return what one run of the app in its process showed.

        Args:
            seed: of the global generators there, Python's, NumPy's and PyTorch's.
            script: what clients send instead of training; None for an honest run, one of which must
                come before a scripted one.

        Raises:
            AppFailedError: the app fails, its process ends, or it is silent past the time limit.
        """
        answer = self._channel.ask(Request(seed, script), ANSWER)
        if answer.execution is None:
            raise self._channel.no_measurement()
        return answer.execution


@contextlib.contextmanager
def opened(
    directory: Path,
    clients: int,
    overrides: Mapping[str, Scalar],
    time_limit: float,
    show: Callable[[str], None],
) -> Iterator[AppProcess]:
    """Load the app in a directory, in a process that ends with the block, and yield it.

    Args:
        directory: of the app's pyproject.toml.
        clients: nodes of the federation that the app is run in.
        overrides: of the app's run configuration, by dotted key.
        time_limit: in seconds, of loading and of every run, each by itself.
        show: called, in a thread, with every line that the app prints.

    Raises:
        InputError: as `loading.loaded`.
        AppFailedError: loading takes too long, or ends the process.
    """
    with started("fedsim.audits.app.execution", "app", time_limit, show) as channel:
        yield AppProcess(Order(str(directory), clients, dict(overrides)), channel)
