"""The three jobs of a configuration file: an experiment, a training, or a training's rehearsal."""

from collections.abc import Callable, Mapping
from typing import Any

from fedsim.common.tables import Scalar
from fedsim.configuration.campaign import AuditConfig, TrialsConfig
from fedsim.configuration.challenge import CanariesConfig, ChallengeConfig

TABLE = "privacy"

TARGETS = ("rho-beta", "rho-alpha", "max-risk", "epsilon", "noise-multiplier")
"""Keys of the table that set a target. 0, or "" in an app's declaration, means not set."""

KEYS = tuple(f"{TABLE}.{name}" for name in TARGETS)


def given(values: Mapping[str, Any]) -> list[str]:
    """Return the keys of the noise targets that a configuration sets."""
    return [key for key in KEYS if values.get(key)]


def overlaid(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merged values of two places. The later place wins for each key, and its target."""
    replaced = KEYS if given(later) else ()
    kept = {key: value for key, value in earlier.items() if key not in replaced}
    return kept | dict(later)


Values = Mapping[str, Any]
"""A configuration by dotted key. Keys that a file leaves out are missing."""

GAME = {
    "trials": TrialsConfig(count=1, batch=1),
    "audit": AuditConfig(attacks="none", evaluated_trials=1),
    "challenge": ChallengeConfig(),
    "canaries": CanariesConfig(),
}
"""The tables of the identification game, with the values that a training has."""

NO_GAME: dict[str, Scalar] = {
    f"{table}.{key}": value
    for table, settings in GAME.items()
    for key, value in settings.model_dump(mode="json", by_alias=True).items()
}


def training(values: Values) -> Values:
    """Return the values of a training. Its noise is the system's unless the file names a source."""
    return {"privacy.noise-source": "system", **values, **NO_GAME, "run.job": "training"}


def rehearsal(values: Values) -> Values:
    """Return the values of the experiment on public records that plays the game for a training."""
    return {**values, "privacy.noise-source": "seed", "run.job": "rehearsal"}


JOBS: Mapping[str, Callable[[Values], Values]] = {
    "experiment": lambda values: values,
    "training": training,
    "rehearsal": rehearsal,
}
"""The function that turns a file's values into the values of each job."""
