"""The extension of a campaign by more trials, which leaves existing ones unchanged."""

from adversaries.errors import InputError
from fedsim import configuration
from fedsim.configuration import Config
from fedsim.federation.runs import budget
from fedsim.federation.runs.batches import Batches
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.game.mechanisms import privacy


def extend(directory: RunDirectory, trials: int) -> Config:
    """Set the number of trials of a run, and return its new configuration.

    trials: a larger number than before. Where a larger number was set and not reached, it may be
    smaller. It must cover the first plan, whose worlds were drawn together, and the finished
    batches.
    Raises InputError if the number is too small or odd, or the trials stop early; also if the
    budget does not allow it.
    """
    config = directory.config
    table = config.trials
    if trials == table.count and not directory.finished:
        return config  # the same command again, after an interruption
    if directory.finished and trials <= table.count:
        raise InputError(
            f"'{directory.path}' has {table.count} trials already; make trials.count larger"
        )
    first = table.first or table.count
    kept = [
        each.stop
        for each in Batches(config, directory).ranges()
        if directory.has(directory.batch_file(each.start))
    ]
    if trials < (least := max([first, *kept])):
        raise InputError(
            f"'{directory.path}' is to have {table.count} trials, and {least} of them were planned "
            f"at first or have finished; give trials.count at least {least}"
        )
    if first == 1:
        raise InputError(
            f"'{directory.path}' is a single training, on D, and more trials need both worlds; "
            "begin another run"
        )
    if trials % 2:
        raise InputError(
            f"trials.count is {trials}, but half of the trials train on D and half on D'; give an "
            "even number"
        )
    changes = {"count": trials, "first": first if trials > first else 0}
    extended = config.model_copy(
        update={"trials": type(table).model_validate(table.model_dump() | changes)}
    )
    budget.plan(Batches(extended, directory), privacy.noise_multiplier(extended.scheme))
    directory.write_text("config.toml", configuration.dump(extended.placed_at("")))
    return extended
