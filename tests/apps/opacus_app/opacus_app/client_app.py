"""The clients: epochs of DP-SGD on a share of the digits, with a new engine in every round.

Its epsilon is that of the round, unless the run config keeps the accountant's history in the node.
The run config may also name a wrong variant.
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
from opacus_app import variants

app = ClientApp()

HISTORY = "accountant"
"""What a node keeps between rounds, whatever process trains there."""


def model() -> nn.Module:
    """Return softmax regression on 8x8 pixels."""
    return nn.Linear(64, 10)


def private_epochs(net: nn.Module, images: torch.Tensor, labels: torch.Tensor, context: Context):
    """Train with Opacus; return what its accountant says, and its history."""
    config, partition = context.run_config, int(context.node_config["partition-id"])
    variant, engine = str(config["variant"]), PrivacyEngine()
    if path := str(config["client-transcript"]):
        opacus(engine, path.replace("{node}", str(partition)), resume=True)
    if config["keep-accountant"] and HISTORY in context.state:
        engine.accountant.history = list(zip(*context.state[HISTORY].values(), strict=True))
    private, optimizer, loader = engine.make_private(
        module=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.5),
        data_loader=DataLoader(TensorDataset(images, labels), batch_size=64),
        noise_multiplier=0.0 if variant == "no noise" else float(config["noise-multiplier"]),
        max_grad_norm=float(config["clipping-norm"]),
        noise_generator=variants.generator(variant),
    )
    variants.change(optimizer, variant)
    for _ in range(int(config["local-epochs"])):
        for batch, target in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(private(batch), target).backward()
            optimizer.step()
    spent = engine.get_epsilon(float(config["delta"])) if optimizer.noise_multiplier else 0.0
    return spent, engine.accountant.history


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
    variant, epsilon, history = str(config["variant"]), 0.0, [(0.0, 0.0, 0)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if variant == "without engine" and partition == 0:
            variants.plain_epoch(net, images, labels)
        else:
            epsilon, history = private_epochs(net, images, labels, context)
    if variant == "shares a part":
        variants.share_a_part(net, images, labels)
    multipliers, rates, steps = map(list, zip(*history, strict=True))
    context.state[HISTORY] = MetricRecord({"z": multipliers, "q": rates, "steps": steps})
    metrics = MetricRecord({"num-examples": len(labels), "epsilon": float(epsilon)})
    content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)
