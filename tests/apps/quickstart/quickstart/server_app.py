"""The server: FedAvg, in one of Flower's DP wrappers or none, and one line that records it."""

import numpy as np
import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    Strategy,
)

from fedsim.recording import record
from quickstart.task import Net

app = ServerApp()

WRAPPERS = {
    "server": DifferentialPrivacyServerSideFixedClipping,
    "client": DifferentialPrivacyClientSideFixedClipping,
}


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federation."""
    config = context.run_config
    torch.manual_seed(config["seed"])
    np.random.seed(config["seed"])  # noqa: NPY002  (Flower draws its noise from there)
    strategy: Strategy = FedAvg(min_available_nodes=2)
    if wrapper := WRAPPERS.get(config["privacy"]):
        strategy = wrapper(
            strategy,
            config["noise-multiplier"],
            config["clipping-norm"],
            len(list(grid.get_node_ids())),
        )
    if config["transcripts"]:
        strategy = record(strategy, f"{config['transcripts']}/server.fedt", app="quickstart")
    strategy.start(grid, ArrayRecord(Net().state_dict()), num_rounds=config["num-server-rounds"])
