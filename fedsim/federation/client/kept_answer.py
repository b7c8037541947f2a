"""A client's last answer in a training, which it gives again to the bit if a round is interrupted.

A killed server continues from the model before the round, in another run of Flower, and asks again.
An answer with new noise would be another release, and cost the client's records a second time. So
the answer is on disk before it leaves: with the client's noise, or, where the server is trusted to
add the noise, without. The next round's replaces it.
"""

import fcntl
import hashlib
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fedsim.common import private_files, reading
from fedsim.federation.client import admission, client_ledger
from fedsim.federation.client.admission import ReceivedMessage
from fedsim.federation.client.client_ledger import AnsweredMessage
from fedsim.federation.protocol import consent

LONGEST = 2**33
"""Largest file of an answer, in bytes."""


@dataclass(frozen=True)
class Answering:
    """A request for a sum, or for a noisy confusion matrix, that is being answered.

    Attributes:
        path: file of the answer.
        request: digest of all that the answer depends on.
        before: number of entries of the client's ledger before it.
        mark: what its own entry has.
        entered: whether it has that entry.
        total: the array that may have left, if there is one.
    """

    path: Path
    request: str
    before: int
    mark: str
    entered: bool = False
    total: npt.NDArray[Any] | None = None

    def keep(self, total: npt.NDArray[Any]) -> None:
        """Write the array, before it leaves. Raises InputError if it cannot be written."""
        with client_ledger.writing(self.path.parent):
            _write(self, {"total": total})


@contextmanager
def answering(received: ReceivedMessage, model: Tensor) -> Iterator[Answering | None]:
    """Yield what is known of a request, and let no other process answer it within the block.

    Yields None unless the answer is a sum with noise, of a deployed client in a training that may
    be repeated.
    Raises InputError if the folder of the client's ledger cannot be written.
    """
    terms, config = consent.terms(received.context.node_config), received.config
    if (
        terms is None
        or not terms.kinds.isdisjoint(consent.UNPROTECTED)
        or config.run.job != "training"
        or not config.federation.repeats_answers
    ):
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
            begun = _begun(path, received, model)
        yield begun


def _begun(path: Path, received: ReceivedMessage, model: Tensor) -> Answering:
    """Return the request as the file knows it; a new one is written to the file first."""
    entry = admission.answer_to(received, received.request.noise_multiplier)
    kind, content = received.message.metadata.message_type, model.cpu().numpy().tobytes()
    parts = (kind, entry.experiment, entry.records, entry.noise_multiplier, received.request.role)
    numbers = (entry.first_trial, entry.trials, entry.round)
    request = hashlib.sha256(f"{parts} {numbers} ".encode() + content).hexdigest()
    answers = client_ledger.read_answers(path.parent)
    kept = _read(path)
    if kept is not None and kept.request == request:
        # Neither an earlier answer of this round nor an entry of another node was for this request.
        later = answers[kept.before :]
        if any(_mark(each) == kept.mark and each.costs for each in later):
            return replace(kept, entered=True)
    last = received.config.training.rounds + 1
    own = entry if kind == "train" else replace(entry, round=last)
    begun = Answering(path, request, len(answers), _mark(own))
    _write(begun, {})
    return begun


def _mark(answer: AnsweredMessage) -> str:
    """Return what identifies an entry of the ledger: a node answers a round of a run once."""
    numbers = (answer.first_trial, answer.trials, answer.round)
    return f"{(answer.run, answer.node, answer.experiment, answer.records)} {numbers}"


def _write(answer: Answering, arrays: dict[str, npt.NDArray[Any]]) -> None:
    content = io.BytesIO()
    head = {name: np.asarray(getattr(answer, name)) for name in ("request", "before", "mark")}
    np.savez(content, allow_pickle=False, **head, **arrays)
    private_files.write_private(answer.path, content.getvalue())


def _read(path: Path) -> Answering | None:
    """Return the request that a file has, as not entered; None without a whole file."""
    try:
        with np.load(io.BytesIO(reading.content(path, LONGEST)), allow_pickle=False) as file:
            arrays = dict(file)
        head = str(arrays["request"]), int(arrays["before"]), str(arrays["mark"])
        return Answering(path, *head, total=arrays.get("total"))
    except (*reading.DAMAGE, OSError):
        return None
