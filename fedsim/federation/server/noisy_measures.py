"""Noisy confusion matrices of the trained model, on records that the clients held back."""

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
"""File of the answers in the run directory. A resumed training does not ask again."""

ASKING = "asking clients"
"""Phase of the event that is logged each time the clients are asked."""

MOST_COUNTED = 2**40
"""Bound above any noisy count of records. Sums of such counts are exact."""

MEASURES = f"{MessageType.QUERY}.measures"


def ask(
    grid: Grid, batch: Batch, model: npt.NDArray[np.float32], classes: int, directory: RunDirectory
) -> None:
    """Ask every client for the confusion matrix of the trained model, and write the answers."""
    config, nodes = batch.plan.config, batch.nodes
    if not config.federation.measures_epsilon or directory.has(FILE):
        return
    request = Request(config.training.rounds, 0, 1, batch.plan.noise_multiplier)

    def question(node: int) -> Message:
        arrays = messages.array_record(parameters=model)
        content = RecordDict({messages.REQUEST: request.to_record(), messages.MODEL: arrays})
        return Message(content, node, MEASURES)

    def inspect(reply: Message) -> None:
        check_records(reply, {messages.MEASURES: ["confusion"]})
        check_array(reply, messages.MEASURES, [(classes, classes)], np.int64)
        counts = messages.only(messages.array_records(reply.content)[messages.MEASURES])
        if max(int(counts.max()), -int(counts.min())) > MOST_COUNTED:
            raise ValueError(f"it counts more than {MOST_COUNTED:,} records")

    directory.log_event(phase=ASKING)  # before the answers, so that a crash does not hide it
    asked = sum(event.get("phase") == ASKING for event, _ in directory.events())
    answers = grid.send_and_receive(
        [question(node) for node in nodes.values()], timeout=config.federation.timeout
    )
    sorted_out = sort_out(answers, nodes, nodes, inspect)
    for client, reason in sorted_out.failed.items():
        directory.log_event(silent=client, of="measures", reason=reason)
    for client in sorted_out.missing:
        directory.log_event(silent=client, of="measures", reason="it did not answer")
    matrices = {
        str(client): messages.only(messages.array_records(reply.content)[messages.MEASURES])
        for client, reply in sorted_out.accepted.items()
    }
    counted = {client: counts.tolist() for client, counts in matrices.items()}
    directory.write_json(FILE, {"asked": asked, "clients": counted})


def read_measures(directory: RunDirectory) -> tuple[int, dict[int, list[list[int]]]]:
    """Return the number of times the clients were asked, and each client's last noisy matrix.

    Raises InputError if the file is damaged.
    """
    if not directory.has(FILE):
        return 0, {}
    values: dict[str, Any] = directory.read_json(FILE, ("asked", "clients"))
    with directory.reading(FILE):
        matrices = {int(client): np.array(counts) for client, counts in values["clients"].items()}
        for counts in matrices.values():
            if counts.ndim != 2 or counts.dtype.kind != "i" or len({*counts.shape}) != 1:
                raise ValueError("it has a value that is not a square matrix of counts")
    return int(values["asked"]), {client: counts.tolist() for client, counts in matrices.items()}
