"""The checks of `fedsim deploy check`, with one line for each finding and its remedy.

Every machine: its program and its permissions. A server: its certificate, the keys of its nodes,
its services, its connection and the registrations. A node: its key, node.toml, data, budget,
connection and SuperNode. Ports are checked from this machine: check a folder on its own machine.
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
            why = "copy it again, or, if it was handed out, check it on its machine"
            findings.append(CheckResult(name, "folder", WRONG, f"'{place}' is missing; {why}"))
            continue
        own = server(place, laid_out) if name == "server" else node(place, laid_out, name)
        for lines in (_program(place, laid_out), _permissions(place), own):
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


def _program(place: Path, laid_out: Kit) -> Iterator[Line]:
    """Check that the program of the kit, and no other, is what this machine starts."""
    what = "program"
    if complaint := installation.complaint():
        yield what, WRONG, complaint
    for package, written, here in (
        ("fedsim", laid_out.fedsim, fedsim.__version__),
        ("flwr", laid_out.flwr, version("flwr")),
    ):
        if written != here:
            why = f"the kit was written with {written}; install the same version on every machine"
            yield what, NOTE, f"{package} {here} is installed, but {why}"
    if shutil.which("fedsim", path=kit.settings(place).get("BIN") or None) is None:
        why = f"set BIN in {place / 'settings.env'} to the bin folder of its Python environment"
        yield what, WRONG, f"fedsim is not on the PATH; {why}"
        return
    try:
        executable("flower-superlink")
    except FlowerError as error:
        yield what, WRONG, str(error)
    else:
        yield what, OK, f"fedsim {fedsim.__version__}, flwr {version('flwr')}"


def _permissions(place: Path) -> Iterator[Line]:
    for path in [place, *place.glob("*.key"), *place.glob("state"), *place.glob("flower")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            remedy = f"chmod {'700' if path.is_dir() else '600'} {path}"
            yield "permissions", WRONG, f"others may read {path.name} ({mode:o}); {remedy}"
            return
    yield "permissions", OK, "only the owner can read the secrets"
