"""The checks of a round's replies: one complete and finite reply of each client, to this round."""

import re
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
    MEMBERSHIP,
    POISON_SCORES,
    POPULATION,
    POPULATION_LOSSES,
)
from fedsim.privacy.trust.model import Vantage

MOST_SECONDS = 1e7
"""Longest credible time that a node computes for one reply: four months."""

MOST_SHOWN = 60
"""Letters of a message's names that a complaint repeats."""

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
                claimed = messages.metric(reply, "partition")
                if claimed != partition:
                    raise ValueError(f"it claims partition {claimed:g}")
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
    claimed = messages.metric(reply, "round")
    if claimed != round:
        raise ValueError(f"it belongs to round {claimed:g}")


def check_records(
    reply: Message, needed: Mapping[str, Collection[str]], optional: Collection[str] = ()
) -> None:
    """Raise ValueError unless a reply has the requested arrays, and no others."""
    records = {name: set(record) for name, record in messages.array_records(reply.content).items()}
    if unasked := sorted(set(records) - set(needed) - set(optional)):
        raise ValueError(f"it has a record {shown(unasked[0])}, which was not requested")
    for name, keys in needed.items():
        if records.get(name) != set(keys):
            raise ValueError(
                f"its record '{name}' must have exactly these arrays: {', '.join(sorted(keys))}"
            )


def check_measurement(reply: Message, trials: int, parameters: int, evaluated: int) -> None:
    """Raise ValueError unless each of an auditor's arrays is finite and has exactly its shape.

    The shapes are [T, P] for gradients and noise, bool [T] for the target's participation, and
    [E, pairs] for distances.
    """
    shapes: dict[str, tuple[tuple[int, ...], type]] = {"participation": ((trials,), bool)}
    for name in (messages.MEASUREMENT, messages.DISCLOSED):
        for key, array in messages.array_records(reply.content).get(name, {}).items():
            shape, dtype = shapes.get(key, ((trials, parameters), np.float64))
            check_form(array, name, [shape], dtype)
    record = messages.array_records(reply.content).get(messages.DISTANCES, ArrayRecord())
    for array in record.values():
        (*_, pairs), own, _ = header(array, messages.DISTANCES)
        check_form(array, messages.DISTANCES, [(evaluated, pairs)], own.type)
    for name in (messages.MEASUREMENT, messages.DISCLOSED, messages.DISTANCES):
        if name in messages.array_records(reply.content):
            check_finite(messages.array_records(reply.content)[name], name)


def check_findings(
    reply: Message, known: Collection[str], trials: int, rounds: int, needed: str | None
) -> None:
    """Raise ValueError unless the adversary's findings have every trial and no unknown array.

    Arrays are [T] or [T, k]; losses may be [T, k + 1], and a population's [T, h], h <= POPULATION.
    known: allowed names, which go into the run directory.
    needed: the one that must be there.
    """
    arrays = {
        key: array
        for record in messages.array_records(reply.content).values()
        for key, array in record.items()
    }
    if needed is not None and needed not in arrays:
        raise ValueError(
            f"it has no '{needed}': the node lost its Flower state, for example when its SuperNode "
            "restarted; give the node's config a state-path"
        )
    for key, array in arrays.items():
        if key not in known:
            raise ValueError(f"it has a finding {shown(key)}, which was not requested")
        _, dtype, _ = header(array, key)
        shapes: list[tuple[int, ...]] = [(trials,), (trials, rounds)]
        if key == POPULATION_LOSSES:
            shapes = [(trials, others) for others in range(1, POPULATION + 1)]
        check_form(array, key, shapes, dtype.type)
        # Log-odds may be infinite without noise, so that only NaN is refused.
        if np.isnan(array.numpy()).any():
            raise ValueError(f"its '{key}' contains NaN")


def finding_names(vantage: Vantage, audit_vantages: str) -> frozenset[str]:
    """Return the names of all arrays that an adversary's findings may have."""
    endings = {vantages.suffix(v, vantage) for v in vantages.measured(vantage, audit_vantages)}
    history = {f"{name.replace('_', '-')}{ending}" for name in HISTORY for ending in endings}
    return frozenset(history | {*MEMBERSHIP, POISON_SCORES})


def shown(name: str) -> str:
    return repr(brief(name, MOST_SHOWN))


def _check_seconds(reply: Message) -> None:
    if "seconds" not in messages.metric_records(reply.content).get(messages.METRICS, {}):
        return
    seconds = messages.metric(reply, "seconds")
    if not 0 <= seconds <= MOST_SECONDS:
        raise ValueError(f"it claims to have computed for {seconds:g} seconds")
