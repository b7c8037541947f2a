"""More trials of a campaign that has finished, or was interrupted.

The trials that there are keep their worlds and their random numbers, which depend on the seed and
the number of a trial alone; those that are added are balanced in pairs. The report of the smaller
campaign stays until that of the larger one is written. Where the noise is the operating system's
the trials that are added release more of the same people, which is refused beyond privacy.stop-at.
"""

from adversaries.errors import InputError
from fedsim import config as configuration
from fedsim.config import Config
from fedsim.federation.runs import batches, budget
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.game.mechanisms import privacy


def extend(directory: RunDirectory, trials: int) -> Config:
    """Set the number of trials of a run, and return its configuration from now on.

    trials: more than there are; or, where a larger number was given before and has not been
    reached, any that is not below the trials of the first plan, whose worlds were drawn together,
    and those that finished batches of trials hold.
    Raises InputError if it is another number, or odd; the trials were to stop by what they showed;
    or as of `budget.plan`.
    """
    config = directory.config
    given = config.trials
    if trials == given.count and not directory.finished:
        return config  # the same command again, after an interruption
    if directory.finished and trials <= given.count:
        raise InputError(
            f"'{directory.path}' has {given.count} trials already; give --trials a larger number"
        )
    first = given.first or given.count
    kept = [
        each.stop
        for each in batches.ranges(config, directory)
        if directory.has(directory.batch_file(each.start))
    ]
    if trials < (least := max([first, *kept])):
        raise InputError(
            f"'{directory.path}' is to have {given.count} trials, {least} of which were planned at "
            f"first or have finished; give --trials at least {least}"
        )
    if trials % 2 and given.worlds == "both":
        raise InputError(
            f"--trials is {trials}, but half of the trials train on D and half on D'; give an "
            "even number"
        )
    if given.until_halfwidth:
        raise InputError(
            f"'{directory.path}' has trials.until-halfwidth = {given.until_halfwidth:g}, whose "
            f"interim analyses were planned for {given.count} trials and have spent all of the "
            f"significance; begin another run: fedsim run {directory.path / 'config.toml'} --out "
            "NEW_DIR with a larger --max-trials"
        )
    changes = {"count": trials, "first": first if trials > first else 0}
    table = type(given).model_validate(given.model_dump() | changes)
    extended = config.model_copy(update={"trials": table})
    budget.plan(extended, privacy.noise_multiplier(extended.scheme), directory)
    directory.write_text("config.toml", configuration.dump(extended.placed_at("")))
    return extended
