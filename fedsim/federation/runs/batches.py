"""The batches of a campaign: trials that share messages, each with a file and its mark."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.configuration import Config, to_run_config
from fedsim.federation.runs.run_directory import RunDirectory

EXPERIMENT = "experiment"
"""Array of a batch's file, and of the transcript, with the mark: JSON, as bytes."""

RUN, TRIALS = "run", "trials"
"""Keys of a mark: the run's identity, and the range of trials as [first, stop]."""

NO_MATTER = {
    *(f"run.{name}" for name in ("name", "device", "threads", "max-memory", "out")),
    *("data.root", "data.download", "privacy.stop-at"),
    *("trials.batch", "audit.confidence"),
}
"""Keys that do not change the findings of a batch.

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

    @property
    def experiment(self) -> dict[str, Any]:
        """The keys and values that change a batch's findings."""
        values = to_run_config(self.config)
        return {key: value for key, value in values.items() if key not in NO_MATTER}

    @property
    def _transcript(self) -> dict[str, Any]:
        """The keys and values of a transcript: its rounds have a budget."""
        budget = {"privacy.stop-at": self.config.privacy.stop_at}
        return self.experiment | budget

    def mark(self, trials: range) -> Mark:
        """Return the mark of a batch's file: JSON as bytes, uint8 [n]."""
        return _packed(self.experiment | _place(self._own_directory, trials))

    def transcript_mark(self, trials: range) -> Mark:
        """Return the mark of a transcript: JSON as bytes, uint8 [n]."""
        return _packed(self._transcript | _place(self._own_directory, trials))

    def check_transcript(self, file: str, mark: npt.NDArray[Any], trials: int) -> None:
        self._check(file, mark, range(trials), self._transcript, f"{file} is of a run")

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
                where = f"trials {first} to {first + size - 1} were run"
                self._check(file, mark, range(first, first + size), self.experiment, where)
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

    @property
    def _own_directory(self) -> RunDirectory:
        assert self.directory is not None
        return self.directory

    def _check(
        self, file: str, mark: npt.NDArray[Any], trials: range, now: Mapping[str, Any], what: str
    ) -> None:
        """Raise InputError unless a mark is of this run, of these trials and of this experiment."""
        directory = self._own_directory
        place = _place(directory, trials)
        with directory.reading(file):
            then = reading.json_value(mark.tobytes())
            if not isinstance(then, dict):
                raise TypeError(f"its '{EXPERIMENT}' is not a JSON object")
            if then[RUN] != place[RUN]:
                raise ValueError("it belongs to another run")
            if then[TRIALS] != place[TRIALS]:
                first, stop = then[TRIALS]
                raise ValueError(f"it holds trials {first:d} to {stop - 1:d}")
            stored = {key: then[key] for key in now}
        for key, value in now.items():
            if stored[key] != value:
                raise InputError(
                    f"config.toml of '{directory.path}' was changed: {what} with {key} = "
                    f"{json.dumps(stored[key])}, but it now says {json.dumps(value)}; restore the "
                    "old value, or begin another run (run.out)"
                )


def _place(directory: RunDirectory, trials: range) -> dict[str, Any]:
    return {RUN: directory.identity, TRIALS: [trials.start, trials.stop]}


def _packed(values: Mapping[str, Any]) -> Mark:
    return np.frombuffer(json.dumps(values).encode(), dtype=np.uint8)
