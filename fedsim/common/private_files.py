"""Private files, written whole or not at all, and never through a link.

A link, a pipe or another account's file under a written name is replaced or refused.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from adversaries.errors import InputError

PARTIAL = ".partial"
"""Ending of a file that is not whole yet. A kill may leave one."""

# These flags follow no link and do not wait for the other end of a pipe.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a full disk."""

SAFELY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def as_named(path: Path) -> Path:
    """Return the path of a file that the user named, with links to its directory resolved."""
    return path.parent.resolve() / path.name


def make_directory(path: Path) -> None:
    """Make a directory (0700) and its parents. Raises InputError if it is a link; OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _directory(path):
        pass


def check_writable(directory: Path) -> None:
    """Check that files can be made in a directory. Raises InputError if it is a link; OSError."""
    with _directory(directory) as place:
        name = _unforeseen("writable")
        os.close(_new(name, place, 0o600))
        os.unlink(name, dir_fd=place)


def any_whole(directory: Path) -> bool:
    """Return whether a directory has other files than the remains of a killed write."""
    names = (path.name for path in directory.iterdir())
    return any(not (name.startswith(".") and name.endswith(PARTIAL)) for name in names)


@contextlib.contextmanager
def replacing(path: Path, mode: int = 0o600) -> Iterator[BinaryIO]:
    """Yield a file that replaces the named one, on disk, when the block ends without an error.

    Until then the old file stays.

    Raises InputError if the directory is a link, or what stands there is no regular file.
    Raises OSError if it cannot be written.
    """
    partial = _unforeseen(path.name)
    with _directory(path.parent) as place:
        _check_regular(path, place)
        descriptor = _new(partial, place, mode)
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, mode)  # independent of the umask
                yield file
                file.flush()
                os.fsync(descriptor)
            _check_regular(path, place)
            os.rename(partial, path.name, src_dir_fd=place, dst_dir_fd=place)
            os.fsync(place)  # else a power cut may bring the old file back
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(partial, dir_fd=place)
            raise


def write_private(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file whole or not at all. Raises InputError, OSError: see `replacing`."""
    with replacing(path, mode) as file:
        file.write(content)


@contextlib.contextmanager
def new_file(path: Path, mode: int = 0o600, replace: bool = False) -> Iterator[BinaryIO]:
    """Yield a file for a command's result, at the path that the user named.

    replace: whether an older file may be replaced.
    Raises InputError if something stands there, or it cannot be written.
    """
    if os.path.lexists(path) and not replace:
        raise InputError(f"'{path}' exists; name a new file")
    try:
        with replacing(as_named(path), mode) as file:
            yield file
    except OSError as error:
        raise InputError(f"cannot write '{path}': {error.strerror}; name another file") from None


def opened_new(path: Path) -> BinaryIO:
    """Return an empty file (0600) in place of the named one. Raises as `replacing`."""
    with _directory(path.parent) as place:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path.name, dir_fd=place)
        return os.fdopen(_new(path.name, place, 0o600), "wb")


def opened_own(path: Path, access: int = os.O_WRONLY | os.O_APPEND) -> int:
    """Return the descriptor of this user's file, or of a new empty one, with mode 0600.

    access: flags of `os.open`; by default to append.
    Raises InputError if the name is a link, a pipe, another account's file or a file with a second
    name, or the directory is a link.
    Raises OSError if it cannot be opened.
    """
    with _directory(path.parent) as place:
        with contextlib.suppress(FileNotFoundError):
            _check_own(path, os.lstat(path.name, dir_fd=place))
        descriptor = os.open(path.name, access | os.O_CREAT | SAFELY, 0o600, dir_fd=place)
    try:
        _check_own(path, os.fstat(descriptor))  # the open file may differ from the one before
        os.fchmod(descriptor, 0o600)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def append(path: Path, content: bytes) -> None:
    """Append to a file, and to the disk. Raises InputError, OSError: see `opened_own`."""
    new = not path.exists()
    with os.fdopen(opened_own(path), "ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    if new:  # a new file is permanent only once its directory is on disk
        with _directory(path.parent) as place:
            os.fsync(place)


@contextlib.contextmanager
def _directory(path: Path) -> Iterator[int]:
    """Hold a directory open, so that no other directory can take its place. Raises InputError."""
    if path.is_symlink():
        raise _link(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _check_regular(path: Path, place: int) -> None:
    """Raise InputError if a name is a device, a folder or a pipe. A link itself is replaced."""
    with contextlib.suppress(FileNotFoundError):
        mode = os.lstat(path.name, dir_fd=place).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
            raise InputError(f"'{path}' is not a regular file; name another file")


def _check_own(path: Path, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise _link(path)
    own = status.st_uid == os.geteuid()
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or not own:
        problem = "is not a plain file with a single name" if own else "belongs to another account"
        raise InputError(
            f"'{path}' {problem}, so nothing is written to it; remove it, or name another directory"
        )


def _link(path: Path) -> InputError:
    return InputError(
        f"'{path}' is a symbolic link, so nothing is written through it; name its target, or "
        "remove it"
    )


def _new(name: str, place: int, mode: int) -> int:
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFELY, mode, dir_fd=place)


def _unforeseen(name: str) -> str:
    # Shortened, since a name may already have the largest length.
    return f".{name[:64]}.{secrets.token_hex(8)}{PARTIAL}"
