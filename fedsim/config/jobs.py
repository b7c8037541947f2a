"""What the commands make of one file: an experiment, a training, or the rehearsal of a training.

`fedsim train` and `fedsim rehearse` read the same file. What says how a model is trained is the
same for both; a training has no challenge, no adversary and no repetitions, and noise that nobody
can draw again.
"""

from collections.abc import Callable, Mapping
from typing import Any

from fedsim.common.tables import Scalar
from fedsim.config.campaign import AuditConfig, TrialsConfig
from fedsim.config.challenge import CanariesConfig, ChallengeConfig

Values = Mapping[str, Any]
"""A configuration by dotted key, without what was left out."""

GAME = {
    "trials": TrialsConfig(count=1, batch=1, worlds="d-only"),
    "audit": AuditConfig(attacks="none", evaluated_trials=1),
    "challenge": ChallengeConfig(),
    "canaries": CanariesConfig(),
}
"""The tables that say what an adversary is to find out and how often, as a training has them."""

NO_GAME: dict[str, Scalar] = {
    f"{table}.{key}": value
    for table, settings in GAME.items()
    for key, value in settings.model_dump(mode="json", by_alias=True).items()
}


def training(values: Values) -> Values:
    """Return the training of a file: once, with noise from the operating system unless it says."""
    return {"privacy.noise-source": "system", **values, **NO_GAME, "run.job": "training"}


def rehearsal(values: Values) -> Values:
    """Return the experiment that plays the identification game for the training of a file.

    Its noise is the seed's: what is repeated so often protects nobody, and is for records that need
    no protection.
    """
    return {**values, "privacy.noise-source": "seed", "run.job": "rehearsal"}


def experiment(values: Values) -> Values:
    """Return the experiment of a file."""
    return values


JOBS: Mapping[str, Callable[[Values], Values]] = {
    "experiment": experiment,
    "training": training,
    "rehearsal": rehearsal,
}
"""What each job makes of a file's values."""
