"""`fedsim deploy`: a federation across machines."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from adversaries.errors import InputError
from fedsim.commands.answer import Answer
from fedsim.commands.answer import lines as lines_of
from fedsim.commands.run import Run, Training, load, trained
from fedsim.commands.settings import Change, Given, Progress, changed, configured, console
from fedsim.common import reading
from fedsim.common.strict_json import report_json
from fedsim.configuration import files as configuration_files
from fedsim.reports.document.blocks import Mark, tabulated

LONGEST = 3650
"""Most days of a certificate."""


def _did(*lines: str, report: Mapping[str, Any] | None = None) -> Answer:
    return Answer(report=report or {}, _terminal=lines_of(*lines))


def init(
    directory: Path,
    /,
    *,
    server_address: str,
    clients: int = 3,
    port: int = 8443,
    superlink_port: int = 8000,
    listen: str = "0.0.0.0",
    auditor: bool = False,
    days: int = 365,
) -> Answer:
    """Write keys, certificates, scripts and instructions for the server and every client.

    Example: fedsim deploy init hospitals --clients 3 --server-address federation.example.org

    Args:
        directory: path of the new directory.
        server_address: HOST[:PORT], the host name or address that clients connect to.
        clients: number of clients (m), at least 2.
        port: port that clients connect to.
        superlink_port: port of the SuperLink, on loopback.
        listen: address that the server listens on.
        auditor: add a folder for an auditor.
        days: lifetime of the server's certificate, in days, at most 3650.

    Raises:
        InputError: the directory exists, or an option is out of range.
    """
    from fedsim.deployment import certificates, kit  # noqa: PLC0415

    _within("--clients", clients, 2, None)
    _within("--days", days, 1, LONGEST)
    _within("--port", port, 1, 65535)
    _within("--superlink-port", superlink_port, 1, 65535)
    host, port = _address(server_address, port)
    if port == superlink_port:
        raise InputError(
            f"the clients and the SuperLink cannot share port {port}; choose another with "
            "--port or --superlink-port"
        )
    written = kit.write_kit(
        directory,
        host,
        port,
        clients,
        superlink_port=superlink_port,
        listen=listen,
        auditor=auditor,
        days=days,
    )
    end = certificates.end(directory / "server" / "server.crt")
    return _did(
        f"{directory}: {', '.join(written.machines)}; the certificate ends on {end:%F}",
        f"Instructions for each machine: {directory / 'README.md'}",
    )


def _within(option: str, value: int, least: int, most: int | None) -> None:
    if value < least or (most is not None and value > most):
        end = "" if most is None else f" and at most {most}"
        raise InputError(f"{option} is {value}; give at least {least}{end}")


def _address(text: str, port: int) -> tuple[str, int]:
    """Split HOST[:PORT]. Raises InputError."""
    from fedsim.deployment import kit  # noqa: PLC0415

    host, colon, digits = text.rpartition(":")
    if not colon:
        host, digits = text, str(port)
    number = int(digits) if digits.isascii() and digits.isdecimal() else 0
    if not 0 < number < 65536 or not kit.is_host(host):
        raise InputError(
            f"--server-address {text!r} is not HOST or HOST:PORT, for example "
            "federation.example.org:8443 (an IPv6 address needs a name)"
        )
    return host, number


def check(directory: Path, /, *, machine: str | None = None) -> Answer:
    """Check a deployment and say how to fix its problems. Exit status 1 if there are any.

    Example: fedsim deploy check hospitals --machine server

    Args:
        directory: directory that fedsim deploy init wrote, or the folder of this machine.
        machine: machine to check: server, client-K or auditor.
    """
    from fedsim.deployment.check import NOTE, OK, WRONG, check_machines  # noqa: PLC0415

    found = check_machines(directory, machine)
    wrong = sum(one.state == WRONG for one in found)
    kinds = {OK: "good", NOTE: "caution", WRONG: "alarm"}

    rows = [
        (one.machine, one.what, Mark(kinds[one.state], one.state), one.message) for one in found
    ]
    findings = [vars(one) for one in found]
    return Answer(
        report={"wrong": wrong, "findings": findings},
        table=findings,
        status=1 if wrong else 0,
        _blocks=lambda: [tabulated(("machine", "what", "state", "message"), rows)],
    )


def register(directory: Path, /) -> Answer:
    """Register every key in server/keys with the running SuperLink.

    Example: fedsim deploy register hospitals

    Args:
        directory: directory that fedsim deploy init wrote, or the folder of the server.
    """
    from fedsim.deployment import kit  # noqa: PLC0415
    from fedsim.deployment import run as deployment  # noqa: PLC0415

    nodes = deployment.register(kit.folder(directory, "server"))
    return _did(*(f"{machine}: node {node}" for machine, node in nodes.items()), report=dict(nodes))


def run(
    directory: Path,
    config: Given,
    /,
    *changes: Change,
    out: Path | None = None,
    experiment: bool = False,
    progress: Progress = None,
) -> Run:
    """Train on the deployed federation, with an adversary. Run it on the server's machine.

    It allows one training only, with noise from the operating system, because the releases of
    several runs about the same people add up. Give the same configuration and run directory again
    to continue a run.

    Example: fedsim deploy run hospitals hospitals/server/deployment.toml

    Args:
        directory: directory that fedsim deploy init wrote, or the folder of the server.
        config: experiment file (TOML), or bundled name.
        changes: changes of configuration keys, as KEY=VALUE.
        out: run directory. Default: fedsim-runs/NAME-TIME.
        experiment: allow settings that protect no client: noise from a seed, or repeated trainings.
        progress: whether to show a bar; None: only in a terminal or a notebook.
    """
    from fedsim.deployment import kit, submission  # noqa: PLC0415  (Flower)

    chosen = configured(config, changed(changes, {"run.out": out}), None)
    configuration_files.check_is_no_training(chosen.run.job, str(config))
    server, shown = kit.folder(directory, "server"), console(progress)
    return load(submission.carry_out(server, chosen, shown, experiment=experiment).path)


def train(
    directory: Path,
    config: Given,
    /,
    *changes: Change,
    out: Path | None = None,
    progress: Progress = None,
) -> Training:
    """Train a model on the deployed federation, once, and keep it. Run it on the server's machine.

    Does the same as `fedsim train`, with each client on its own machine. Give the same command with
    the same --out again to follow a training that still runs, or to continue an interrupted one
    after its last round. Ctrl-C stops the training, and so does `fedsim deploy stop`.

    Example: fedsim deploy train hospitals training.toml --out model

    Args:
        directory: directory that fedsim deploy init wrote, or the folder of the server.
        config: configuration of a training (TOML), or bundled name.
        changes: changes of configuration keys, as KEY=VALUE.
        out: run directory. Default: fedsim-runs/NAME-TIME.
        progress: whether to show a bar; None: only in a terminal or a notebook.
    """
    from fedsim.deployment import kit, submission  # noqa: PLC0415  (Flower)

    chosen = configured(config, changed(changes, {"run.out": out}), "training")
    server, shown = kit.folder(directory, "server"), console(progress)
    return trained(submission.carry_out(server, chosen, shown))


def stop(directory: Path, /) -> Answer:
    """Stop the runs of the deployed federation. Run it on the server's machine.

    What they released stays released. The command that began a run continues it.

    Example: fedsim deploy stop hospitals

    Args:
        directory: directory that fedsim deploy init wrote, or the folder of the server.
    """
    from fedsim.deployment import kit, run  # noqa: PLC0415

    stopped = run.stop(kit.folder(directory, "server"))
    return _did(f"stopped: run {', '.join(stopped)}" if stopped else "no run is running")


def status(directory: Path, /) -> Answer:
    """Show connected clients, the current run and the certificate's lifetime.

    Run it on the server's machine. Exit status 1 if something needs attention.

    Example: fedsim deploy status hospitals

    Args:
        directory: directory that fedsim deploy init wrote, or the folder of the server.
    """
    from fedsim.deployment import kit  # noqa: PLC0415
    from fedsim.deployment.status import status  # noqa: PLC0415

    now = status(kit.folder(directory, "server"))
    lines = [
        f"{node.machine}: {node.state}{f' since {node.since}' * bool(node.since)}"
        for node in now.nodes
    ]
    if (last := now.run) is not None:
        lines.append(f"{last.directory}: {last.state}, round {last.round} of {last.rounds}")
        if last.reason:
            lines.append(f"{last.directory}: {' '.join(last.reason.split())}")
        lines += [f"{who}: no answer for {seconds:.0f} s" for who, seconds in last.busy.items()]
    lines.append(f"certificate: {now.certificate_days:.0f} days left")
    lines += [f"wrong: {problem}" for problem in now.problems]
    return Answer(
        report=asdict(now),
        table=[asdict(node) for node in now.nodes],
        status=1 if now.problems else 0,
        details=now,
        _terminal=lines_of(*lines),
    )


def report(directory: Path, /, *, out: Path | None = None) -> Answer:
    """Report what this client released, when, at what epsilon, and how exposed its records are.

    Run it on the client's machine, for its owner. No result leaves the machine.

    Example: fedsim deploy report /etc/fedsim/client-0

    Args:
        directory: folder of this client.
        out: directory of the report. Default: report in the client's folder.
    """
    from fedsim.reports import client_report  # noqa: PLC0415  (torch and matplotlib are slow)

    path = directory / "node.toml"
    try:
        values = reading.toml(path)
    except FileNotFoundError:
        raise InputError(f"'{directory}' has no node.toml; name the folder of a client") from None
    except reading.DAMAGE as error:
        raise InputError(
            f"cannot read '{path}': {reading.reason(error)}; correct the file"
        ) from None
    assembled = client_report.assemble(values, directory.resolve() / "work")
    place = directory / "report" if out is None else out
    return Answer(
        report=report_json(assembled.as_json()),
        path=place,
        page=client_report.write(assembled, place),
        details=assembled,
        _told=lambda: client_report.told(assembled),
    )


def renew(directory: Path, /, *, days: int = 365) -> Answer:
    """Write a new certificate for the server. All nodes accept it without changes.

    Example: fedsim deploy renew hospitals

    Args:
        directory: directory that fedsim deploy init wrote, with its ca/ folder.
        days: lifetime of the server's certificate, in days, at most 3650.
    """
    from fedsim.deployment import kit  # noqa: PLC0415

    _within("--days", days, 1, LONGEST)
    end = kit.renew(directory, days)
    return _did(
        f"{directory / 'server' / 'server.crt'}: valid until {end:%F}",
        "Copy it and server.key to the server's folder, and restart the proxy there.",
    )


def certificates(directory: Path, /, *, days: int = 365) -> Answer:
    """Write the certificates that identify the machines of a Dask cluster to each other.

    Writes one certificate for all machines, and that of the authority that signed it. A holder of
    key.pem can run code on every machine of the cluster: copy the folder over a secure channel. The
    key of the authority is deleted, so that it signs no other certificate.

    Example: fedsim deploy certificates cluster-tls

    Args:
        directory: path of the new folder.
        days: lifetime of the certificates, in days.
    """
    from fedsim.common import private_files  # noqa: PLC0415
    from fedsim.deployment.certificates import authority, server_certificate  # noqa: PLC0415
    from fedsim.federation.runtimes.workers import AUTHORITY, CERTIFICATE, KEY  # noqa: PLC0415  (torch)

    _within("--days", days, 1, None)
    if directory.exists():
        raise InputError(f"'{directory}' exists; name a new folder")
    issuer = authority(days)
    pair = server_certificate(issuer, ["fedsim-cluster"], days, both_sides=True)
    private_files.make_directory(directory)
    for name, content in ((AUTHORITY, issuer.public), (CERTIFICATE, pair.public)):
        private_files.write_private(directory / name, content)
    private_files.write_private(directory / KEY, pair.private)
    flags = f"--tls-ca-file {AUTHORITY} --tls-cert {CERTIFICATE} --tls-key {KEY}"
    worker = "dask worker tls://HOST:8786 --nthreads 1"
    return _did(
        f"{directory}: {AUTHORITY}, {CERTIFICATE}, {KEY}; valid for {days} days",
        f"Copy it to each machine and run there: dask scheduler --protocol tls {flags}",
        f"or: {worker} {flags}",
    )


def proxy(
    directory: Path, /, *, listen: str = "0.0.0.0", port: int = 8443, superlink_port: int = 8000
) -> None:
    """Pass only the Fleet API from the clients to the SuperLink. start.sh calls it."""
    from fedsim.deployment import kit  # noqa: PLC0415
    from fedsim.deployment.proxy import serve  # noqa: PLC0415

    serve(listen, port, superlink_port, kit.folder(directory, "server"))


def superlink(directory: Path, /) -> None:
    """Run the SuperLink of this machine, and watch its processes. start.sh calls it."""
    from fedsim.deployment.run import serve_superlink  # noqa: PLC0415

    serve_superlink(directory)


def supernode(directory: Path, /) -> None:
    """Run the SuperNode of this machine, and answer its messages. start.sh calls it."""
    from fedsim.deployment import supernode  # noqa: PLC0415

    supernode.serve(directory)
