"""The original files of public datasets: finding, fetching, unpacking and recognising them."""

import contextlib
import hashlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.learning.data.loaders.source import Source

ENDINGS = ("", ".gz")
"""What may follow a file's name: files are read packed or plain."""


def find(
    source: Source,
    names: Sequence[str],
    folders: Sequence[str] = (".",),
    fetch: Callable[[Path], object] | None = None,
    endings: Sequence[str] = ENDINGS,
) -> list[Path]:
    """Return the files of some names, each from the first folder that has it.

    source: with the root folder, and whether what is missing may be fetched.
    names: of the files, without endings.
    fetch: downloads into the root folder, once; None where there is no way to.
    endings: what may follow a name, in order of preference.
    Returns: a path for each name.
    Raises InputError if a file is missing; the message names it and the folder.
    """
    root = source.path
    found = _look_up(root, names, folders, endings)
    if None in found and fetch is not None and source.download:
        _fetch(source.name, root, folders, fetch)
        found = _look_up(root, names, folders, endings)
    paths = [path for path in found if path is not None]
    if len(paths) == len(names):
        return paths
    if not root.is_dir():
        problem = f"there is no folder '{root}'"
    else:
        missing = " or ".join(f"'{names[found.index(None)]}{ending}'" for ending in endings)
        within = [f"its {folder}/" for folder in folders if folder != "."]
        problem = f"{source.name}: {missing} is not in {', '.join([repr(str(root)), *within])}"
    advice = f"name the folder that holds {source.name}'s files with data.root=PATH"
    if fetch is not None:
        advice += ", or let fedsim download them there with data.download=true"
    raise InputError(f"{problem}; {advice}")


def present(source: Source, names: Sequence[str], folders: Sequence[str]) -> bool:
    """Return whether all files of some names are there, as `find` would find them.

    names: of the files, without endings.
    """
    return None not in _look_up(source.path, names, folders, ENDINGS)


def _look_up(
    root: Path, names: Sequence[str], folders: Sequence[str], endings: Sequence[str]
) -> list[Path | None]:
    def first(name: str) -> Path | None:
        paths = (root / folder / f"{name}{ending}" for ending in endings for folder in folders)
        return next((path for path in paths if path.is_file()), None)

    return [first(name) for name in names]


def _fetch(name: str, root: Path, folders: Sequence[str], fetch: Callable[[Path], object]) -> None:
    places = [root / folder for folder in folders]
    absent = {path for place in places for path in (place, *place.parents) if not path.exists()}
    try:
        # Standard output may be a JSON document.
        with contextlib.redirect_stdout(sys.stderr):
            fetch(root)
    except (RuntimeError, OSError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"cannot download {name} to '{root}' ({reason}); put its files there yourself"
        ) from None
    finally:
        # What it made, but left empty: inner folders before those that they are in.
        for path in sorted(absent, key=lambda path: len(path.parts), reverse=True):
            with contextlib.suppress(OSError):
                path.rmdir()


def read(path: Path) -> bytes:
    """Return the content of a file, unpacked if its name ends in .gz.

    Raises InputError if it is damaged or cannot be read.
    """

    def refusal(reason: str) -> InputError:
        return InputError(
            f"'{path}' is damaged or cannot be read ({reason}); put another copy in its place"
        )

    with reading.damage(refusal):
        if path.suffix == ".gz":
            return reading.unpacked(path)
        with reading.opened(path) as file:
            return file.read()


def check(
    content: bytes, path: Path, what: str, expected: str, own: str, algorithm: str = "sha256"
) -> None:
    """Check that a file is the original.

    algorithm: of the digest. MD5 is what some authors publish; it tells a damaged file from a whole
    one, not a forged one.
    Raises InputError if its digest is another.
    """
    digest = hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()
    if digest != expected:
        raise InputError(
            f"{not_original(path, what)} ({algorithm} {digest[:16]}… instead of "
            f"{expected[:16]}…); {remedy(own)}"
        )


def not_original(path: Path, what: str) -> str:
    """Return how a complaint about a file begins."""
    return f"'{path}' is damaged or not the original {what}"


def remedy(own: str) -> str:
    """Return how such a complaint ends; `own` is a data.name without a check."""
    return f'put the original in its place, or read data of your own with data.name = "{own}"'
