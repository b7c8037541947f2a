"""The bundled configurations: a clone's configs/, a wheel's fedsim/configs/."""

import itertools
import re
from pathlib import Path

from adversaries.errors import InputError


def folder() -> Path:
    """Return the folder of the bundled configurations. Raises InputError if it is missing."""
    package = Path(__file__).parents[1]
    for place in (package / "configs", package.parent / "configs"):
        if (place / "digits.toml").is_file():
            return place
    raise InputError(
        "the configurations were not installed with this program; install it again from a "
        "wheel or a clone"
    )


def listing() -> dict[str, str]:
    """Return the first sentence of each bundled configuration's comment, by name.

    Raises InputError if the configurations are missing.
    """
    sentences = {}
    for file in sorted(folder().glob("*.toml")):
        text = file.read_text(encoding="utf-8").splitlines()
        lines = itertools.takewhile(lambda line: line.startswith("#"), text)
        comment = " ".join(line.strip("# \n") for line in lines)
        sentences[file.stem] = re.split(r"(?<=[.?]) ", comment)[0]
    return sentences


def bundled(named: Path) -> Path:
    """Return the named file if it exists, else the bundled "NAME", "NAME.toml" or path."""
    if named.exists() or named.parent not in (Path(), Path("configs")):
        return named
    try:
        return path(named.name.removesuffix(".toml"))
    except InputError:
        return named


def path(name: str) -> Path:
    """Return the file of a bundled configuration. Raises InputError if no one has this name."""
    file = folder() / f"{name}.toml"
    if not file.is_file():
        names = ", ".join(sorted(one.stem for one in folder().glob("*.toml")))
        raise InputError(f"no configuration is called '{name}'; choose one of {names}")
    return file
