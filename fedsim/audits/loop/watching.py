"""Observes a loop's runs: the steps of Opacus, the records of its loaders, and what it returns."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from adversaries.arrays import Floats
from fedsim.audits.loop.loader_records import contents
from fedsim.audits.loop.measurement import ObservedRun
from fedsim.audits.steps.classes import ClassWatch, rest
from fedsim.audits.steps.step import Step, watched_step
from fedsim.audits.steps.watch import WatchedStep


@dataclass
class LoopWatch(ClassWatch):
    """Observations since `clear`.

    Attributes:
        watched: steps with their arrays.
        noises: noise of each step, in configured standard deviations.
    """

    steps: list[Step] = field(default_factory=list)
    watched: list[WatchedStep] = field(default_factory=list)
    noises: list[Floats] = field(default_factory=list)

    def take(self, step: WatchedStep) -> None:
        seen = watched_step(len(self.steps) + 1, step)
        self.steps.append(seen)
        self.noises.append(step.noise / seen.std if seen.std > 0 else np.empty(0))
        self.watched.append(step)

    def contents(self, given: tuple[Any, Any] | None) -> list[str] | None:
        """Return checksums of the loader's records, as `loader_records.contents` does."""
        dataset = self.batches.dataset
        return [] if dataset is None or given is None else contents(dataset, given)

    def seen(
        self,
        model: Floats | None,
        released: Floats,
        beside: tuple[tuple[str, str], ...],
        given: tuple[Any, Any] | None,
    ) -> ObservedRun:
        """Return the observations of a run.

        Args:
            model: numbers of the returned model; None where the function returned nothing.
            released: everything that the run released.
            beside: the model's integer tensors, as `contract.carried` returns them.
            given: the records' features [n, ...] and labels [n]; None where they are not known.
        """
        records = self.contents(given)
        end = np.empty(0) if self.state is None else self.state
        kept = rest(end if model is None else model, end)
        start = end if self.start is None else self.start
        return ObservedRun(
            steps=tuple(self.steps),
            statement=self.statement,
            size=self.batches.records,
            records=tuple(sorted(records or ())),
            computed=type(self.batches.dataset).__name__ if records is None else "",
            explained=bool(self.steps) and kept is not None and not self.moved,
            epochs=self.batches.epochs,
            beside=beside,
            unnoised=self.unnoised,
            start=_checksum(start if kept is None else np.append(start, kept)),
            released=_checksum(released),
            values=len(np.unique(released)),
        )


def _checksum(values: Floats) -> str:
    return hashlib.sha256(values.tobytes()).hexdigest()
