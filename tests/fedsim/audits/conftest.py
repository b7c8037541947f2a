"""Runs of the federation in this process, with their reports."""

import pytest

from fedsim import client_app, server_app
from fedsim.audits.run import report as results
from fedsim.configuration import to_run_config
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.server.plan import preflight


@pytest.fixture
def reported(tmp_path):
    """Return a function that runs a configuration, and returns its directory and its report.

    node_config: returns what the node of a number has in its own configuration besides.
    """

    def execute(config, node_config=lambda node: {}):
        directory = RunDirectory.create(tmp_path / "run", config)
        grid = InProcessGrid(client_app.app, config.federation.clients, to_run_config(config))
        for node, context in grid.contexts.items():
            context.node_config.update(node_config(node))
        server_app.carry_out(grid, preflight(config), directory)
        return directory, results.read(directory)

    return execute
