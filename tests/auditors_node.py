"""Clients of a federation in this process, with an auditor's node beside them."""

from pathlib import Path

from flwr.app import Context, RecordDict

from fedsim import client_app
from fedsim.configuration import Config, to_run_config
from fedsim.federation.runtimes.inprocess import RUN_ID, InProcessGrid

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
