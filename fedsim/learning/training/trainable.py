"""The trained parameters of a network, selected by names.

Names are separated by commas. A layer stands for its parameters, and * for any part of a name.
"""

import difflib
from collections.abc import Mapping
from fnmatch import fnmatchcase

from torch import nn

from adversaries.errors import InputError


def train_only(model: nn.Module, names: str) -> None:
    """Train only the named layers or parameters ("" for none), in place; InputError if unknown."""
    parameters = dict(model.named_parameters())
    chosen = _named(parameters, names, "model.trainable")
    for path, parameter in parameters.items():
        parameter.requires_grad_(path in chosen)


def freeze(model: nn.Module, names: str) -> None:
    """Exclude the named layers or parameters ("" for none) from training, in place.

    Raises InputError if a name is unknown, or nothing is left to train.
    """
    parameters = dict(model.named_parameters())
    for path in _named(parameters, names, "model.frozen"):
        parameters[path].requires_grad_(False)
    if not any(parameter.requires_grad for parameter in parameters.values()):
        raise InputError(
            "model.frozen leaves nothing to train; name fewer layers"
            if parameters
            else "the model has no parameters; choose one that can be trained"
        )


def _named(parameters: Mapping[str, nn.Parameter], names: str, key: str) -> set[str]:
    """Return the parameters that match a list of names and patterns."""
    matches = set()
    for name in filter(None, (part.strip() for part in names.split(","))):
        inside = [path for path in parameters if fnmatchcase(f"{path}.", f"{name}.*")]
        if not inside:
            layers = {path.rpartition(".")[0] for path in parameters} - {""}
            near = difflib.get_close_matches(name, [*parameters, *sorted(layers)], n=1)
            hint = f"did you mean '{near[0]}'? " if near else ""
            raise InputError(
                f"{key} names '{name}', which has no parameters; {hint}give names from "
                f"{', '.join(parameters)}"
            )
        matches.update(inside)
    return matches
