"""Which trials share their messages: the batches of a campaign, of which each has a file.

Every file says of which experiment its findings are, of which run and of which trials. Whoever
edits `config.toml` in between, or copies a file over another, would otherwise get one report of two
experiments, or of one batch of trials twice.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.config import Config, to_run_config
from fedsim.federation.runs.run_directory import RunDirectory

EXPERIMENT = "experiment"
"""The array of a batch's file, and of the transcript, that says what it is of: JSON, as bytes."""

RUN, TRIALS = "run", "trials"
"""In a mark: the identity of the run, and the first trial and the one behind the last."""

NO_MATTER = {
    *(f"run.{name}" for name in ("name", "device", "threads", "max-memory", "out")),
    *("run.client-cpus", "run.client-gpus", "data.root", "data.download", "privacy.stop-at"),
    *("trials.count", "trials.batch", "trials.first", "audit.prior", "audit.confidence"),
}
"""Keys that the findings of a batch of trials do not depend on, but where `experiment` says so.

privacy.stop-at decides how many rounds the first batch of trials has, and the others have as many;
a run that ends for want of budget is continued with more.
"""


def experiment(config: Config) -> dict[str, Any]:
    """Return the keys and values that a batch's findings, or what they are worth, depend on.

    The number of trials is that of the first plan, over which worlds may be balanced; an extension
    says so itself. Where trials stop by what they showed, the interim analyses follow from their
    number, batch of trials and confidence, and what is seen from the prior; each interim analysis
    has taken its share of the significance.
    """
    values, trials = to_run_config(config), config.trials
    found = {key: value for key, value in values.items() if key not in NO_MATTER}
    if trials.until_halfwidth:
        found |= {key: values[key] for key in ("trials.batch", "audit.confidence", "audit.prior")}
    return found | {"trials.count": trials.first or trials.count}


def mark(config: Config, directory: RunDirectory, trials: range) -> npt.NDArray[np.uint8]:
    """Return what the file of a batch of trials is of: `experiment`, its run, its trials.

    Returns: JSON as bytes, uint8 [n].
    """
    return _packed(experiment(config) | _place(directory, trials))


def transcript_mark(
    config: Config, directory: RunDirectory, trials: range
) -> npt.NDArray[np.uint8]:
    """Return what the transcript of some trials is of.

    Beside the experiment the prior, which its log-odds hold, and the budget that its rounds keep.

    Returns: JSON as bytes, uint8 [n].
    """
    return _packed(_of_transcript(config) | _place(directory, trials))


def check_transcript(
    config: Config, directory: RunDirectory, file: str, found: npt.NDArray[Any], trials: int
) -> None:
    """Check that a transcript is what its mark says.

    file: the transcript's name.
    Raises InputError if it is of another run, of other trials, or of another configuration.
    """
    then = _read(directory, file, found, range(trials))
    _check(directory, file, then, _of_transcript(config), f"{file} is of a run")


def ranges(config: Config, directory: RunDirectory | None = None) -> list[range]:
    """Return the trials of every batch, in the order in which they are run.

    Batches that have finished stay as they are: the last of a campaign that was extended may be
    smaller than others.

    directory: of the run, None for one that has not begun.
    Raises InputError if the file of a finished batch is damaged, or of another experiment.
    """
    batches, first = [], 0
    while first < config.trials.count:
        size = config.trials.batch
        if directory is not None and directory.has(file := directory.batch_file(first)):
            found = directory.read_arrays(file, only=("worlds", EXPERIMENT))
            with directory.reading(file):
                mark, size = found[EXPERIMENT], len(found["worlds"])
                if not size:
                    raise ValueError("it has no trials")
            then = _read(directory, file, mark, range(first, first + size))
            where = f"trials {first} to {first + size - 1} were run"
            _check(directory, file, then, experiment(config), where)
        batches.append(range(first, min(first + size, config.trials.count)))
        first += size
    return batches


def finished(config: Config, directory: RunDirectory) -> list[int]:
    """Return the first trials of the batches whose findings are there."""
    firsts = (trials.start for trials in ranges(config, directory))
    return [first for first in firsts if directory.has(directory.batch_file(first))]


def rounds_of(directory: RunDirectory, batch: int) -> int:
    """Return how many rounds a finished batch of trials ran.

    Raises InputError if its file is damaged.
    """
    file = directory.batch_file(batch)
    findings = directory.read_arrays(file, only=["sensitivities"])
    with directory.reading(file):
        return int(findings["sensitivities"].shape[1])


def _place(directory: RunDirectory, trials: range) -> dict[str, Any]:
    return {RUN: directory.identity, TRIALS: [trials.start, trials.stop]}


def _of_transcript(config: Config) -> dict[str, Any]:
    budget = {"privacy.stop-at": config.privacy.stop_at}
    return experiment(config) | {"audit.prior": config.audit.prior} | budget


def _packed(values: Mapping[str, Any]) -> npt.NDArray[np.uint8]:
    return np.frombuffer(json.dumps(values).encode(), dtype=np.uint8)


def _read(
    directory: RunDirectory, file: str, found: npt.NDArray[Any], trials: range
) -> dict[str, Any]:
    """Return what a mark says. Raises InputError where it is of other trials, or of another run."""
    here = _place(directory, trials)
    with directory.reading(file):
        stored = reading.json_value(found.tobytes())
        if not isinstance(stored, dict):
            raise TypeError(f"its '{EXPERIMENT}' is no JSON object")
        if stored[RUN] != here[RUN]:
            raise ValueError("it is of another run")
        if stored[TRIALS] != here[TRIALS]:
            first, stop = stored[TRIALS]
            raise ValueError(f"it is of the trials from {first:d} to below {stop:d}")
    return stored


def _check(
    directory: RunDirectory, file: str, then: Mapping[str, Any], now: Mapping[str, Any], what: str
) -> None:
    """Raise InputError for the first key whose value changed, or that `file` does not tell."""
    for key, value in now.items():
        with directory.reading(file):
            stored = then[key]
        if stored != value:
            raise InputError(
                f"config.toml of '{directory.path}' was changed: {what} with {key} = "
                f"{json.dumps(stored)}, and it says {json.dumps(value)} now; put it back, or "
                "begin another run (run.out)"
            )
