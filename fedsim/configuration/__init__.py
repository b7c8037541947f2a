"""One experiment as typed, validated data, in Flower's run-config form.

A configuration file is TOML, as a flat map of dotted keys to scalars for Flower.
`[tool.flwr.app.config]` in `pyproject.toml` repeats the defaults, since Flower refuses other keys.
"""

from fedsim.common.tables import Scalar
from fedsim.configuration.experiment import Config
from fedsim.configuration.jobs import JOBS, overlaid
from fedsim.configuration.run_config import (
    KNOWN_KEYS,
    declared,
    flatten,
    from_run_config,
    to_run_config,
)
from fedsim.configuration.training import TrainingConfig

__all__ = [
    "JOBS",
    "KNOWN_KEYS",
    "Config",
    "Scalar",
    "TrainingConfig",
    "declared",
    "flatten",
    "from_run_config",
    "overlaid",
    "to_run_config",
]
