"""A server with a strategy of Flower's."""

import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train by FedAvg; two clients of a round measure its model."""
    model = ArrayRecord({"weights": torch.zeros(8)})
    rounds = int(context.run_config["num-server-rounds"])
    FedAvg(fraction_evaluate=0.1).start(grid, model, num_rounds=rounds)
