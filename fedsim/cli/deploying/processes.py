"""What the kit's scripts call: the processes of a deployment."""

from typing import Annotated

import typer

from fedsim.cli.deploying.options import Directory


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
    """Become the SuperLink of this machine. start.sh calls it."""
    from fedsim.deployment import superlink  # noqa: PLC0415

    superlink.start(directory)


def supernode(directory: Directory) -> None:
    """Become the SuperNode of this machine. start.sh calls it."""
    from fedsim.deployment import supernode  # noqa: PLC0415

    supernode.start(directory)


def apps(directory: Directory, parent: Annotated[int, typer.Argument()]) -> None:
    """Start the processes of the SuperNode's tasks, beside it. `supernode` calls it."""
    from fedsim.deployment import supernode  # noqa: PLC0415

    supernode.serve_apps(directory, parent)
