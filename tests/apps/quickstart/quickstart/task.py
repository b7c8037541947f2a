"""The model, the data and the training loop."""

from collections.abc import Iterator

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn


class Net(nn.Module):
    """Two layers on 8x8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(64, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(torch.relu(self.fc1(x)))


def load_data(partition: int, partitions: int) -> tuple[Tensor, Tensor]:
    """Return a client's digits; later partitions have more of them."""
    digits = load_digits()
    images = torch.tensor(digits.data / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    total = partitions * (partitions + 1) // 2
    begin = partition * (partition + 1) // 2 * len(labels) // total
    end = (partition + 1) * (partition + 2) // 2 * len(labels) // total
    return images[begin:end], labels[begin:end]


def _batches(images: Tensor, labels: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    yield from zip(images.split(size), labels.split(size), strict=True)


def train(
    net: nn.Module, images: Tensor, labels: Tensor, epochs: int, learning_rate: float
) -> float:
    """Train in place; return the loss of the last batch."""
    optimizer = torch.optim.SGD(net.parameters(), lr=learning_rate)
    last = 0.0
    for _ in range(epochs):
        for batch, target in _batches(images, labels, 32):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(batch), target)
            loss.backward()
            optimizer.step()
            last = loss.item()
    return last


def evaluate(net: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the accuracy."""
    with torch.no_grad():
        return float((net(images).argmax(1) == labels).float().mean())
