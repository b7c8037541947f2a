"""The models that a client was sent in a training, kept beside its ledger for a report of its own.

    trainings/RUN/config.json     the run's configuration, as every node is sent it
    trainings/RUN/round-K.npy     the model [P] that round K began with

They are what every client is sent, and hold nothing of this client alone. The report
(`fedsim.report.client`) measures the client's own records at them, as `seen_trainings` reads them.
To have the space, delete a run's folder; the ledger needs none of it.
"""

import io
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.common import private_files
from fedsim.config import Config, to_run_config

FOLDER, CONFIG = "trainings", "config.json"


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
