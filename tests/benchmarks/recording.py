"""What recording costs: seconds of a step of Opacus with a transcript beside those without."""

import statistics
import tempfile
import time
import warnings
from pathlib import Path

import torch
from opacus import PrivacyEngine
from tables import Table
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fedsim.recording import opacus

RECORDS, BATCH = 6000, 60
NOTE = (
    "Medians of 59 steps in which the three trainings take turns, 60 records of 28x28 in a batch. "
    "Every step is on the disk before the next. "
    "A transcript keeps 65536 of a step's parameters unless it is told otherwise."
)
NETWORKS = {
    "softmax, 7 850": lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 10)),
    "convolutional, 26 010": lambda: nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10),
    ),
    "fully connected, 407 050": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10)
    ),
}  # fmt: skip


KEPT = {"none": None, "65536": 2**16, "all": 2**62}
"""How many parameters of a step the contestants keep, None for no transcript."""


def measure(smoke):
    """Yield the seconds of a step without and with a transcript, and its size.

    smoke: whether to take few steps of the smallest network.
    """
    rows = []
    for name in list(NETWORKS)[: 1 if smoke else None]:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            paths = {kept: Path(folder) / f"{kept}.fedt" for kept in KEPT}
            trainings = {kept: _steps(name, paths[kept], KEPT[kept]) for kept in KEPT}
            steps = 3 if smoke else 60
            # The first step is start-up. They take turns, so that they meet the same machine.
            taken = [{who: next(each) for who, each in trainings.items()} for _ in range(steps)][1:]
            medians = {who: statistics.median(step[who] for step in taken) for who in KEPT}
            bare = medians.pop("none")
            for kept, seconds in medians.items():
                size = paths[kept].stat().st_size / steps / 2**20
                rows.append((name, kept, bare * 1e3, seconds * 1e3, seconds / bare, size))
    columns = ("parameters", "kept", "ms a step", "recorded", "ratio", "MiB a step")
    yield Table("A step of Opacus, recorded", columns, rows, NOTE)


def _steps(name, path, parameters):
    """Train, and yield the seconds of each step; parameters: as of `KEPT`."""
    torch.manual_seed(0)
    data = TensorDataset(torch.rand(RECORDS, 1, 28, 28), torch.randint(0, 10, (RECORDS,)))
    model, engine = NETWORKS[name](), PrivacyEngine()
    if parameters is not None:
        opacus(engine, path, parameters=parameters)
    private, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), 0.1),
        data_loader=DataLoader(data, batch_size=BATCH),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    for images, labels in loader:
        start = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(private(images), labels).backward()
        optimizer.step()
        yield time.perf_counter() - start
