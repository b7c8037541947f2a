"""Flower's SuperNode, with a fix: it drops the task of a message if its run ends during the fetch.

Flower makes the task of a message before it fetches the message's content. If the run has ended by
then, Flower drops the message but keeps the task. The process of that task waits up to two hours
for the content, and a node with one process at a time answers no other run. A server that was
killed and starts again, or a stopped run, leaves such messages behind.

    python -m fedsim.federation.runtimes.mended_supernode OPTIONS

OPTIONS are those of `flower-supernode`.
"""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from flwr.supercore.run import RunNotRunningException
from flwr.supernode import start_client_internal
from flwr.supernode.cli import flower_supernode

P = ParamSpec("P")
T = TypeVar("T")


def mend() -> None:
    """Make Flower's SuperNode drop the task of a message whose run has ended."""
    fetch = start_client_internal._pull_and_store_message

    @wraps(fetch)
    def mended(**arguments: object) -> int | None:
        for name in ("pull_object", "confirm_message_received"):
            arguments[name] = _as_error(arguments[name])  # type: ignore[arg-type]
        return fetch(**arguments)  # type: ignore[arg-type]

    start_client_internal._pull_and_store_message = mended  # type: ignore[assignment]


def _as_error(call: Callable[P, T]) -> Callable[P, T]:
    """Return a request that raises an ordinary error where the run has ended.

    Flower drops the message and its task on an `Exception`, but RunNotRunningException is not one.
    """

    @wraps(call)
    def request(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return call(*arguments, **options)
        except RunNotRunningException:
            raise RuntimeError("its run has ended") from None

    return request


if __name__ == "__main__":
    mend()
    flower_supernode()
