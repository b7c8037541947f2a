"""The trainings whose models a client kept (`kept_models`), for its own report."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.configuration import Config, from_run_config
from fedsim.federation.client.client_ledger import AnsweredMessage
from fedsim.federation.client.kept_models import CONFIG, FOLDER

MODEL = re.compile(r"round-(\d+)\.npy")


@dataclass(frozen=True)
class SeenTraining:
    """A training whose models a client kept."""

    run: str
    config: Config
    models: dict[int, Path]

    def model(self, round: int) -> npt.NDArray[np.float32]:
        """Return the model [P] at the start of a round. Raises InputError if it is damaged."""
        try:
            model: npt.NDArray[np.float32] = np.load(self.models[round], allow_pickle=False)
        except (OSError, ValueError) as error:
            raise InputError(
                f"cannot read '{self.models[round]}' ({error}); delete this run's folder to leave "
                "the training out of the report"
            ) from None
        return model


@dataclass(frozen=True)
class AnsweredTraining:
    """The answers to a training, over all its runs, and the models that were kept of them."""

    answers: Sequence[AnsweredMessage]
    seen: Mapping[str, SeenTraining]

    @property
    def last(self) -> SeenTraining:
        return self.seen[[each.run for each in self.answers if each.run in self.seen][-1]]

    def model(self, answer: AnsweredMessage) -> npt.NDArray[np.float32] | None:
        """Return the model [P] of an answered round; None if it was not kept."""
        seen = self.seen.get(answer.run)
        return seen.model(answer.round) if seen and answer.round in seen.models else None


def read_seen(state: Path) -> list[SeenTraining]:
    """Return the trainings whose models were kept. Raises InputError if one is damaged."""
    return [of(path.parent) for path in sorted((state / FOLDER).glob(f"*/{CONFIG}"))]


def of(place: Path) -> SeenTraining:
    try:
        config = from_run_config(reading.json_object(place / CONFIG))
    except (*reading.DAMAGE, InputError) as error:
        raise InputError(
            f"cannot read '{place / CONFIG}' ({error}); delete this run's folder to leave the "
            "training out of the report"
        ) from None
    models = {
        int(match[1]): path for path in place.iterdir() if (match := MODEL.fullmatch(path.name))
    }
    return SeenTraining(place.name, config, dict(sorted(models.items())))
