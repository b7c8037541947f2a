"""The embedding of a record: the input of the last linear layer of theta_0, to compare records."""

import copy

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from adversaries.errors import InputError
from fedsim.common.blocks import slices
from fedsim.common.device import one_thread
from fedsim.config.objects import GameRules
from fedsim.game import federation
from fedsim.game.federation import Federation
from fedsim.learning.training import models

BLOCK_SCALARS = 2**20
"""Scalars of the records that are embedded at a time."""


@torch.no_grad()
def embed(
    loaded: Federation, features: npt.NDArray[np.float32], parameters: Tensor
) -> npt.NDArray[np.float32]:
    """Return the input of the model's last linear layer, float32 [N, E].

    parameters: [P].
    Raises InputError if the model has no linear layer, or uses the last one twice.
    """
    model = copy.deepcopy(loaded.model).to(parameters.device)
    values = models.unflatten(parameters, models.parameter_shapes(model))
    model.load_state_dict(values, strict=False)
    linear = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    if not linear:
        raise InputError(
            'challenge.space is "embedding", the input of the last linear layer, but the model has '
            'no linear layer; set challenge.space = "features"'
        )
    last_inputs: list[Tensor] = []
    linear[-1].register_forward_pre_hook(lambda layer, inputs: last_inputs.append(inputs[0]))
    embedded = []
    at_once = max(1, BLOCK_SCALARS // features[:1].size)
    for part in slices(len(features), at_once):
        with one_thread():
            model(torch.tensor(features[part]).to(parameters.device))
        if len(last_inputs) != 1:
            raise InputError(
                'challenge.space is "embedding", but the model uses its last linear layer '
                f'{len(last_inputs)} times for a record; set challenge.space = "features"'
            )
        embedded.append(last_inputs.pop().flatten(1).float().cpu().numpy())
    return np.concatenate(embedded)


def initial_parameters(rules: GameRules, loaded: Federation) -> Tensor:
    """Return theta_0 of trial 0, float32 [P], on the CPU, so that all parties compute the same."""
    return federation.initial_parameters(rules, loaded, range(1))[0]
