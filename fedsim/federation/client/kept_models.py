"""The models that a client received in a training, and its config.json, beside its ledger."""

import io
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.common import private_files
from fedsim.configuration import Scalar

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
