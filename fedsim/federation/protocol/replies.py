"""Which replies of a round count: one of every client that was asked, to this round, whole, finite.

A false reply must not become part of the model: what is wrong with it is said by the client's name,
and whether the round goes on without that client is for the strategy to decide.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from flwr.app import ArrayRecord, Message

from fedsim.common.foreign_text import brief
from fedsim.federation.protocol import messages
from fedsim.federation.protocol.arrays import check_finite, check_form, header
from fedsim.game.mechanisms import vantages
from fedsim.game.observers.memory import (
    HISTORY,
    LOSS_TRAJECTORY,
    MEMBERSHIP,
    POISON_SCORES,
    POPULATION,
    POPULATION_LOSSES,
)
from fedsim.privacy.trust.model import Vantage

MOST_SECONDS = 1e7
"""How long a node can have computed for one reply: four months."""

MOST_SHOWN = 60
"""Letters of a name from a message that are repeated in a complaint about it."""

MOST_SAID = 500
"""Letters that are kept of why a node failed, or of what is wrong with its reply."""


@dataclass(frozen=True)
class Replies:
    """The replies of a round, sorted out.

    Attributes:
        accepted: the good ones by partition, in its order.
        failed: what was wrong, by partition.
        missing: partitions that did not answer.
        unsolicited: what is wrong with answers that are nobody's.
    """

    accepted: dict[int, Message]
    failed: dict[int, str]
    missing: tuple[int, ...]
    unsolicited: tuple[str, ...]


def sort_out(
    replies: Iterable[Message],
    nodes: Mapping[int, int],
    asked: Collection[int],
    inspect: Callable[[Message], None] = lambda _: None,
) -> Replies:
    """Return the replies of the partitions that were asked, sorted out.

    inspect: raises ValueError, KeyError or TypeError for a reply that is not what was asked for.
    """
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
                else f"node {node} answered, which was not asked"
            )
        elif answers[node] > 1:
            failed[partition] = f"it answered {answers[node]} times"
        elif reply.has_error():
            failed[partition] = failure(reply)
        else:
            try:
                claimed = messages.metric(reply, "partition")
                if claimed != partition:
                    raise ValueError(f"it says that it is of partition {claimed:g}")
                _check_seconds(reply)
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


def failure(reply: Message) -> str:
    """Return why a node failed, in one line, which is not long whatever the node says.

    Ray puts a traceback before what was wrong, of which Flower may keep no more than its beginning.
    """
    return brief(str(reply.error.reason).strip().rpartition("\n")[2], MOST_SAID)


def check_round(reply: Message, round: int) -> None:
    """Check that a reply is to this round. Raises ValueError if it is to another."""
    found = messages.metric(reply, "round")
    if found != round:
        raise ValueError(f"it belongs to round {found:g}")


def check_records(
    reply: Message, needed: Mapping[str, Collection[str]], optional: Collection[str] = ()
) -> None:
    """Check that a reply has the arrays that were asked for and no others.

    Raises ValueError if it has not.
    """
    found = {name: set(record) for name, record in messages.array_records(reply.content).items()}
    if unasked := sorted(set(found) - set(needed) - set(optional)):
        raise ValueError(f"it has a {shown(unasked[0])} that nobody asked for")
    for name, keys in needed.items():
        if found.get(name) != set(keys):
            raise ValueError(f"it has no '{name}' of {', '.join(sorted(keys))}")


def check_measurement(
    reply: Message, trials: int, parameters: int, candidates: int, evaluated: int
) -> None:
    """Check that every array that an auditor is handed is finite, and of its shape.

    [T, P]: gradients and noise; [T] and [m] bool: in which trials the challenge takes part, in
    which candidates it is; distances [E, pairs]. Another shape might be broadcast to the right one.

    Raises ValueError if it is not.
    """
    shapes: dict[str, tuple[tuple[int, ...], type]] = {
        "participation": ((trials,), bool),
        "membership": ((candidates,), bool),
    }
    for name in (messages.MEASUREMENT, messages.DISCLOSED):
        for key, array in messages.array_records(reply.content).get(name, {}).items():
            shape, dtype = shapes.get(key, ((trials, parameters), np.float64))
            check_form(array, name, [shape], dtype)
    record = messages.array_records(reply.content).get(messages.DISTANCES, ArrayRecord())
    for array in record.values():
        (*_, pairs), found, _ = header(array, messages.DISTANCES)
        check_form(array, messages.DISTANCES, [(evaluated, pairs)], found.type)
    for name in (messages.MEASUREMENT, messages.DISCLOSED, messages.DISTANCES):
        if name in messages.array_records(reply.content):
            check_finite(messages.array_records(reply.content)[name], name)


def check_findings(
    reply: Message, known: Collection[str], trials: int, rounds: int, needed: str | None
) -> None:
    """Check that the adversary found something for every trial, [T] or [T, k].

    Losses may be [T, k + 1], and those of a population [T, h] for up to POPULATION others.

    reply: of the adversary's node.
    known: the names that findings may have (`finding_names`): they go into the run directory.
    needed: the name of an array without which there is nothing to conclude from, None for none.
    Raises ValueError if it did not, or found something else.
    """
    found = {
        key: array
        for record in messages.array_records(reply.content).values()
        for key, array in record.items()
    }
    if needed is not None and needed not in found:
        raise ValueError(
            f"it has no '{needed}': the node's Flower state was lost, as when a SuperNode is "
            "restarted; with a state-path in its config it would not be"
        )
    for key, array in found.items():
        if key not in known:
            raise ValueError(f"it has a finding {shown(key)} that nobody asked for")
        _, dtype, _ = header(array, key)
        shapes: list[tuple[int, ...]] = [(trials,), (trials, rounds)]
        if key == LOSS_TRAJECTORY:
            shapes = [(trials, rounds + 1)]
        elif key == POPULATION_LOSSES:
            shapes = [(trials, others) for others in range(1, POPULATION + 1)]
        check_form(array, key, shapes, dtype.type)
        if np.isnan(array.numpy()).any():
            raise ValueError(f"its '{key}' is not a number: NaN")


def finding_names(vantage: Vantage, audit_vantages: str) -> frozenset[str]:
    """Return the names of all arrays that an adversary's findings may have.

    vantage: where the adversary sits.
    audit_vantages: whose beliefs are computed: "configured" or "all".
    """
    endings = {vantages.suffix(v, vantage) for v in vantages.measured(vantage, audit_vantages)}
    history = {f"{name.replace('_', '-')}{ending}" for name in HISTORY for ending in endings}
    return frozenset(history | {*MEMBERSHIP, LOSS_TRAJECTORY, POISON_SCORES})


def shown(name: str) -> str:
    """Return a name that a message brought as a complaint may repeat it: quoted, and not long."""
    return repr(brief(name, MOST_SHOWN))


def _check_seconds(reply: Message) -> None:
    if "seconds" not in messages.metric_records(reply.content).get(messages.METRICS, {}):
        return
    seconds = messages.metric(reply, "seconds")
    if not 0 <= seconds <= MOST_SECONDS:
        raise ValueError(f"it says that it computed for {seconds:g} seconds")
