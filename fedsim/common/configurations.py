"""The configurations that come with the program: a clone's configs/, a wheel's fedsim/configs/."""

from pathlib import Path

from adversaries.errors import InputError

PACKED = "fedsim/configs"
"""Where a wheel has them; pyproject.toml says the same to the builder of wheels."""


def folder() -> Path:
    """Return the folder that holds them.

    Raises:
        InputError: they were not installed.
    """
    package = Path(__file__).parents[1]
    for place in (package / "configs", package.parent / "configs"):
        if (place / "digits.toml").is_file():
            return place
    raise InputError(
        "the configurations were not installed with this program; install it anew from a wheel "
        "or a clone"
    )


def path(name: str) -> Path:
    """Return the file of one of them.

    Args:
        name: without its ending.

    Raises:
        InputError: there is none of this name.
    """
    found = folder() / f"{name}.toml"
    if not found.is_file():
        known = ", ".join(sorted(one.stem for one in folder().glob("*.toml")))
        raise InputError(f"no configuration is called '{name}'; there are {known}")
    return found
