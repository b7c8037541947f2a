"""SHA-256 of files, of folders, and of the code that runs."""

import hashlib
import os
import platform
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.metadata import version
from pathlib import Path, PurePosixPath

import fedsim
from adversaries import registry
from adversaries.errors import InputError
from fedsim.common import private_files
from fedsim.common.installation import PACKAGES
from fedsim.config import Scalar

LIBRARIES = ("flwr", "torch", "numpy", "scipy", "dp-accounting", "cryptography", "matplotlib")
"""Libraries that numbers and pictures depend on."""

OTHERS = ("torchvision", "flwr", "hf", "given")
"""Prefixes before a colon in a configuration that are not modules: they name no file."""


def below(root: Path, place: Path) -> Iterator[str]:
    """Yield the names of all files in a place below a folder, in order.

    Raises:
        InputError: a link or a pipe is among the files, for which there is no digest.
    """
    found = os.lstat(place)
    if stat.S_ISDIR(found.st_mode):
        for inner in sorted(place.iterdir()):
            yield from below(root, inner)
    elif stat.S_ISREG(found.st_mode):
        yield place.relative_to(root).as_posix()
    else:
        raise InputError(f"'{place}' is not a plain file; replace it with its target, or remove it")


def is_below(name: str) -> bool:
    """Return whether a foreign name leads to a file below a folder."""
    parts = PurePosixPath(name).parts
    plain = "/".join(parts) == name and "\0" not in name and not name.startswith("/")
    return plain and not {"..", "."} & {*parts}


def of_file(root: Path, name: str) -> str:
    """Return the SHA-256 of a file, in hexadecimal, without following a link to it."""
    descriptor = os.open(root / name, os.O_RDONLY | private_files.SAFELY)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "it is not a plain file")
        return hashlib.file_digest(file, "sha256").hexdigest()


def of_code(own: Mapping[str, str]) -> dict[str, str]:
    """Return the SHA-256 of all modules of each package of fedsim, and of modules of the user's."""
    found = {package: _of_package(Path(_file(package)).parent) for package in PACKAGES}
    modules = sorted({name.partition(":")[0] for name in own})
    return found | {
        name: hashlib.sha256(Path(_file(name)).read_bytes()).hexdigest() for name in modules
    }


def own_code(values: Mapping[str, Scalar]) -> dict[str, str]:
    """Return the user's own code that a configuration names: the key by the code's name.

    Args:
        values: the configuration, by dotted key.

    Raises:
        InputError: the code is not allowed on this machine, or cannot be imported.
    """
    found = {}
    for key, value in values.items():
        for name in str(value).split(","):
            if registry.is_code(name.strip()) and name.strip().partition(":")[0] not in OTHERS:
                registry.lookup({}, name.strip(), key)
                found[name.strip()] = key
    return found


def of_app(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every Python file of a Flower app and of its pyproject.toml, by name.

    Args:
        folder: folder of the app; hidden folders, such as a virtual environment, are left out.
    """
    names = (path.relative_to(folder) for path in sorted(folder.rglob("*.py")))
    shown = [name for name in names if not any(part.startswith(".") for part in name.parts)]
    return _of_files(folder, [Path("pyproject.toml"), *shown])


def of_function(name: str) -> dict[str, str]:
    """Return the SHA-256 of the file of a function, by its name, and import nothing.

    Args:
        name: "package.module:function", or "path/to/file.py:function".
    """
    place = name.rpartition(":")[0]
    if place.endswith(".py"):
        path = Path(place)
        return _of_files(path.parent, [Path(path.name)])
    search, origin = [str(Path.cwd()), *sys.path], None
    for part in place.split("."):
        spec = PathFinder.find_spec(part, search)
        origin = None if spec is None else spec.origin
        search = [] if spec is None else list(spec.submodule_search_locations or ())
    return {} if origin is None else _of_files(Path(origin).parent, [Path(Path(origin).name)])


def _of_files(folder: Path, names: Iterable[Path]) -> dict[str, str]:
    """Return the digests of those files of a folder that are there."""
    return {
        name.as_posix(): hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in names
        if (folder / name).is_file()
    }


def versions() -> dict[str, str]:
    """Return the versions of fedsim, Python and LIBRARIES, and the platform."""
    own = {"fedsim": fedsim.__version__, "python": platform.python_version()}
    return own | {"platform": sys.platform} | {name: version(name) for name in LIBRARIES}


def _file(module: str) -> str:
    return str(import_module(module).__file__)


def _of_package(folder: Path) -> str:
    """Return one digest of all Python files in a folder: of their names and digests, in order."""
    lines = (
        f"{of_file(folder, path)}  {path}\n"
        for path in below(folder, folder)
        if path.endswith(".py")
    )
    return hashlib.sha256("".join(lines).encode()).hexdigest()
