"""Files for their owner's eyes: whole or not there, and never written through a link.

A directory may have been laid out by somebody else: whatever stands at a name that is written, a
link, a pipe or another account's file, is replaced or refused, and nothing outside is touched. The
directory that a file is in is no link either; those above it are as the user named them.
"""

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from adversaries.errors import InputError

PARTIAL = ".partial"
"""How the name of a file ends that is not whole yet; a kill may leave one."""

# Neither follows a link nor waits for the other end of a pipe.
SAFELY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def as_named(path: Path) -> Path:
    """Return the place of a file that the user named himself, through links to its directory."""
    return path.parent.resolve() / path.name


def make_directory(path: Path) -> None:
    """Make a directory (0700), and those above it, if there is none.

    Raises InputError if it is a link.
    Raises OSError if it cannot be made.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _directory(path):
        pass


def check_writable(directory: Path) -> None:
    """See that files can be made in a directory.

    Raises InputError if it is a link.
    Raises OSError if they cannot.
    """
    with _directory(directory) as place:
        name = _unforeseen("writable")
        os.close(_new(name, place, 0o600))
        os.unlink(name, dir_fd=place)


def any_whole(directory: Path) -> bool:
    """Return whether a directory holds more than a kill in the middle of a write left.

    Raises OSError if it cannot be listed.
    """
    names = (path.name for path in directory.iterdir())
    return any(not (name.startswith(".") and name.endswith(PARTIAL)) for name in names)


@contextlib.contextmanager
def replacing(path: Path, mode: int = 0o600) -> Iterator[BinaryIO]:
    """Open what becomes the file of this name, on the disk, when the block has ended well.

    Until then there is what was there before.

    Raises InputError if the directory is a link.
    Raises OSError if it cannot be written.
    Yields: the file, to be written.
    """
    partial = _unforeseen(path.name)
    with _directory(path.parent) as place:
        descriptor = _new(partial, place, mode)
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, mode)  # whatever the umask
                yield file
                file.flush()
                os.fsync(descriptor)
            os.rename(partial, path.name, src_dir_fd=place, dst_dir_fd=place)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(partial, dir_fd=place)
            raise


def write(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file whole or not at all.

    Raises:
        InputError, OSError: as of `replacing`.
    """
    with replacing(path, mode) as file:
        file.write(content)


def opened_new(path: Path) -> BinaryIO:
    """Return an empty file (0600), in the place of the one of this name, to be written bit by bit.

    Raises:
        InputError, OSError: as of `replacing`.
    """
    with _directory(path.parent) as place:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path.name, dir_fd=place)
        return os.fdopen(_new(path.name, place, 0o600), "wb")


def opened_own(path: Path, access: int = os.O_WRONLY | os.O_APPEND) -> int:
    """Return the descriptor of a file of this user as it is, or of an empty one, 0600.

    access: flags of `os.open`; to append, unless they are given.
    Raises InputError if a link, a pipe, another account's file or one with another name besides is
    there, or the directory is a link.
    Raises OSError if it cannot be opened.
    """
    with _directory(path.parent) as place:
        with contextlib.suppress(FileNotFoundError):
            _check_own(path, os.lstat(path.name, dir_fd=place))
        descriptor = os.open(path.name, access | os.O_CREAT | SAFELY, 0o600, dir_fd=place)
    try:
        _check_own(path, os.fstat(descriptor))  # of what is open, whatever was there before
        os.fchmod(descriptor, 0o600)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def append(path: Path, content: bytes) -> None:
    """Add to the end of a file, and return when that is on the disk.

    Raises:
        InputError, OSError: as of `opened_own`.
    """
    new = not path.exists()
    with os.fdopen(opened_own(path), "ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    if new:  # a file is only there for good once its directory says so
        with _directory(path.parent) as place:
            os.fsync(place)


@contextlib.contextmanager
def _directory(path: Path) -> Iterator[int]:
    """Hold a directory open, so that no other takes its place meanwhile. Raises InputError."""
    if path.is_symlink():
        raise _link(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _check_own(path: Path, found: os.stat_result) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise _link(path)
    own = found.st_uid == os.geteuid()
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1 or not own:
        raise InputError(
            f"'{path}' is {'no plain file of one name' if own else 'a file of another account'}, "
            "and nothing is written to it; remove it, or name another directory"
        )


def _link(path: Path) -> InputError:
    return InputError(
        f"'{path}' is a symbolic link, and nothing is written through one; name what it leads to, "
        "or remove it"
    )


def _new(name: str, place: int, mode: int) -> int:
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFELY, mode, dir_fd=place)


def _unforeseen(name: str) -> str:
    # Short enough where the name is as long as names may be.
    return f".{name[:64]}.{secrets.token_hex(8)}{PARTIAL}"
