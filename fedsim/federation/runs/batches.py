"""The batches of a campaign: trials that share messages, each with a file and its mark."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.configuration import Config, to_run_config
from fedsim.federation.runs.run_directory import RunDirectory

EXPERIMENT = "experiment"
"""Array of a batch's file, and of the transcript: SHA-256 of run, trials and configuration."""

NO_MATTER = {
    *(f"run.{name}" for name in ("name", "device", "threads", "max-memory", "out")),
    *("data.root", "data.download", "trials.batch", "audit.confidence"),
}
"""Keys that do not change the findings of a run."""

BUDGET = "privacy.stop-at"
"""Key that a transcript states, whose rounds have a budget; it does not change a batch's findings.

The first batch decides the number of rounds, and an exhausted budget may be raised.
"""

Mark = npt.NDArray[np.uint8]


def rounds_of(directory: RunDirectory, batch: int) -> int:
    """Return the number of rounds of a finished batch. Raises InputError if it is damaged."""
    file = directory.batch_file(batch)
    findings = directory.read_arrays(file, only=["sensitivities"])
    with directory.reading(file):
        return int(findings["sensitivities"].shape[1])


@dataclass(frozen=True)
class Batches:
    """The batches of a run, with their marks; without a directory it has not begun."""

    config: Config
    directory: RunDirectory | None = None

    def mark(self, trials: range, transcript: bool = False) -> Mark:
        """Return the mark of trials in a file of this run."""
        assert self.directory is not None
        left_out = NO_MATTER if transcript else NO_MATTER | {BUDGET}
        values = to_run_config(self.config).items()
        kept = sorted((key, value) for key, value in values if key not in left_out)
        text = json.dumps([self.directory.identity, trials.start, trials.stop, kept])
        return np.frombuffer(hashlib.sha256(text.encode()).hexdigest().encode(), dtype=np.uint8)

    def check(
        self, file: str, mark: npt.NDArray[Any], trials: range, transcript: bool = False
    ) -> None:
        """Raise InputError unless a mark is of this run, of these trials and of this experiment."""
        assert self.directory is not None
        if mark.tobytes() != self.mark(trials, transcript).tobytes():
            raise self.directory.damaged(
                file,
                f"it is not of trials {trials.start} to {trials.stop - 1} of this run, or "
                "config.toml was changed since: then restore config.toml",
            )

    def ranges(self) -> list[range]:
        """Return the trials of every batch, in order. Finished batches keep their size.

        Raises InputError if the file of a finished batch is damaged, or of another experiment.
        """
        ranges, first, directory = [], 0, self.directory
        while first < self.config.trials.count:
            size = self.config.trials.batch
            if directory is not None and directory.has(file := directory.batch_file(first)):
                arrays = directory.read_arrays(file, only=("worlds", EXPERIMENT))
                with directory.reading(file):
                    mark, size = arrays[EXPERIMENT], len(arrays["worlds"])
                    if not size:
                        raise ValueError("it has no trials")
                self.check(file, mark, range(first, first + size))
            ranges.append(range(first, min(first + size, self.config.trials.count)))
            first += size
        return ranges

    def finished(self) -> list[int]:
        """Return the first trials of the finished batches."""
        directory = self.directory
        if directory is None:
            return []
        firsts = (trials.start for trials in self.ranges())
        return [first for first in firsts if directory.has(directory.batch_file(first))]
