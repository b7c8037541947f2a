"""The configurations that come with the program: a clone's configs/, a wheel's fedsim/configs/."""

import itertools
import re
from pathlib import Path

from adversaries.errors import InputError

PACKED = "fedsim/configs"
"""Where a wheel has them; pyproject.toml says the same to the builder of wheels."""


def folder() -> Path:
    """Return the folder that holds them. Raises InputError if they were not installed."""
    package = Path(__file__).parents[1]
    for place in (package / "configs", package.parent / "configs"):
        if (place / "digits.toml").is_file():
            return place
    raise InputError(
        "the configurations were not installed with this program; install it anew from a wheel "
        "or a clone"
    )


def listing() -> dict[str, str]:
    """Return the first sentence of the comment that each begins with, by its name.

    Raises InputError if they were not installed.
    """
    found = {}
    for file in sorted(folder().glob("*.toml")):
        text = file.read_text(encoding="utf-8").splitlines()
        lines = itertools.takewhile(lambda line: line.startswith("#"), text)
        comment = " ".join(line.strip("# \n") for line in lines)
        found[file.stem] = re.split(r"(?<=[.?]) ", comment)[0]
    return found


def bundled(given: Path) -> Path:
    """Return the file of a configuration: the one that is named, or else a bundled one.

    given: a path; "digits", "digits.toml" and "configs/digits.toml" also stand for the bundled
    digits.toml.
    Returns: the path as it was given, unless there is nothing and a bundled one is called so.
    """
    if given.exists() or given.parent not in (Path(), Path("configs")):
        return given
    try:
        return path(given.name.removesuffix(".toml"))
    except InputError:
        return given


def path(name: str) -> Path:
    """Return the file of one of them.

    name: without its ending.
    Raises InputError if there is none of this name.
    """
    found = folder() / f"{name}.toml"
    if not found.is_file():
        known = ", ".join(sorted(one.stem for one in folder().glob("*.toml")))
        raise InputError(f"no configuration is called '{name}'; there are {known}")
    return found
