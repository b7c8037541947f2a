"""`fedsim deploy` while a federation lives: status, keys, versions, and a client's own report."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from adversaries.errors import InputError
from fedsim.cli.options import AsJson
from fedsim.cli.terminal import Terminal, print_json
from fedsim.common import reading
from fedsim.common.strict_json import report_json

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="Kit, or folder of this machine.")]


def rotate(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the node.")],
) -> None:
    """Make a new key for a node, on its machine. The old key works until the new one is registered.

    Example: fedsim deploy rotate /etc/fedsim/client-0
    """
    from fedsim.deployment import upkeep  # noqa: PLC0415

    machine, fingerprint = upkeep.rotate(directory)
    typer.echo(f"{directory / upkeep.NEXT}: {fingerprint}")
    typer.echo(
        f"Send {upkeep.NEXT}.pub to the server, as keys/{machine}.pub of its folder, where it is "
        "given: fedsim deploy register. This node then ends, and takes the key up when it starts."
    )


def upgrade(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Kit of the whole federation.")],
) -> None:
    """Write the files of this version for every machine, without keys, settings and ledgers.

    Example: fedsim deploy upgrade hospitals
    """
    from fedsim.deployment.upkeep import upgrade  # noqa: PLC0415

    out = upgrade(directory)
    typer.echo(
        f"{out}: copy each folder over that of its machine, the server's first, and give "
        f"install.sh there, with the SHA-256 that {directory / 'README.md'} tells"
    )


def status(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Kit, or folder of the server.")],
    json_: AsJson = False,
) -> None:
    """Show connected clients, the current run and the certificate's lifetime.

    Run it on the server's machine. Exit status 1 if something needs attention.

    Example: fedsim deploy status hospitals
    """
    from fedsim.deployment import kit  # noqa: PLC0415
    from fedsim.deployment.status import status  # noqa: PLC0415

    found = status(kit.folder(directory, "server"))
    if json_:
        typer.echo(json.dumps(asdict(found)))
    else:
        for node in found.nodes:
            typer.echo(f"{node.machine}: {node.state}{f' since {node.since}' * bool(node.since)}")
        if (last := found.run) is not None:
            typer.echo(f"{last.directory}: {last.state}, round {last.round} of {last.rounds}")
            for busy in last.busy:
                typer.echo(f"{busy.machine}: no answer for {busy.seconds:.0f} s")
        typer.echo(f"certificate: {found.certificate_days:.0f} days left")
        for problem in found.problems:
            typer.echo(f"wrong: {problem}")
    raise typer.Exit(1 if found.problems else 0)


def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of this client.")],
    others: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="Records that the training did not use, for an attack on the model.",
        ),
    ] = "",
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Released model of the last training. Default: the last model sent to this "
            "client.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Directory of the report. Default: report in DIR."),
    ] = None,
    json_: AsJson = False,
) -> None:
    """Report what this client released, when, at what epsilon, and how exposed its records are.

    Run it on the client's machine, for its owner. No result leaves the machine.

    Example: fedsim deploy report /etc/fedsim/client-0 --others public.csv
    """
    from fedsim.report.client import client_page  # noqa: PLC0415  (torch and matplotlib are slow)
    from fedsim.report.client.report import Node, assemble  # noqa: PLC0415

    path = directory / "node.toml"
    try:
        values = reading.toml(path)
    except FileNotFoundError:
        raise InputError(f"'{directory}' is no client's folder: it has no node.toml") from None
    except reading.DAMAGE as error:
        raise InputError(f"cannot read '{path}': {reading.reason(error)}; mend it") from None
    node = Node.of(values, directory.resolve() / "work")
    found = assemble(node, others, model)
    written = client_page.write(found, directory / "report" if out is None else out)
    if json_:
        print_json(report_json(found))
    console = Terminal(stderr=True)
    console.print(client_page.summary(found))
    console.print(f"Report: {written}", soft_wrap=True, highlight=False)


def proxy(
    directory: Directory,
    listen: Annotated[str, typer.Option()] = "0.0.0.0",
    port: Annotated[int, typer.Option()] = 8443,
    superlink_port: Annotated[int, typer.Option()] = 8000,
) -> None:
    """Pass the Fleet API, and nothing else, from the clients to the SuperLink. start.sh calls
    it."""
    from fedsim.deployment import kit  # noqa: PLC0415
    from fedsim.deployment.proxy import serve  # noqa: PLC0415

    serve(listen, port, superlink_port, kit.folder(directory, "server"))


def superlink(directory: Directory) -> None:
    """Start the SuperLink of this machine in place of this process. start.sh calls it."""
    from fedsim.deployment import superlink  # noqa: PLC0415

    superlink.start(directory)


def supernode(directory: Directory) -> None:
    """Start the SuperNode of this machine in place of this process. start.sh calls it."""
    from fedsim.deployment import supernode  # noqa: PLC0415

    supernode.start(directory)


def apps(directory: Directory, parent: Annotated[int, typer.Argument()]) -> None:
    """Start the processes of the SuperNode's tasks, beside it. `supernode` calls it."""
    from fedsim.deployment import supernode  # noqa: PLC0415

    supernode.serve_apps(directory, parent)
