"""What clients say of the trained model, with noise, about records that they held back.

A training asks each client once, after its last round, where the clients agreed. A client that does
not answer is noted, and the card goes without it: nothing of the training depends on it.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedsim.federation.protocol import messages
from fedsim.federation.protocol.arrays import check_array
from fedsim.federation.protocol.messages import Request
from fedsim.federation.protocol.replies import check_records, sort_out
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.server.batch import Batch

FILE = "measures.json"
"""The answers, in the directory of the training: one that goes on does not ask again."""

ASKING = "asking clients"
"""The phase of an event, one for each time that they are asked."""

MOST_COUNTED = 2**40
"""Beyond any count of records with noise: sums of such counts are exact."""

MEASURES = f"{MessageType.QUERY}.measures"


def ask(
    grid: Grid, batch: Batch, model: npt.NDArray[np.float32], classes: int, directory: RunDirectory
) -> None:
    """Ask every client for the confusion matrix of the trained model, and keep the answers.

    model: [1, P].
    classes: that it tells apart.
    """
    config, nodes = batch.config, batch.nodes
    if not config.federation.measures_epsilon or directory.has(FILE):
        return
    request = Request(config.training.rounds, 0, 1, batch.noise_multiplier)

    def question(node: int) -> Message:
        arrays = messages.array_record(parameters=model)
        content = RecordDict({messages.REQUEST: request.to_record(), messages.MODEL: arrays})
        return Message(content, node, MEASURES)

    def inspect(reply: Message) -> None:
        check_records(reply, {messages.MEASURES: ["confusion"]})
        check_array(reply, messages.MEASURES, [(classes, classes)], np.int64)
        counts = messages.only(messages.array_records(reply.content)[messages.MEASURES])
        if max(int(counts.max()), -int(counts.min())) > MOST_COUNTED:
            raise ValueError(f"it counts beyond {MOST_COUNTED:,} records")

    directory.log_event(phase=ASKING)  # before they answer, so that no answer is forgotten
    asked = sum(event.get("phase") == ASKING for event, _ in directory.events())
    answers = grid.send_and_receive(
        [question(node) for node in nodes.values()], timeout=config.federation.timeout
    )
    found = sort_out(answers, nodes, nodes, inspect)
    for client, reason in found.failed.items():
        directory.log_event(silent=client, of="measures", reason=reason)
    for client in found.missing:
        directory.log_event(silent=client, of="measures", reason="it did not answer")
    matrices = {
        str(client): messages.only(messages.array_records(reply.content)[messages.MEASURES])
        for client, reply in found.accepted.items()
    }
    counted = {client: counts.tolist() for client, counts in matrices.items()}
    directory.write_json(FILE, {"asked": asked, "clients": counted})


def read(directory: RunDirectory) -> tuple[int, dict[int, list[list[int]]]]:
    """Return how often clients were asked, and the last noisy confusion matrix of each.

    Raises InputError if the file is damaged.
    """
    if not directory.has(FILE):
        return 0, {}
    values: dict[str, Any] = directory.read_json(FILE, ("asked", "clients"))
    with directory.reading(FILE):
        found = {int(client): np.array(counts) for client, counts in values["clients"].items()}
        for counts in found.values():
            if counts.ndim != 2 or counts.dtype.kind != "i" or len({*counts.shape}) != 1:
                raise ValueError("it holds other things than matrices of counts")
    return int(values["asked"]), {client: counts.tolist() for client, counts in found.items()}
