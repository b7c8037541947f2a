"""Every client's node, found and asked whether it holds what the server expects."""

from functools import partial

from flwr.serverapp import Grid

from fedsim.config import Config
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.server.nodes import Auditors, check_data, connect, registered_nodes
from fedsim.game import federation

CONNECT_TIMEOUT = 300.0
"""Seconds in which every client's node must have connected."""


def connected(
    grid: Grid, config: Config, directory: RunDirectory
) -> tuple[dict[int, int], Auditors]:
    """Return the node of every client, all of which hold the server's data, and the auditors.

    directory: of the run; where it names the clients' nodes, no others are let in.
    Raises InputError if too few clients answer in time, or one holds other data.
    """
    nodes, present, asked = connect(
        grid,
        config.federation.clients,
        CONNECT_TIMEOUT,
        registered_nodes(directory),
        directory.log_event,
    )
    check_data(
        grid,
        nodes,
        partial(federation.digest, config),
        config.federation.timeout,
        directory.log_event,
    )
    auditors = Auditors(nodes.values(), present, directory.log_event, asked)
    return nodes, auditors
