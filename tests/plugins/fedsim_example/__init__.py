"""Plug-ins for fedsim: one of every kind, each named in this package's pyproject.toml."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import make_moons
from torch import nn

from adversaries.arrays import Floats
from adversaries.attacks.membership_attacks import Attack
from adversaries.attacks.shadow_models import Observations
from fedsim.audits.results.report import Report
from fedsim.game.mechanisms.step import Step
from fedsim.game.observers.at_server import CuriousServer, Seen
from fedsim.learning.data.loaders.dataset import Dataset, Records, Source
from fedsim.privacy.accounting import GAUSSIAN, Accountant
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.trust.model import Vantage
from fedsim.report.document.blocks import Block, Prose
from fedsim.report.sections.section import Section
from fedsim.report.tracking.trackers import TrackedSubject


def _confidence(targets: Observations, shadows: Observations | None) -> Floats:
    scores: Floats = -targets.losses
    return scores


CONFIDENT = Attack(_confidence, "Confidence", "the loss alone", threshold=-0.5, needs=frozenset())


class Quiet(CuriousServer):
    """A curious server that claims no exact posterior."""

    exact = False

    def observe(self, seen: Seen) -> Mapping[Vantage, Step]:
        """Return what the curious server concludes."""
        return super().observe(seen)


def two_moons(source: Source) -> Dataset:
    """Return two half circles of points in the plane, which a linear model cannot separate."""
    points, labels = make_moons(400, noise=0.1, random_state=0)
    return Dataset(source.name, Records(points.astype(np.float32), labels), None, 2, "tabular")


def tanh(shape: tuple[int, ...], classes: int, hidden: int) -> nn.Module:
    """Return a network with one hidden layer of tanh."""
    features = torch.Size(shape).numel()
    return nn.Sequential(
        nn.Flatten(), nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, classes)
    )


class Doubled(Accountant):
    """Twice the epsilon of the closed form: loose, and still a bound."""

    name = "doubled"
    title = "Twice the closed form"
    covers = "full batches; add-remove and replace"

    def _epsilon(self, mechanism: Mechanism, delta: float) -> float:
        return 2 * GAUSSIAN.epsilon(mechanism, delta)

    def _delta(self, mechanism: Mechanism, epsilon: float) -> float:
        return GAUSSIAN.delta(mechanism, epsilon / 2)


DOUBLED = Doubled()


class Lines:
    """A tracker that writes one line for each number into a file."""

    def __init__(self, place: str) -> None:
        self._path = Path(place)

    def begin(self, subject: TrackedSubject) -> Mapping[str, int]:
        """Begin a run."""
        self._path.write_text(f"run {subject.name}\n")
        return {}

    def log(self, values: Mapping[str, float], step: int, time: float) -> None:
        """Append a line for each number."""
        with self._path.open("a") as file:
            file.writelines(f"{step} {name} {value:g}\n" for name, value in values.items())

    def end(self, finished: bool) -> None:
        """End a run."""
        with self._path.open("a") as file:
            file.write("finished\n" if finished else "interrupted\n")


def _rounds(report: Report) -> list[Block]:
    return [Prose(f"Every trial had {report.rounds} rounds.")]


ROUNDS = Section("How many rounds", _rounds)
