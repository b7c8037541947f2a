"""The values of keys that a search tries."""

import itertools
import math
from collections.abc import Sequence

from adversaries.errors import InputError
from fedsim import configuration
from fedsim.configuration import KNOWN_KEYS, Scalar
from fedsim.configuration import files as configuration_files

OF_A_RUN = ("run.out", "run.name")
"""Keys that name a run, of which a search has none."""


def axes(over: Sequence[str]) -> dict[str, list[Scalar]]:
    """Return the keys of a grid with their values.

    Args:
        over: each `KEY=V1,V2,...`.

    Raises:
        InputError: an entry has another form, an unknown key, `run.out`, `run.name`, a key or value
            twice, or a value that is not a number.
    """
    axes: dict[str, list[Scalar]] = {}
    for text in over:
        key, equals, values = text.partition("=")
        key, listed = key.strip(), [value.strip() for value in values.split(",")]
        if not equals or not all(listed):
            raise InputError(
                f"--over {text!r} is not KEY=V1,V2,...; give for example "
                "--over privacy.rho-beta=0.75,0.9"
            )
        if key in axes:
            raise InputError(f"--over {key} is given twice; list all its values in one --over")
        if key in OF_A_RUN:
            raise InputError(f"--over {key}: a search has one directory; give --out DIR")
        if key not in KNOWN_KEYS:
            configuration.from_run_config({key: ""})  # raises InputError with the nearest key
        axes[key] = [configuration_files.parse_override(f"{key}={value}")[1] for value in listed]
        if len(set(axes[key])) < len(listed):
            raise InputError(f"--over {text!r} has a value twice; give each once")
    every = itertools.chain.from_iterable(axes.values())
    if any(isinstance(value, float) and math.isnan(value) for value in every):
        raise InputError("--over has a value that is not a number (nan); replace it by a number")
    return axes
