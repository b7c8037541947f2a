"""Which trials share their messages: the cohorts of a campaign, of which each has a file."""

from fedsim.config import Config
from fedsim.run_directory import RunDirectory


def ranges(config: Config, directory: RunDirectory | None = None) -> list[range]:
    """Return the trials of every cohort, in the order in which they are run.

    Cohorts that have finished in `directory` stay as they are: the last of a campaign that was
    extended may be smaller than others. Raises InputError where the file of one is damaged.
    """
    total, cohorts = config.trials.count, []
    first = 0
    while first < total:
        size = config.trials.cohort
        if directory is not None and directory.has(directory.cohort_file(first)):
            size = len(directory.read_arrays(directory.cohort_file(first), only="worlds")["worlds"])
        cohorts.append(range(first, min(first + size, total)))
        first += size
    return cohorts
