"""Flower's SuperNode, with fixes: it never stays alive without its server, or waits in vain.

- Flower makes the task of a message before it fetches the message's content. If the run has ended
  by then, Flower drops the message but keeps the task, and its process waits up to two hours. Here
  the task is dropped, too. A killed server, or a stopped run, leaves such messages behind.
- A server counts a killed node as connected for a minute, and refuses its next start. This
  SuperNode tries again until then.
- Flower's SuperNode gives up after an error of the server, or of TLS, but its process lives on. Its
  heartbeats may end without notice. This SuperNode ends, and says why, so that its parent starts
  another.

    python -m fedsim.federation.runtimes.mended_supernode OPTIONS

OPTIONS are those of `flower-supernode`.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import NoReturn, ParamSpec, TypeVar

import httpx

from fedsim.federation.runtimes.flower_services import (
    LEASE,
    ActivateNodeRequest,
    ActivateNodeResponse,
    FleetHttpClient,
    RunNotRunningException,
    SendNodeHeartbeatRequest,
    SendNodeHeartbeatResponse,
    fleet_http_connection,
    flower_supernode,
    refuses_activation,
    start_client_internal,
)

log = logging.getLogger("flwr")

P = ParamSpec("P")
T = TypeVar("T")

SILENCE = 90.0
"""Seconds without an answer to a heartbeat after which a SuperNode ends. Its server has counted it
as disconnected since LEASE, and answers in its name that it is unavailable."""

RETRY_INTERVAL = 5.0
"""Seconds between two tries to connect while an earlier start counts as connected."""


class FleetClient(FleetHttpClient):
    """The SuperNode's requests to its server.

    Attributes:
        quiet: seconds since the server answered a heartbeat, as `watch` counts them.
    """

    quiet = 0.0

    def ActivateNode(self, request: ActivateNodeRequest) -> ActivateNodeResponse:  # noqa: N802
        """Connect, once an earlier start of this node no longer counts as connected."""
        waited = 0.0
        while True:
            try:
                answer = super().ActivateNode(request)
            except httpx.HTTPStatusError as error:
                if waited > LEASE + RETRY_INTERVAL or not refuses_activation(error):
                    raise
                log.warning(
                    "the server does not know the key of this node, or still counts an earlier "
                    "start as connected; this SuperNode tries again for %.0f s",
                    max(0.0, LEASE - waited),
                )
                waited += RETRY_INTERVAL
                time.sleep(RETRY_INTERVAL)
            else:
                self.quiet = 0.0
                threading.Thread(target=self.watch, args=(SILENCE, end), daemon=True).start()
                return answer

    def SendNodeHeartbeat(self, request: SendNodeHeartbeatRequest) -> SendNodeHeartbeatResponse:  # noqa: N802
        answer = super().SendNodeHeartbeat(request)
        if answer.success:
            self.quiet = 0.0
        return answer

    def watch(self, silence: float, end: Callable[[str], object], interval: float = 1.0) -> None:
        """End the process once the server has answered no heartbeat for some seconds.

        It counts its own intervals, so that a machine that stood still has time for a heartbeat.
        """
        while self.quiet < silence:
            time.sleep(interval)
            self.quiet += interval
        end(f"the server has answered no heartbeat of this node for {silence:.0f} s")


def end(why: str) -> NoReturn:
    """End the process with status 1, also where other threads live."""
    log.error("%s; this SuperNode ends", why)
    os._exit(1)


def mend() -> None:
    """Make Flower's SuperNode use `FleetClient`, and drop the task of an ended run's message."""
    fetch = start_client_internal._pull_and_store_message

    @wraps(fetch)
    def mended(**arguments: object) -> int | None:
        for name in ("pull_object", "confirm_message_received"):
            arguments[name] = _as_error(arguments[name])  # type: ignore[arg-type]
        return fetch(**arguments)  # type: ignore[arg-type]

    start_client_internal._pull_and_store_message = mended  # type: ignore[assignment]
    fleet_http_connection.FleetHttpClient = FleetClient  # type: ignore[attr-defined]


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
    os._exit(1)  # its log says why; a thread of its Runtime API would keep it alive
