"""A wheel of the running program, so that every machine of a federation gets the same program.

An installed package is no source to build from. So its modules are packed again, with the metadata
of their installation. The same modules make the same wheel.
"""

import base64
import hashlib
import io
import zipfile
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import fedsim
from adversaries.errors import InputError
from fedsim import DISTRIBUTION
from fedsim.common import configurations
from fedsim.common.installation import PACKAGES

WHEEL = """\
Wheel-Version: 1.0
Generator: fedsim
Root-Is-Purelib: true
Tag: py3-none-any
"""

EPOCH = (1980, 1, 1, 0, 0, 0)
"""Date of every file. Other dates would make another wheel."""


@dataclass(frozen=True)
class Wheel:
    """A wheel: a zip archive, and its file name, which contains the version."""

    name: str
    content: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def file_name(version: str) -> str:
    return f"{_stem(version)}-py3-none-any.whl"


@cache
def running() -> Wheel:
    """Return the wheel of this program. Raises InputError if it differs from the installed one."""
    packed: dict[str, bytes] = {}
    for package in PACKAGES:
        root = Path(str(import_module(package).__file__)).parent
        for path in sorted([*root.rglob("*.py"), root / "py.typed"]):
            packed[path.relative_to(root.parent).as_posix()] = path.read_bytes()
    for file in sorted(configurations.folder().glob("*.toml")):
        packed[f"{configurations.PACKED}/{file.name}"] = file.read_bytes()
    information = f"{_stem(fedsim.__version__)}.dist-info"
    packed |= {f"{information}/{name}": text.encode() for name, text in _metadata().items()}
    packed[f"{information}/RECORD"] = _record(packed, f"{information}/RECORD")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in packed.items():
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return Wheel(file_name(fedsim.__version__), buffer.getvalue())


def _stem(version: str) -> str:
    return f"{DISTRIBUTION.replace('-', '_')}-{version}"


def _metadata() -> dict[str, str]:
    remedy = "install it with pip from its source, so that a wheel can be made of it"
    try:
        installed = distribution(DISTRIBUTION)
    except PackageNotFoundError:
        raise InputError(f"fedsim runs without an installation; {remedy}") from None
    if installed.version != fedsim.__version__:
        raise InputError(
            f"fedsim {fedsim.__version__} runs, but {installed.version} is installed; {remedy}"
        )
    names = ("METADATA", "entry_points.txt", "licenses/LICENSE")
    kept = {name: installed.read_text(name) for name in names}
    return {name: text for name, text in kept.items() if text is not None} | {"WHEEL": WHEEL}


def _record(packed: dict[str, bytes], own: str) -> bytes:
    """Return the list of all files with hash and length. Its own line has neither."""
    lines = []
    for path, content in packed.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(content)}")
    return "\n".join([*lines, f"{own},,", ""]).encode()
