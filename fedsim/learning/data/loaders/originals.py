"""Original files of public datasets: finding, downloading, unpacking and checking them."""

import contextlib
import hashlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.learning.data.loaders.dataset import Source

ENDINGS = ("", ".gz")
"""Endings of a file's name: files are read packed or plain."""


def find(
    source: Source,
    names: Sequence[str],
    folders: Sequence[str] = (".",),
    fetch: Callable[[Path], object] | None = None,
    endings: Sequence[str] = ENDINGS,
) -> list[Path]:
    """Return the path of each named file, from the first folder that has it.

    source: has the root folder, and whether missing files may be downloaded.
    names: of the files, without endings.
    fetch: downloads all files into the root folder; None where that is impossible.
    endings: endings of the names, in order of preference.
    Raises InputError if a file is missing; the message names it and the folder.
    """
    root = source.path
    paths = _look_up(root, names, folders, endings)
    if None in paths and fetch is not None and source.download:
        _fetch(source.name, root, folders, fetch)
        paths = _look_up(root, names, folders, endings)
    present = [path for path in paths if path is not None]
    if len(present) == len(names):
        return present
    if not root.is_dir():
        problem = f"there is no folder '{root}'"
    else:
        missing = " or ".join(f"'{names[paths.index(None)]}{ending}'" for ending in endings)
        within = [f"its {folder}/" for folder in folders if folder != "."]
        problem = f"{source.name}: {missing} is not in {', '.join([repr(str(root)), *within])}"
    advice = f"set data.root=PATH to the folder with {source.name}'s files"
    if fetch is not None:
        advice += ", or let fedsim download them there with data.download=true"
    raise InputError(f"{problem}; {advice}")


def present(source: Source, names: Sequence[str], folders: Sequence[str]) -> bool:
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
        # Keep standard output clean: it may be a JSON document.
        with contextlib.redirect_stdout(sys.stderr):
            fetch(root)
    except (RuntimeError, OSError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"cannot download {name} to '{root}' ({reason}); put its files there yourself"
        ) from None
    finally:
        # Remove the folders that the download made and left empty, inner ones first.
        for path in sorted(absent, key=lambda path: len(path.parts), reverse=True):
            with contextlib.suppress(OSError):
                path.rmdir()


def read_unpacked(path: Path) -> bytes:
    """Return the content of a file, unpacked if its name ends in .gz.

    Raises InputError if damaged.
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


def check_digest(
    content: bytes, path: Path, title: str, expected: str, own: str, algorithm: str = "sha256"
) -> None:
    """Raise InputError unless a file has the digest of the original, even if it is MD5."""
    digest = hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()
    if digest != expected:
        raise InputError(
            f"{not_original(path, title)} ({algorithm} {digest[:16]}… instead of "
            f"{expected[:16]}…); {remedy(own)}"
        )


def not_original(path: Path, title: str) -> str:
    """Return the beginning of an error about a file that is not the original."""
    return f"'{path}' is damaged or not the original {title}"


def remedy(own: str) -> str:
    """Return the end of such an error; `own` is a data.name without checks."""
    return f'put the original in its place, or read your own data with data.name = "{own}"'
