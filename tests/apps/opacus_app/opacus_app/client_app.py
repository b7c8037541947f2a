"""The clients: an epoch of DP-SGD on a share of the digits, with a new engine in every round.

Its epsilon is that of the round, unless the run config keeps the accountant's history in the node.
"""

import warnings

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from opacus import PrivacyEngine
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fedsim.recording import opacus

app = ClientApp()

HISTORY = "accountant"
"""What a node keeps between rounds, whatever process trains there."""


def model() -> nn.Module:
    """Return softmax regression on 8x8 pixels."""
    return nn.Linear(64, 10)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the received model privately; report the epsilon of this round."""
    config, partition = context.run_config, int(context.node_config["partition-id"])
    net = model()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    digits = load_digits()
    mine = slice(partition, None, int(context.node_config["num-partitions"]))
    images = torch.tensor(digits.data[mine] / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target[mine])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine = PrivacyEngine()
        if path := str(config["client-transcript"]):
            opacus(engine, path.replace("{node}", str(partition)), resume=True)
        if config["keep-accountant"] and HISTORY in context.state:
            engine.accountant.history = list(zip(*context.state[HISTORY].values(), strict=True))
        private, optimizer, loader = engine.make_private(
            module=net,
            optimizer=torch.optim.SGD(net.parameters(), lr=0.5),
            data_loader=DataLoader(TensorDataset(images, labels), batch_size=64),
            noise_multiplier=float(config["noise-multiplier"]),
            max_grad_norm=float(config["clipping-norm"]),
        )
        for batch, target in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(private(batch), target).backward()
            optimizer.step()
        epsilon = engine.get_epsilon(float(config["delta"]))
    multipliers, rates, steps = map(list, zip(*engine.accountant.history, strict=True))
    context.state[HISTORY] = MetricRecord({"z": multipliers, "q": rates, "steps": steps})
    metrics = MetricRecord({"num-examples": len(labels), "epsilon": float(epsilon)})
    content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)
