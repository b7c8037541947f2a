"""A server with a strategy of Flower's."""

import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app, trees = ServerApp(), ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train by FedAvg; two clients of a round measure its model."""
    model = ArrayRecord({"weights": torch.zeros(8)})
    rounds = int(context.run_config["num-server-rounds"])
    FedAvg(fraction_evaluate=0.1).start(grid, model, num_rounds=rounds)


@trees.main()
def boost(grid: Grid, context: Context) -> None:
    """Train on a model of bytes, as ensembles of trees are sent."""
    model = ArrayRecord({"trees": torch.zeros(8, dtype=torch.uint8)})
    FedAvg(fraction_evaluate=0.0).start(grid, model, num_rounds=1)
