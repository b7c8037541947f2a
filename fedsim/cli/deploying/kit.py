"""`fedsim deploy init`, `check`, `renew` and `register`; and `fedsim cluster`."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table
from rich.text import Text

from adversaries.errors import InputError
from fedsim.cli.deploying.upkeep import Directory
from fedsim.cli.options import CLIENTS, AsJson
from fedsim.cli.terminal import Terminal

Days = Annotated[
    int, typer.Option(min=1, max=3650, help="Lifetime of the server's certificate, in days.")
]
Certificate = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Certificate of the server from your own authority (PEM, with its chain).",
    ),
]
Key = Annotated[Path | None, typer.Option(metavar="FILE", help="Key of --certificate (PEM).")]


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Path of the new directory.")],
    server_address: Annotated[
        str,
        typer.Option(metavar="HOST[:PORT]", help="Host name or address that clients connect to."),
    ],
    clients: Annotated[int, typer.Option(min=2, help=f"{CLIENTS}.")] = 3,
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port that clients connect to.")
    ] = 8443,
    superlink_port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port of the SuperLink, on loopback.")
    ] = 8000,
    listen: Annotated[str, typer.Option(help="Address that the server listens on.")] = "0.0.0.0",
    auditor: Annotated[
        bool, typer.Option("--auditor", help="Add a folder for an auditor.")
    ] = False,
    days: Days = 365,
    certificate: Certificate = None,
    key: Key = None,
    ca: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Certificate of the authority that the nodes trust. Needed with --certificate.",
        ),
    ] = None,
) -> None:
    """Write keys, certificates, scripts and instructions for the server and every client.

    Example: fedsim deploy init hospitals --clients 3 --server-address federation.example.org
    """
    from fedsim.deployment import certificates, kit  # noqa: PLC0415
    from fedsim.deployment.certificates import Own  # noqa: PLC0415

    own = None
    if certificate is not None and key is not None and ca is not None:
        own = Own(certificate, key, ca)
    elif certificate is not None or key is not None or ca is not None:
        raise InputError("a certificate of your own needs all of --certificate, --key and --ca")
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
        own=own,
    )
    end = certificates.end(directory / "server" / "server.crt")
    typer.echo(f"{directory}: {', '.join(written.machines)}; the certificate ends on {end:%F}")
    typer.echo(f"Instructions for each machine: {directory / 'README.md'}")


def check(
    directory: Directory,
    machine: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Machine to check: server, client-K or auditor."),
    ] = None,
    json_: AsJson = False,
) -> None:
    """Check a deployment and say how to fix its problems. Exit status 1 if there are any.

    Example: fedsim deploy check hospitals --machine server
    """
    from fedsim.deployment.checks import connection, machines  # noqa: PLC0415

    results = machines.check_machines(directory, machine)
    wrong = sum(one.state == connection.WRONG for one in results)
    if json_:
        typer.echo(json.dumps({"wrong": wrong, "findings": [vars(one) for one in results]}))
    else:
        line = Column(overflow="fold")  # never shorten a command
        table = Table("machine", "what", "", line, box=None, pad_edge=False)
        colours = {connection.OK: "green", connection.NOTE: "yellow", connection.WRONG: "red"}
        for one in results:
            state = Text(one.state, colours[one.state])
            table.add_row(one.machine, one.what, state, Text(one.message))
        Terminal(highlight=False).print(table)
    raise typer.Exit(1 if wrong else 0)


def renew(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Directory that fedsim deploy init wrote, with its ca/ folder."
        ),
    ],
    days: Days = 365,
    certificate: Certificate = None,
    key: Key = None,
) -> None:
    """Write a new certificate for the server. All nodes accept it without changes.

    Example: fedsim deploy renew hospitals
    """
    from fedsim.deployment.renewal import renew  # noqa: PLC0415

    if (certificate is None) != (key is None):
        raise InputError("a certificate of your own needs both --certificate and --key")
    own = None if certificate is None or key is None else (certificate, key)
    end = renew(directory, days, own)
    typer.echo(f"{directory / 'server' / 'server.crt'}: valid until {end:%F}")
    typer.echo(
        "Copy it and server.key to the server's folder. The proxy reads them within a minute."
    )


def register(directory: Directory) -> None:
    """Register every key in server/keys with the running SuperLink.

    Example: fedsim deploy register hospitals
    """
    from fedsim.deployment import kit  # noqa: PLC0415
    from fedsim.deployment import run as deployment  # noqa: PLC0415

    nodes = deployment.register(kit.folder(directory, "server"))
    for machine, node in nodes.items():
        typer.echo(f"{machine}: node {node}")


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


def certificates(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Path of the new folder.")],
    days: Annotated[int, typer.Option(min=1, help="Lifetime of the certificates, in days.")] = 365,
) -> None:
    """Write the certificates that identify the machines of a Dask cluster to each other.

    Writes one certificate for all machines, and that of the authority that signed it. A holder of
    key.pem can run code on every machine of the cluster: copy the folder over a secure channel. The
    key of the authority is deleted, so that it signs no other certificate.

    Example: fedsim cluster certificates cluster-tls
    """
    from fedsim.common import private_files  # noqa: PLC0415
    from fedsim.deployment.certificates import authority, server_certificate  # noqa: PLC0415
    from fedsim.federation.runtimes.dask_pool import (  # noqa: PLC0415  (torch)
        AUTHORITY,
        CERTIFICATE,
        KEY,
    )

    if directory.exists():
        raise InputError(f"'{directory}' exists; name a new folder")
    issuer = authority(days)
    pair = server_certificate(issuer, ["fedsim-cluster"], days, both_sides=True)
    private_files.make_directory(directory)
    for name, content in ((AUTHORITY, issuer.public), (CERTIFICATE, pair.public)):
        private_files.write_private(directory / name, content)
    private_files.write_private(directory / KEY, pair.private)
    flags = f"--tls-ca-file {AUTHORITY} --tls-cert {CERTIFICATE} --tls-key {KEY}"
    typer.echo(f"{directory}: {AUTHORITY}, {CERTIFICATE}, {KEY}; valid for {days} days")
    typer.echo(f"Copy it to each machine and run there: dask scheduler --protocol tls {flags}")
    worker = "dask worker tls://HOST:8786 --nthreads 1"
    typer.echo(f"                                    or: {worker} {flags}")
