"""More trials of a campaign that has finished, or was interrupted.

The trials that there are keep their worlds and their random numbers, which depend on the seed and
the number of a trial alone; those that are added are balanced in pairs. The report of the smaller
campaign stays until that of the larger one is written. Every trial is a training of its own, so
that the guarantee is no other: the ledger states the worst cohort's epsilon, and not a sum.
"""

from fedsim import config as configuration
from fedsim.config import Config
from fedsim.errors import InputError
from fedsim.run_directory import RunDirectory


def extend(directory: RunDirectory, trials: int) -> Config:
    """Raise the number of trials of a run to `trials`, and return its configuration from now on.

    The caller holds the lock of the run. Raises InputError where that is not more than there are,
    is odd, or where the trials were to stop by what they showed.
    """
    config = directory.config
    given = config.trials
    if trials == given.count and not directory.finished:
        return config  # the same command again, after an interruption
    if trials <= given.count:
        raise InputError(
            f"'{directory.path}' has {given.count} trials already; give --trials a larger number"
        )
    if trials % 2 and given.worlds == "both":
        raise InputError(
            f"--trials is {trials}, but half of the trials train on D and half on D'; give an "
            "even number"
        )
    if given.until_halfwidth:
        raise InputError(
            f"'{directory.path}' has trials.until-halfwidth = {given.until_halfwidth:g}, whose "
            f"looks were planned for {given.count} trials and have spent all of the significance; "
            "begin another run with --out and a larger --max-trials"
        )
    changes = {"count": trials, "first": given.first or given.count}
    table = type(given).model_validate(given.model_dump() | changes)
    extended = config.model_copy(update={"trials": table})
    directory.write_text("config.toml", configuration.dump(extended.placed_at("")))
    return extended
