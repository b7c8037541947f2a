"""Which replies of a round count: one of every owner that was asked, to this round, whole, finite.

A false reply must not become part of the model: what is wrong with it is said by the owner's name,
and whether the round goes on without that owner is for the strategy to decide.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from flwr.app import ArrayRecord, Message

from fedsim import messages


@dataclass(frozen=True)
class Replies:
    """The replies of a round, sorted out.

    accepted: by partition, in its order; failed: what was wrong, by partition; missing: partitions
    that did not answer; strangers: what is wrong with answers that are nobody's.
    """

    accepted: dict[int, Message]
    failed: dict[int, str]
    missing: tuple[int, ...]
    strangers: tuple[str, ...]


def sort_out(
    replies: Iterable[Message],
    nodes: Mapping[int, int],
    asked: Collection[int],
    inspect: Callable[[Message], None] = lambda _: None,
) -> Replies:
    """Sort the replies of the `asked` partitions; nodes: the Flower node of each partition.

    inspect: raises ValueError, KeyError or TypeError for a reply that is not what was asked for.
    """
    replies = list(replies)
    partition_of = {node: partition for partition, node in nodes.items()}
    answers = Counter(reply.metadata.src_node_id for reply in replies)
    accepted: dict[int, Message] = {}
    failed: dict[int, str] = {}
    strangers = []
    for reply in replies:
        node = reply.metadata.src_node_id
        partition = partition_of.get(node)
        if partition is None or partition not in asked:
            # Flower attributes some failures to the server's own node.
            strangers.append(
                f"owner {'?' if partition is None else partition} failed: {reply.error.reason}"
                if reply.has_error()
                else f"node {node} answered, which was not asked"
            )
        elif answers[node] > 1:
            failed[partition] = f"it answered {answers[node]} times"
        elif reply.has_error():
            failed[partition] = str(reply.error.reason)
        else:
            try:
                _check_partition(reply, partition)
                inspect(reply)
                accepted[partition] = reply
            except (ValueError, KeyError, TypeError) as error:
                failed[partition] = f"its reply is false: {error}"
    missing = sorted(set(asked) - set(accepted) - set(failed))
    return Replies(
        dict(sorted(accepted.items())),
        dict(sorted(failed.items())),
        tuple(missing),
        tuple(strangers),
    )


def check_round(reply: Message, round: int) -> None:
    """Raise ValueError for a reply to another round."""
    found = messages.metric(reply, "round")
    if found != round:
        raise ValueError(f"it belongs to round {found:g}")


def check_array(
    reply: Message, name: str, shapes: Collection[tuple[int, ...]], dtype: type
) -> None:
    """Raise ValueError unless a record's one array is finite, of a type and one of the shapes."""
    record = reply.content.array_records.get(name)
    if record is None or len(record) != 1:
        raise ValueError(f"it has no '{name}' of one array")
    (array,) = record.values()
    # What the array says of itself, before its bytes are believed to be that much.
    if tuple(array.shape) not in shapes or np.dtype(array.dtype) != np.dtype(dtype):
        raise ValueError(
            f"its '{name}' is {array.dtype} {list(array.shape)}, not {np.dtype(dtype)} "
            f"{' or '.join(str(list(shape)) for shape in shapes)}"
        )
    _check_finite(record, name)


def check_measurement(reply: Message, trials: int) -> None:
    """Raise ValueError unless every array that an auditor is handed is finite, with T rows.

    Distances and the candidates' membership have rows of their own number.
    """
    for name in (messages.MEASUREMENT, messages.CONFIDED, messages.DISTANCES):
        if (record := reply.content.array_records.get(name)) is None:
            continue
        rows = {tuple(a.shape)[:1] for key, a in record.items() if key != "membership"}
        if name != messages.DISTANCES and not rows <= {(trials,)}:
            raise ValueError(f"its '{name}' is not of {trials} trials")
        _check_finite(record, name)


def _check_partition(reply: Message, partition: int) -> None:
    claimed = messages.metric(reply, "partition")
    if claimed != partition:
        raise ValueError(f"it says that it is of partition {claimed:g}")


def _check_finite(record: ArrayRecord, name: str) -> None:
    for array in record.values():
        if not np.isfinite(array.numpy()).all():
            raise ValueError(f"its '{name}' is not finite: NaN or infinity")
