"""A server of the older stack: client-side clipping, and the workflow of secure aggregation."""

import numpy as np
from flwr.app import Context
from flwr.common import ndarrays_to_parameters
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import DifferentialPrivacyClientSideFixedClipping, FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the workflow."""
    inner = FedAvg(initial_parameters=ndarrays_to_parameters([np.zeros(8)]))
    strategy = DifferentialPrivacyClientSideFixedClipping(inner, 0.2, 10, 5)
    older = LegacyContext(context, ServerConfig(2), strategy)
    DefaultWorkflow(SecAggPlusWorkflow(num_shares=3, reconstruction_threshold=2))(grid, older)
