"""The trainings of which a client kept the models, for reports on its own machine."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.config import Config, from_run_config
from fedsim.federation.client.seen_models import CONFIG, FOLDER

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


def read(state: Path) -> list[SeenTraining]:
    """Return the trainings of which models were kept.

    state: the folder of the client's ledger.
    Raises InputError if a configuration is damaged, or of another fedsim.
    """
    return [of(path.parent) for path in sorted((state / FOLDER).glob(f"*/{CONFIG}"))]


def of(place: Path) -> SeenTraining:
    """Return the training of a run's folder. Raises InputError as `read` does."""
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
