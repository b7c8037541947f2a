"""`fedsim deploy` while a federation lives: how it is, another key, another version."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fedsim.cli.options import AsJson


def rotate(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The node's own folder.")],
) -> None:
    """Make another key for a node, on its machine; the old one serves until the new is registered.

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
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The whole kit.")],
) -> None:
    """Write what every machine needs of this version; keys, settings and ledgers are no part of it.

    Example: fedsim deploy upgrade hospitals
    """
    from fedsim.deployment.upkeep import upgrade  # noqa: PLC0415

    out = upgrade(directory)
    typer.echo(
        f"{out}: copy each folder over that of its machine, the server's first, and give "
        f"install.sh there, with the SHA-256 that {directory / 'README.md'} tells"
    )


def status(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The kit, or the folder of the server.")
    ],
    json_: AsJson = False,
) -> None:
    """Say who is connected, what runs and how long the certificate lasts; on the server's machine.

    Exit status 1 if anything is to be looked at.

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
        typer.echo(f"certificate: {found.certificate_days:.0f} days left")
        for problem in found.problems:
            typer.echo(f"wrong: {problem}")
    raise typer.Exit(1 if found.problems else 0)
