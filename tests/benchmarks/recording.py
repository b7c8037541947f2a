"""What recording costs: seconds of a step of Opacus with a transcript beside those without."""

import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from opacus import PrivacyEngine
from tables import Table, Value
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fedsim.recording import opacus

RECORDS, BATCH = 6000, 60
NOTE = (
    "One run of each, 60 records of 28x28 in a batch. Every step is on the disk before the next. "
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


def measure(smoke: bool) -> Iterator[Table]:
    """Yield the seconds of a step without and with a transcript, and its size.

    smoke: whether to take few steps of the smallest network.
    """
    rows: list[tuple[Value, ...]] = []
    for name in list(NETWORKS)[: 1 if smoke else None]:
        steps = 3 if smoke else 40
        bare, _ = _seconds(name, steps, None)
        cases: dict[str, int | None] = {"65536": 2**16, "all": None}
        for kept, parameters in cases.items():
            seconds, size = _seconds(name, steps, parameters or 2**62)
            rows.append((name, kept, bare * 1e3, seconds * 1e3, seconds / bare, size / 2**20))
    columns = ("parameters", "kept", "ms a step", "recorded", "ratio", "MiB a step")
    yield Table("A step of Opacus, recorded", columns, rows, NOTE)


def _seconds(name: str, steps: int, parameters: int | None) -> tuple[float, float]:
    """Return the seconds of a step, and bytes of its transcript; parameters: None for none."""
    torch.manual_seed(0)
    data = TensorDataset(torch.rand(RECORDS, 1, 28, 28), torch.randint(0, 10, (RECORDS,)))
    model = NETWORKS[name]()
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        engine, path = PrivacyEngine(), Path(folder) / "steps.fedt"
        if parameters is not None:
            opacus(engine, path, parameters=parameters)
        private, optimizer, loader = engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), 0.1),
            data_loader=DataLoader(data, batch_size=BATCH),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
        )
        start = done = 0.0
        for step, (images, labels) in enumerate(loader):
            if step == 1:  # the first is start-up
                start = time.perf_counter()
            optimizer.zero_grad()
            nn.functional.cross_entropy(private(images), labels).backward()
            optimizer.step()
            done = time.perf_counter()
            if step == steps - 1:
                break
        size = path.stat().st_size / steps if parameters is not None else 0.0
        return (done - start) / (steps - 1), size
