"""`fedsim deploy` for a running federation: status, and a client's own report."""

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

Directory = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        help="Directory that fedsim deploy init wrote, or the folder of this machine.",
    ),
]


def status(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Directory that fedsim deploy init wrote, or the folder of the server.",
        ),
    ],
    json_: AsJson = False,
) -> None:
    """Show connected clients, the current run and the certificate's lifetime.

    Run it on the server's machine. Exit status 1 if something needs attention.

    Example: fedsim deploy status hospitals
    """
    from fedsim.deployment import kit  # noqa: PLC0415
    from fedsim.deployment.checks.status import status  # noqa: PLC0415

    now = status(kit.folder(directory, "server"))
    if json_:
        typer.echo(json.dumps(asdict(now)))
    else:
        for node in now.nodes:
            typer.echo(f"{node.machine}: {node.state}{f' since {node.since}' * bool(node.since)}")
        if (last := now.run) is not None:
            typer.echo(f"{last.directory}: {last.state}, round {last.round} of {last.rounds}")
            if last.reason:
                typer.echo(f"{last.directory}: {' '.join(last.reason.split())}")
            for busy in last.busy:
                typer.echo(f"{busy.machine}: no answer for {busy.seconds:.0f} s")
        typer.echo(f"certificate: {now.certificate_days:.0f} days left")
        for problem in now.problems:
            typer.echo(f"wrong: {problem}")
    raise typer.Exit(1 if now.problems else 0)


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
    from fedsim.report.client.report import ClientNode, assemble  # noqa: PLC0415

    path = directory / "node.toml"
    try:
        values = reading.toml(path)
    except FileNotFoundError:
        raise InputError(f"'{directory}' has no node.toml; name the folder of a client") from None
    except reading.DAMAGE as error:
        raise InputError(
            f"cannot read '{path}': {reading.reason(error)}; correct the file"
        ) from None
    node = ClientNode.of(values, directory.resolve() / "work")
    assembled = assemble(node, others, model)
    written = client_page.write_client_page(assembled, directory / "report" if out is None else out)
    if json_:
        print_json(report_json(assembled.as_json()))
    console = Terminal(stderr=True)
    console.print(client_page.summary(assembled))
    console.print(f"Report: {written}", soft_wrap=True, highlight=False)


def proxy(
    directory: Directory,
    listen: Annotated[str, typer.Option()] = "0.0.0.0",
    port: Annotated[int, typer.Option()] = 8443,
    superlink_port: Annotated[int, typer.Option()] = 8000,
) -> None:
    """Pass only the Fleet API from the clients to the SuperLink. start.sh calls it."""
    from fedsim.deployment import kit  # noqa: PLC0415
    from fedsim.deployment.proxy import serve  # noqa: PLC0415

    serve(listen, port, superlink_port, kit.folder(directory, "server"))


def superlink(directory: Directory) -> None:
    """Run the SuperLink of this machine, and watch its processes. start.sh calls it."""
    from fedsim.deployment.run import serve_superlink  # noqa: PLC0415

    serve_superlink(directory)


def supernode(directory: Directory) -> None:
    """Run the SuperNode of this machine, and answer its messages. start.sh calls it."""
    from fedsim.deployment import supernode  # noqa: PLC0415

    supernode.serve(directory)
