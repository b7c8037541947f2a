"""A client's last answer in a training, which it gives again to the bit if a round is interrupted.

A killed server continues from the model before the round, in another run of Flower, and asks again.
An answer with new noise would be another release, and cost the client's records a second time. So
the answer is on disk before it leaves: with the client's noise, or, where the server is trusted to
add the noise, without. The next round's replaces it. A secure sum keeps none (`Received.repeats`).
"""

import fcntl
import hashlib
import io
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord

from fedsim.common import private_files, reading
from fedsim.federation.client import client_ledger
from fedsim.federation.client.admission import Received
from fedsim.federation.client.client_ledger import AnsweredMessage
from fedsim.federation.protocol import messages

Arrays = dict[str, ArrayRecord]

HEAD = ("request", "before", "mark")
"""Names in the file that are not of the answer."""

LONGEST = 2**33
"""Largest file of an answer, in bytes."""


@dataclass(frozen=True)
class Answering:
    """A request for a sum that is being answered.

    Attributes:
        path: file of the answer.
        request: digest of all that the answer depends on.
        before: number of entries of the client's ledger before it.
        mark: what its own entry has.
        entered: whether it has that entry.
        arrays: what may have left, by name; empty for nothing.
    """

    path: Path
    request: str
    before: int
    mark: str
    entered: bool = False
    arrays: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)


def answered(
    received: Received, record: str, enter: Callable[[], None], answer: Callable[[], Arrays]
) -> Arrays:
    """Return the records of an answer: those that left before, or new ones behind their charge.

    record: name of the record that is kept; a kept answer has no other.
    enter: charges the answer.
    answer: computes it.
    Raises InputError if the folder of the client's ledger cannot be written.
    """
    with _answering(received) as known:
        if known is not None and known.arrays:
            return {record: messages.array_record(**known.arrays)}
        if known is None or not known.entered:
            enter()
        content = answer()
        if known is not None:
            assert {*content} == {record}
            with client_ledger.writing(known.path.parent):
                _write(replace(known, arrays=messages.arrays_of(content[record])))
    return content


@contextmanager
def _answering(received: Received) -> Iterator[Answering | None]:
    """Yield, to this process alone, what is known of a request; None if none is given twice."""
    terms = received.terms
    if terms is None or not received.repeats:
        yield None
        return
    folder = terms.state.resolve()
    path = folder / f"answer-{received.partition}.npz"
    with client_ledger.writing(folder):
        private_files.make_directory(folder)
        lock = private_files.opened_own(path.with_suffix(".lock"))
    with os.fdopen(lock, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with client_ledger.writing(folder):
            begun = _begun(path, received)
        yield begun


def _begun(path: Path, received: Received) -> Answering:
    """Return the request as the file knows it; a new one is written to the file first."""
    entry = received.entry(received.request.noise_multiplier)
    content = received.model.cpu().numpy().tobytes()
    parts = (entry.experiment, entry.records, entry.noise_multiplier, received.request.role)
    numbers = (entry.first_trial, entry.trials, entry.round)
    request = hashlib.sha256(f"{parts} {numbers} ".encode() + content).hexdigest()
    answers = client_ledger.read_answers(path.parent)
    kept = _read(path)
    if kept is not None and kept.request == request:
        # Neither an earlier answer of this round nor an entry of another node was for this request.
        later = answers[kept.before :]
        if any(_mark(each) == kept.mark and each.charged is not None for each in later):
            return replace(kept, entered=True)
    begun = Answering(path, request, len(answers), _mark(entry))
    _write(begun)
    return begun


def _mark(answer: AnsweredMessage) -> str:
    """Return what identifies an entry of the ledger: a node answers a round of a run once."""
    numbers = (answer.first_trial, answer.trials, answer.round)
    return f"{(answer.run, answer.node, answer.experiment, answer.records)} {numbers}"


def _write(answer: Answering) -> None:
    content = io.BytesIO()
    head = {name: np.asarray(getattr(answer, name)) for name in HEAD}
    np.savez(content, allow_pickle=False, **head, **answer.arrays)
    private_files.write_private(answer.path, content.getvalue())


def _read(path: Path) -> Answering | None:
    """Return the request that a file has, as not entered; None without a whole file."""
    try:
        with np.load(io.BytesIO(reading.content(path, LONGEST)), allow_pickle=False) as file:
            arrays = dict(file)
        request, before, mark = (arrays.pop(name) for name in HEAD)
        return Answering(path, str(request), int(before), str(mark), arrays=arrays)
    except (*reading.DAMAGE, OSError):
        return None
