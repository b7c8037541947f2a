"""The checks of `fedsim deploy check`, with one line for each finding and its remedy.

Files can be checked anywhere. Ports and answers are checked from this machine, so run the check on
the machine of the folder.
"""

import shutil
import stat
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import fedsim
from adversaries.errors import InputError
from fedsim.common import installation
from fedsim.deployment import kit
from fedsim.deployment.checks.connection import NOTE, OK, WRONG, CheckResult, Line
from fedsim.deployment.checks.node import node
from fedsim.deployment.checks.server import authority, server
from fedsim.deployment.kit import Kit
from fedsim.federation.runtimes.flower_command import FlowerError, executable

UNITS = Path("/etc/systemd/system")


def check_machines(directory: Path, machine: str | None = None) -> list[CheckResult]:
    """Return the findings about one machine, or about all of a directory and the kit's authority.

    Raises InputError if the directory is no deployment or has no such machine.
    """
    laid_out = kit.read_kit(directory)
    if machine is not None:
        machines = [machine]
    else:
        machines = [laid_out.machine] if laid_out.machine else laid_out.machines
    findings: list[CheckResult] = []
    for name in machines:
        place = kit.folder(directory, name)
        if not place.is_dir():
            message = (
                f"'{place}' is missing; copy it again, or, if it was handed out, check it on its "
                "machine"
            )
            findings.append(CheckResult(name, "folder", WRONG, message))
            continue
        own = server(place, laid_out) if name == "server" else node(place, laid_out, name)
        common = (_versions(laid_out), _commands(place), _permissions(place), _units(place))
        for lines in (*common, own):
            results = [CheckResult(name, *line) for line in _with_error(lines)]
            findings += [result for result in results if result not in findings]
    if (directory / "ca").is_dir():
        findings += [CheckResult("ca", *line) for line in _with_error(authority(directory / "ca"))]
    return findings


def _with_error(lines: Iterator[Line]) -> Iterator[Line]:
    """Yield the lines of a check. An InputError that ends it becomes the last line."""
    try:
        yield from lines
    except InputError as error:
        yield "settings", WRONG, str(error)


def _versions(laid_out: Kit) -> Iterator[Line]:
    if complaint := installation.complaint():
        yield "distribution", WRONG, complaint
    for package, written, here in (
        ("fedsim", laid_out.fedsim, fedsim.__version__),
        ("flwr", laid_out.flwr, version("flwr")),
    ):
        if written == here:
            yield package, OK, here
        else:
            message = (
                f"{here} is installed, but the kit was written with {written}; install the same "
                "version on every machine"
            )
            yield package, NOTE, message


def _commands(place: Path) -> Iterator[Line]:
    path = kit.settings(place).get("BIN") or None
    program = shutil.which("fedsim", path=path)
    if program is None:
        message = (
            f"fedsim is not on the PATH; set BIN in {place / 'settings.env'} to the bin folder of "
            "the Python environment with fedsim"
        )
        yield "commands", WRONG, message
        return
    try:
        executable("flower-superlink")
    except FlowerError as error:
        yield "commands", WRONG, str(error)
    else:
        yield "commands", OK, program


def _units(place: Path) -> Iterator[Line]:
    for unit in place.glob("fedsim-*.service"):
        installed = UNITS / unit.name
        if installed.exists() and installed.read_bytes() != unit.read_bytes():
            message = (
                f"{installed} differs from the kit's; copy {unit} there, or make sure that yours "
                "has the same User, UMask, ProtectProc and Restart"
            )
            yield "unit", NOTE, message


def _permissions(place: Path) -> Iterator[Line]:
    secrets = [place, *place.glob("*.key"), *place.glob("state"), *place.glob("flower")]
    for path in secrets:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            wanted = "700" if path.is_dir() else "600"
            message = f"others may read {path.name} ({mode:o}); chmod {wanted} {path}"
            yield "permissions", WRONG, message
            return
    yield "permissions", OK, "only the owner can read the secrets"
