"""The models that a client was sent in a training, kept beside its ledger for a report of its own.

    trainings/RUN/config.json     the run's configuration, as every node is sent it
    trainings/RUN/round-K.npy     the model [P] that round K began with

They are what every client is sent, and hold nothing of this client alone. The report
(`fedsim.report.client`) measures the client's own records at them. Whoever needs the space may
delete a run's folder; the ledger needs none of it.
"""

import io
import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.common import private_files, reading
from fedsim.config import Config, from_run_config, to_run_config

FOLDER, CONFIG = "trainings", "config.json"

MODEL = re.compile(r"round-(\d+)\.npy")


@dataclass(frozen=True)
class SeenTraining:
    """A training of which a client kept the models.

    Attributes:
        run: Flower's number of it.
        config: the run's configuration.
        models: the files by round, in order.
    """

    run: str
    config: Config
    models: dict[int, Path]

    def model(self, round: int) -> npt.NDArray[np.float32]:
        """Return the model [P] that a round began with.

        round: one of `models`.
        Raises InputError if its file is damaged.
        """
        try:
            found: npt.NDArray[np.float32] = np.load(self.models[round], allow_pickle=False)
        except (OSError, ValueError) as error:
            raise InputError(
                f"cannot read '{self.models[round]}' ({error}); delete this run's folder, and the "
                "report does without it"
            ) from None
        return found


def keep(state: Path, run: str, config: Config, round: int, model: npt.NDArray[np.float32]) -> None:
    """Keep the model that a client was sent in a round.

    state: the folder of the client's ledger.
    run: Flower's number of the training.
    config: its configuration; the client's own folders are not written down.
    model: float32 [P].
    Raises InputError if it cannot be written.
    """
    place = state.resolve() / FOLDER / run
    shared = to_run_config(config.reading_data_from(""))
    content = io.BytesIO()
    np.save(content, model, allow_pickle=False)
    try:
        private_files.make_directory(place)
        if not (place / CONFIG).exists():
            private_files.write(place / CONFIG, json.dumps(shared).encode())
        private_files.write(place / f"round-{round}.npy", content.getvalue())
    except OSError as error:
        raise InputError(
            f"cannot write to '{place}': {error.strerror}; make room, or give this user access"
        ) from None


def read(state: Path) -> list[SeenTraining]:
    """Return the trainings of which models were kept.

    state: the folder of the client's ledger.
    Raises InputError if a configuration is damaged, or of another fedsim.
    """
    return [_read(path.parent) for path in sorted((state / FOLDER).glob(f"*/{CONFIG}"))]


def _read(place: Path) -> SeenTraining:
    try:
        config = from_run_config(reading.json_object(place / CONFIG))
    except (*reading.DAMAGE, InputError) as error:
        raise InputError(
            f"cannot read '{place / CONFIG}' ({error}); delete this run's folder, and the report "
            "does without it"
        ) from None
    found = {
        int(named[1]): path for path in place.iterdir() if (named := MODEL.fullmatch(path.name))
    }
    return SeenTraining(place.name, config, dict(sorted(found.items())))
