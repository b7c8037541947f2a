"""Clients of message functions: one that trains, one that answers queries."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app, asked, broken = ClientApp(), ClientApp(), ClientApp()

EVALUATED: list[int] = []
"""Partitions that measured a model."""


@app.train()
def train(message: Message, context: Context) -> Message:
    """Move the model to the client's number."""
    state = message.content["arrays"].to_torch_state_dict()
    state = {name: value + 0.5 for name, value in state.items()}
    metrics = MetricRecord({"num-examples": 10})
    content = RecordDict({"arrays": ArrayRecord(state), "metrics": metrics})
    return Message(content, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Measure nothing, and note that it was asked for."""
    EVALUATED.append(int(context.node_config["partition-id"]))
    metrics = MetricRecord({"loss": 1.0, "num-examples": 10})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


@app.query()
@asked.query()
def query(message: Message, context: Context) -> Message:
    """Return a histogram of the client's numbers."""
    bins = torch.histc(torch.arange(10.0), 5).tolist()
    return Message(RecordDict({"results": MetricRecord({"bins": bins})}), reply_to=message)


@broken.query()
def unconnected(message: Message, context: Context) -> Message:
    """Fail for want of a database's driver."""
    raise ModuleNotFoundError("No module named 'nowhere'")
