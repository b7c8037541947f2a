"""The models that a client received in a training, beside its ledger, for its own report."""

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.common import private_files, reading
from fedsim.configuration import Config, Scalar, from_run_config
from fedsim.federation.client.client_ledger import AnsweredMessage

FOLDER, CONFIG = "trainings", "config.json"


def keep(
    state: Path, run: str, values: Mapping[str, Scalar], round: int, model: npt.NDArray[np.float32]
) -> None:
    """Keep the model that a client received in a round.

    state: the folder of the client's ledger.
    values: the run's configuration by key, without the client's own paths.
    model: float32 [P].
    Raises InputError if it cannot be written.
    """
    place = state.resolve() / FOLDER / run
    content = io.BytesIO()
    np.save(content, model, allow_pickle=False)
    try:
        private_files.make_directory(place)
        if not (place / CONFIG).exists():
            private_files.write_private(place / CONFIG, json.dumps(values).encode())
        private_files.write_private(place / f"round-{round}.npy", content.getvalue())
    except OSError as error:
        raise InputError(
            f"cannot write to '{place}': {error.strerror}; make room, or give this user access"
        ) from None


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
