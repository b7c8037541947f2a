"""What a federation's accuracy loses against pooled records: nothing, at the same epsilon.

Three clients with files of their own train by `fedsim train`, each adding the whole noise that its
message claims; Opacus trains on all of their records in one place, with the noise of the clients'
sum, so that both models are released under the same noise and at the same epsilon.
"""

import logging
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from scipy import stats
from tables import Table
from torch import nn

import fedsim
from fedsim.configuration import Config
from fedsim.configuration import files as configuration_files
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.game import federation
from fedsim.learning.data import own_records, schema
from fedsim.learning.data.dataset import Records
from fedsim.reports import model_card

DEPLOYMENT = Path(__file__).parents[2] / "tests" / "deployment"
sys.path.append(str(DEPLOYMENT))

import own_records as files  # noqa: E402

CLIENTS, ROUNDS = 3, 20


@dataclass(frozen=True)
class Trained:
    """One training of the federation.

    config: its configuration; accuracy: on the public records; noise_multiplier: of each message.
    """

    config: Config
    accuracy: float
    noise_multiplier: float


def measure(smoke: bool, data_root: Path | None) -> Iterator[Table]:
    """Yield the accuracies of trainings that begin at the same models."""
    repeats, rounds = (2, 2) if smoke else (40, ROUNDS)
    logging.getLogger("fedsim").setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        files.main(*(str(place / name) for name in ("public", "0", "1", "2")))
        rows = [
            compared(place, name, data, repeats, rounds)
            for name, data in (("digits", "digits.npz"), ("tumours", "tumours.csv"))
        ]
    yield Table(
        f"Accuracy on public records of a federation of {CLIENTS} and of the pooled records",
        (
            "records",
            "noise multiplier of the sum",
            "fedsim train",
            "pooled, Opacus",
            "difference, paired",
        ),
        rows,
        f"{repeats} trainings of {rounds} rounds each, from the same first models, with the "
        "settings of papers/studies/pooled.py. ±: 95 %.",
    )


def compared(place: Path, name: str, data: str, repeats: int, rounds: int) -> tuple[str, ...]:
    """Return a row: the accuracies of both, and their difference."""
    trained = [_federated(place, name, data, rounds, each) for each in range(repeats)]
    pooled = [_pooled(place, name, data, each) for each in trained]
    federated = [each.accuracy for each in trained]
    differences = np.subtract(federated, pooled)
    return (
        name,
        f"{trained[0].noise_multiplier * CLIENTS**0.5:.3f}",
        _mean(federated),
        _mean(pooled),
        _mean(differences),
    )


def _federated(place: Path, name: str, data: str, rounds: int, seed: int) -> Trained:
    with tempfile.TemporaryDirectory() as folder:
        config = configuration_files.load(
            DEPLOYMENT / f"train-{name}.toml",
            {
                "data.root": str(place / "{client}" / data),
                "data.public-root": str(place / "public" / data),
                "training.rounds": rounds,
                "run.seed": seed,
                "run.out": f"{folder}/run",
            },
            "training",
        )
        card = model_card.read_card(RunDirectory.open(fedsim.train(config).path))
    assert card.utility is not None
    return Trained(config, card.utility.accuracy, card.privacy.noise_multiplier)


def _pooled(place: Path, name: str, data: str, trained: Trained) -> float:
    """Return the accuracy of DP-SGD on all clients' records in one place, by Opacus."""
    agreed = schema.load(str(DEPLOYMENT / f"{name}.toml"))
    parts = [
        own_records.records(str(place / str(client) / data), agreed) for client in range(CLIENTS)
    ]
    features = torch.tensor(np.concatenate([part.features for part in parts]), requires_grad=True)
    labels = torch.tensor(np.concatenate([part.labels for part in parts]))
    config = trained.config
    known = federation.load(config)
    network = federation.build_model(config, known.split.dataset)
    first = federation.initial_parameters(config, known, range(1))[0]
    nn.utils.vector_to_parameters(first, network.parameters())
    model = GradSampleModule(network, loss_reduction="sum")
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[config.training.optimizer]
    optimizer = DPOptimizer(
        kind(model.parameters(), lr=config.training.learning_rate),
        noise_multiplier=trained.noise_multiplier * CLIENTS**0.5,  # of the sum of their noises
        max_grad_norm=config.training.clipping_norm,
        expected_batch_size=config.data.records,
        loss_reduction="mean",
    )
    for _ in range(config.training.rounds):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(features), labels, reduction="sum").backward()
        optimizer.step()
    return _accuracy(model, own_records.records(str(place / "public" / data), agreed))


def _accuracy(model: nn.Module, public: Records) -> float:
    with torch.no_grad():
        guessed = model(torch.tensor(public.features)).argmax(1).numpy()
    return float(np.mean(guessed == public.labels))


def _mean(values: object) -> str:
    numbers = np.asarray(values, dtype=np.float64)
    half = stats.t.ppf(0.975, len(numbers) - 1) * numbers.std(ddof=1) / len(numbers) ** 0.5
    return f"{numbers.mean():.2%} ± {half:.2%}"
