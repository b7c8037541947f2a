"""Original files of public datasets: finding, downloading and checking them."""

import contextlib
import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from adversaries.errors import InputError
from fedsim.learning.data.csv_file import read_bytes
from fedsim.learning.data.dataset import Source

ENDINGS = ("", ".gz")
"""Endings of a file's name: files are read packed or plain."""


def find(
    source: Source,
    names: Sequence[str],
    folders: Sequence[str] = (".",),
    fetch: Callable[[Path], object] | None = None,
) -> list[Path]:
    """Return the path of each named file, from the first folder that has it.

    source: has the root folder, and whether missing files may be downloaded.
    names: of the files, without endings.
    fetch: downloads all files into the root folder; None where that is impossible.
    Raises InputError if a file is missing; the message names it and the folder.
    """
    root = source.path
    paths = look_up(root, names, folders)
    if None in paths and fetch is not None and source.download:
        with _fetching(source.name, root, folders):
            fetch(root)
        paths = look_up(root, names, folders)
    if None not in paths:
        return [path for path in paths if path is not None]
    problem = f"there is no folder '{root}'"
    if root.is_dir():
        missing = " or ".join(f"'{names[paths.index(None)]}{ending}'" for ending in ENDINGS)
        within = [f"its {folder}/" for folder in folders if folder != "."]
        problem = f"{source.name}: {missing} is not in {', '.join([repr(str(root)), *within])}"
    advice = f"set data.root=PATH to the folder with {source.name}'s files"
    if fetch is not None:
        advice += ", or let fedsim download them there with data.download=true"
    raise InputError(f"{problem}; {advice}")


def look_up(root: Path, names: Sequence[str], folders: Sequence[str]) -> list[Path | None]:
    """Return the path of each file, or None where no folder has it."""

    def first(name: str) -> Path | None:
        paths = (root / folder / f"{name}{ending}" for ending in ENDINGS for folder in folders)
        return next((path for path in paths if path.is_file()), None)

    return [first(name) for name in names]


@contextlib.contextmanager
def _fetching(name: str, root: Path, folders: Sequence[str]) -> Iterator[None]:
    """Report a failed download in one line, and remove the folders that it made and left empty."""
    places = [root / folder for folder in folders]
    absent = {path for place in places for path in (place, *place.parents) if not path.exists()}
    try:
        # Keep standard output clean: it may be a JSON document.
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except (RuntimeError, OSError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"cannot download {name} to '{root}' ({reason}); put its files there yourself"
        ) from None
    finally:
        for path in sorted(absent, key=lambda path: len(path.parts), reverse=True):
            with contextlib.suppress(OSError):
                path.rmdir()


def read_original(path: Path, title: str, expected: str, own: str, kind: str = "sha256") -> bytes:
    """Return the unpacked content of an original; checksums are of this, because packers differ.

    expected: its digest. own: a data.name without checks.
    Raises InputError for another content, even if the digest is MD5.
    """
    content = read_bytes(path)
    digest = hashlib.new(kind, content, usedforsecurity=False).hexdigest()
    if digest != expected:
        reason = f" ({kind} {digest[:16]}… instead of {expected[:16]}…)"
        raise not_original(path, title, reason, own)
    return content


def not_original(path: Path, title: str, reason: str, own: str) -> InputError:
    """Return the error for a file that is not the original."""
    return InputError(
        f"'{path}' is damaged or not the original {title}{reason}; put the original in its place, "
        f'or read your own data with data.name = "{own}"'
    )
