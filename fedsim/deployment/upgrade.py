"""Another version of the program for a federation: keys, settings and ledgers stay as they are."""

from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import fedsim
from adversaries.errors import InputError
from fedsim.deployment import kit, wheel


def upgrade(directory: Path) -> Path:
    """Write what each machine needs of the program that runs; return the folder with all of it.

    Args:
        directory: of the whole kit, whose README.md and deploy.json tell the version from now on.

    Raises:
        InputError: it is one machine's folder, or the kit has this version already.
    """
    old = kit.read(directory)
    if old.machine:
        raise InputError(
            f"'{directory}' is the folder of '{old.machine}' alone: upgrade where the whole kit is"
        )
    new = replace(old, fedsim=fedsim.__version__, flwr=version("flwr"))
    if new == old:
        raise InputError(
            f"the kit has fedsim {old.fedsim} with Flower {old.flwr} already: run the command of "
            "the version that it is to have"
        )
    out = directory / f"upgrade-{new.fedsim}-flwr-{new.flwr}"
    program = wheel.running()
    for machine in new.machines:
        kit.write_program(out / machine, new, machine, program)
    kit.write_instructions(directory, new, program)
    return out
