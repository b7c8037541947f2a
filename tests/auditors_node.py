"""Clients of a federation in this process, with an auditor's node beside them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context, RecordDict

from fedsim import client_app, server_app
from fedsim.configuration import Config, to_run_config
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.inprocess import RUN_ID, InProcessGrid
from fedsim.federation.server.plan import preflight

AUDITOR = 7777


def with_auditor(config: Config, transcripts: Path, run_id: int = RUN_ID) -> InProcessGrid:
    """Return the grid of a run whose auditor records to a folder.

    run_id: as Flower has it, which numbers a continued run anew.
    """
    run_config = to_run_config(config)
    grid = InProcessGrid(client_app.app, config.federation.clients, run_config)
    grid.contexts[AUDITOR] = Context(
        run_id=run_id,
        node_id=AUDITOR,
        node_config={"role": "auditor", "transcript-path": str(transcripts)},
        state=RecordDict(),
        run_config=run_config,
    )
    for context in grid.contexts.values():
        context.run_id = run_id
    return grid


def run_with_auditor(
    config: Config,
    folder: Path,
    node_config: Mapping[str, Any] | None = None,
    run_id: int = RUN_ID,
) -> RunDirectory:
    """Run with an auditor beside the clients, and return the run's directory, `folder`/run.

    The auditor's transcripts are in `folder`/transcripts. The first client's node has `node_config`
    besides.
    """
    directory = RunDirectory.create(folder / "run", config)
    grid = with_auditor(config, folder / "transcripts", run_id)
    grid.contexts[1000].node_config.update(node_config or {})
    server_app.carry_out(grid, preflight(config), directory)
    return directory
