"""Which trials share their messages: the cohorts of a campaign, of which each has a file.

Every file says of which experiment its findings are. Whoever edits `config.toml` in between would
otherwise get one report of two experiments.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.config import Config, to_run_config
from fedsim.errors import InputError
from fedsim.run_directory import RunDirectory

EXPERIMENT = "experiment"
"""The array of a cohort's file that says which experiment it is of: JSON, as bytes."""

NO_MATTER = {
    *(f"run.{name}" for name in ("name", "device", "threads", "max-memory", "out")),
    *("run.client-cpus", "run.client-gpus", "data.root", "data.download", "privacy.stop-at"),
    *("trials.count", "trials.cohort", "trials.first", "audit.prior", "audit.confidence"),
}
"""Keys that the findings of a cohort do not depend on, but where `experiment` says so."""


def experiment(config: Config) -> dict[str, Any]:
    """Return the keys and values that a cohort's findings, or what they are worth, depend on.

    Worlds are balanced over the trials of the first plan; more may be added. Where trials stop by
    what they showed, the looks at them follow from cohort, number and confidence, and each has
    taken its share of the significance.
    """
    values = to_run_config(config)
    found = {key: value for key, value in values.items() if key not in NO_MATTER}
    if config.trials.until_halfwidth:
        looked = "trials.count", "trials.cohort", "audit.confidence"
        return found | {key: values[key] for key in looked}
    return found if config.trials.in_pairs else found | {"trials.count": config.trials.shuffled}


def mark(config: Config) -> npt.NDArray[np.uint8]:
    """Return `experiment` as the bytes [n] that a cohort's file holds."""
    return np.frombuffer(json.dumps(experiment(config)).encode(), dtype=np.uint8)


def of_transcript(config: Config) -> dict[str, Any]:
    """Return the keys and values that the log-odds of a transcript depend on."""
    return experiment(config) | {"audit.prior": config.audit.prior}


def check_transcript(config: Config, directory: RunDirectory, then: Mapping[str, Any]) -> None:
    """Raise InputError where a transcript that is of `then` is not of this configuration."""
    _check(directory, then, of_transcript(config), "transcript.npz is of a run")


def ranges(config: Config, directory: RunDirectory | None = None) -> list[range]:
    """Return the trials of every cohort, in the order in which they are run.

    Cohorts that have finished in `directory` stay as they are: the last of a campaign that was
    extended may be smaller than others. Raises InputError where the file of one is damaged, or of
    another experiment.
    """
    total, cohorts = config.trials.count, []
    first = 0
    while first < total:
        size = config.trials.cohort
        if directory is not None and directory.has(directory.cohort_file(first)):
            size = len(directory.read_arrays(directory.cohort_file(first), only="worlds")["worlds"])
            _check_cohort(config, directory, range(first, first + size))
        cohorts.append(range(first, min(first + size, total)))
        first += size
    return cohorts


def _check_cohort(config: Config, directory: RunDirectory, trials: range) -> None:
    """Raise InputError where these trials were run under another configuration.

    A file of an earlier version does not say, and is taken as it is.
    """
    file = directory.cohort_file(trials.start)
    if found := directory.read_arrays(file, only=EXPERIMENT, optional=True):
        try:
            then = json.loads(found[EXPERIMENT].tobytes())
        except ValueError:
            then = None
        if not isinstance(then, dict):
            raise directory.damaged(file)
        what = f"trials {trials.start} to {trials.stop - 1} were run"
        _check(directory, then, experiment(config), what)


def _check(
    directory: RunDirectory, then: Mapping[str, Any], now: Mapping[str, Any], what: str
) -> None:
    """Raise InputError for the first key whose value changed; one of later versions is passed."""
    for key, value in now.items():
        if then.get(key, value) != value:
            raise InputError(
                f"config.toml of '{directory.path}' was changed: {what} with {key} = "
                f"{json.dumps(then[key])}, and it says {json.dumps(value)} now; put it back, or "
                "begin another run with --out"
            )
