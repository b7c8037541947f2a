"""The checks of a round's replies: one complete and finite reply of each client, to this round."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from flwr.app import Message

from fedsim.common.foreign_text import brief
from fedsim.federation.protocol import messages

MOST_SAID = 500
"""Letters that are kept of a node's error, or of the fault in its reply."""

QUOTED = re.compile(
    r"(?:<class '(?:\w+\.)*(?P<raised>\w+)'>:<'|(?P<named>\w+): )?(?P<text>.*?)(?:'>)?"
)
"""A node's error as Flower words it, which quotes its text, or as a runtime in one process does."""

SENTENCES = {"InputError", "RefusedError", "SecureAggregationError"}
"""Errors whose text is a whole sentence for the reader."""


@dataclass(frozen=True)
class Replies:
    """The replies of a round: valid ones, sorted, and faults, by partition; and unasked ones."""

    accepted: dict[int, Message]
    failed: dict[int, str]
    missing: tuple[int, ...]
    unsolicited: tuple[str, ...]

    @property
    def failures(self) -> dict[int, str]:
        """A sentence for each client that failed; those with one reason share a sentence."""
        alike: dict[str, list[int]] = {}
        for client, why in self.failed.items():
            alike.setdefault(why, []).append(client)
        return {
            client: f"client{'s' * (len(clients) > 1)} {', '.join(map(str, clients))} failed: {why}"
            for why, clients in alike.items()
            for client in clients
        }


def sort_out(
    replies: Iterable[Message],
    nodes: Mapping[int, int],
    asked: Collection[int],
    inspect: Callable[[Message], None] = lambda _: None,
) -> Replies:
    """Return the replies of the requested partitions, in groups."""
    replies = list(replies)
    partition_of = {node: partition for partition, node in nodes.items()}
    answers = Counter(reply.metadata.src_node_id for reply in replies)
    accepted: dict[int, Message] = {}
    failed: dict[int, str] = {}
    unsolicited = []
    for reply in replies:
        node = reply.metadata.src_node_id
        partition = partition_of.get(node)
        if partition is None or partition not in asked:
            # Flower attributes some failures to the server's own node.
            unsolicited.append(
                f"client {'?' if partition is None else partition} failed: {failure(reply)}"
                if reply.has_error()
                else f"node {node} answered without being asked"
            )
        elif answers[node] > 1:
            failed[partition] = f"it answered {answers[node]} times"
        elif reply.has_error():
            failed[partition] = failure(reply)
        else:
            try:
                claimed = metric(reply, "partition")
                if claimed != partition:
                    raise ValueError(f"it claims partition {claimed:g}")
                inspect(reply)
                accepted[partition] = reply
            except (ValueError, KeyError, TypeError) as error:
                failed[partition] = brief(f"invalid reply: {error}", MOST_SAID)
    missing = sorted(set(asked) - set(accepted) - set(failed))
    return Replies(
        dict(sorted(accepted.items())),
        dict(sorted(failed.items())),
        tuple(missing),
        tuple(unsolicited),
    )


def metric(reply: Message, name: str) -> float:
    """Return one scalar of a reply's metrics. Raises KeyError or TypeError without one."""
    return float(messages.metric_records(reply.content)[messages.METRICS][name])  # type: ignore[arg-type]


def failure(reply: Message) -> str:
    """Return the error of a node, without Ray's traceback, in one line of limited length.

    Flower's quotes are taken off, and so is the name of an error that is a whole sentence.
    """
    last = str(reply.error.reason).strip().rpartition("\n")[2]
    quoted = QUOTED.fullmatch(last)
    if quoted is None:
        return brief(last, MOST_SAID)
    name = quoted["raised"] or quoted["named"]
    text = quoted["text"] if name in SENTENCES or not name else f"{name}: {quoted['text']}"
    return brief(text, MOST_SAID)


def check_round(reply: Message, round: int) -> None:
    """Raise ValueError if a reply belongs to another round."""
    claimed = metric(reply, "round")
    if claimed != round:
        raise ValueError(f"it belongs to round {claimed:g}")
