"""Servers without a strategy, which send their messages themselves."""

from collections.abc import Iterable

import torch
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

analytics, trains = ServerApp(), ServerApp()


def _sent(grid: Grid, kind: str, content: RecordDict) -> Iterable[Message]:
    nodes = grid.get_node_ids()
    return grid.send_and_receive([Message(content, node, kind) for node in nodes])


@analytics.main()
def count(grid: Grid, context: Context) -> None:
    """Add the clients' histograms up, and fail without any."""
    replies = [each for each in _sent(grid, "query", RecordDict()) if not each.has_error()]
    if not replies:
        raise ValueError("no valid replies")


@trains.main()
def train(grid: Grid, context: Context) -> None:
    """Have every client train, and drop what they return."""
    model = ArrayRecord({"weights": torch.zeros(8)})
    list(_sent(grid, "train", RecordDict({"arrays": model})))
