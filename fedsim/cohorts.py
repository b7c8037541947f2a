"""Which trials share their messages: the cohorts of a campaign, of which each has a file.

Every file says of which experiment its findings are. Whoever edits `config.toml` in between would
otherwise get one report of two experiments.
"""

import json
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
    *("trials.cohort", "trials.first", "trials.until-halfwidth"),
    *("audit.prior", "audit.confidence"),
}
"""Keys that the findings of a cohort do not depend on."""


def experiment(config: Config) -> npt.NDArray[np.uint8]:
    """Return the keys and values that a cohort's findings depend on, as bytes [n]."""
    return np.frombuffer(json.dumps(_experiment(config)).encode(), dtype=np.uint8)


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
            _check(config, directory, range(first, first + size))
        cohorts.append(range(first, min(first + size, total)))
        first += size
    return cohorts


def _experiment(config: Config) -> dict[str, Any]:
    values = {key: value for key, value in to_run_config(config).items() if key not in NO_MATTER}
    # Worlds are balanced over the trials of the first plan; more may be added.
    return values | {"trials.count": config.trials.shuffled}


def _check(config: Config, directory: RunDirectory, trials: range) -> None:
    """Raise InputError where these trials were run under another configuration.

    A file of an earlier version does not say, and is taken as it is; so is a key that it lacks.
    """
    file = directory.cohort_file(trials.start)
    found = directory.read_arrays(file, only=EXPERIMENT, optional=True)
    if not found:
        return
    then = json.loads(found[EXPERIMENT].tobytes())
    for key, value in _experiment(config).items():
        if then.get(key, value) != value:
            raise InputError(
                f"config.toml of '{directory.path}' was changed: trials {trials.start} to "
                f"{trials.stop - 1} were run with {key} = {json.dumps(then[key])}, and it says "
                f"{json.dumps(value)} now; put it back, or begin another run with --out"
            )
