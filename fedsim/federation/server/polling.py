"""A Grid with a shorter wait for replies than the three seconds of Flower's own."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flwr.app import Error, Message
from flwr.serverapp import Grid

from fedsim.common.waiting import pause
from fedsim.federation.protocol.flower_private import NODE_UNAVAILABLE

INTERVAL = 0.2
"""Seconds between the first requests for missing replies. Later requests are rarer."""

SLOW = 20.0
"""Seconds after which missing replies are reported; the time doubles with each report."""


def taken(grid: Grid, sent: Sequence[Message]) -> dict[str, Message]:
    """Send messages, and return those that Flower took, by their ids.

    Of a message to a node that is gone, Flower's deployment returns the id "", and its simulation
    none; of messages that are too large together, it returns no ids.
    """
    ids = {*grid.push_messages(sent)} if sent else set()
    known = {message.metadata.message_id: message for message in sent}
    return {id: message for id, message in known.items() if id in ids}


class PollingGrid:
    """A Flower Grid with a shorter wait for replies.

    report_busy: receives the nodes that have not replied, and the seconds so far. When the wait
        is over, it receives an empty set once more.
    """

    def __init__(
        self,
        grid: Grid,
        interval: float = INTERVAL,
        report_busy: Callable[[set[int], float], None] = lambda *_: None,
    ) -> None:
        self._grid, self._interval, self._report_busy = grid, interval, report_busy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages; return replies within seconds, or errors where the node is gone."""
        sent = list(messages)
        requests = taken(self._grid, sent)
        waiting = {*requests}
        begun, report_at = time.monotonic(), SLOW
        replies = [
            Message(Error(NODE_UNAVAILABLE, "its node is not connected"), reply_to=request)
            for request in sent
            if request.metadata.message_id not in requests
        ]
        while waiting:
            for reply in self._grid.pull_messages(sorted(waiting)):
                id = reply.metadata.reply_to_message_id
                waiting.discard(id)
                # Flower reports a dead node with the server as the sender.
                dead = reply.has_error() and id in requests
                replies.append(Message(reply.error, reply_to=requests[id]) if dead else reply)
            waited = time.monotonic() - begun
            if not waiting or (timeout is not None and waited > timeout):
                break
            if waited > report_at:
                report_at = 2 * waited
                self._report_busy({requests[id].metadata.dst_node_id for id in waiting}, waited)
            time.sleep(pause(waited, self._interval))
        if report_at > SLOW:
            self._report_busy(set(), time.monotonic() - begun)
        return replies
