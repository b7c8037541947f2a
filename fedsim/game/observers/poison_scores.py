"""The adversary of Jagielski et al.: a score of the released model, which crafted the challenge.

It sees theta_k alone and looks at what the challenge was crafted to move. The higher the score, the
likelier the model was trained on D; where the threshold lies is for the auditor to find out.
"""

import numpy as np
import torch
from torch import Tensor

from adversaries.attacks.poisoning import Floats, logit_gain
from fedsim.config.objects import GameRules
from fedsim.game.federation import Federation, initial_parameters


def poison_scores(
    rules: GameRules, federation: Federation, trials: range, released: Tensor
) -> Floats | None:
    """Return the score of every released model.

    By challenge.kind: of "clipbkd" (f(x_p) - f(0)) . y_p (CLIPBKDTEST); of "gradient" <theta_0 -
    theta_k, u>, how far the model went down the vector u; of other records the negative loss
    (BACKDOORTEST, which prints the loss with the sign of a model that was not trained on it).

    released: theta_k, float32 [T, P].
    Returns: float64 [T]; None where nothing was crafted.
    Source: Jagielski, Ullman and Oprea, 2020.
    """
    crafted = federation.crafted
    if crafted is None:
        return None
    if crafted.direction is not None:
        start = initial_parameters(rules, federation, trials).to(released.device)
        moved = start.double() - released.double()
        return (moved @ crafted.direction.to(moved)).cpu().numpy()
    features, labels = federation.members(np.asarray([crafted.record]))
    if rules.challenge.kind == "clipbkd":
        pair = torch.cat([features, torch.zeros_like(features)])
        found = federation.logits(released, pair).double().cpu().numpy()
        return logit_gain(found[:, 0], found[:, 1], int(labels[0]))
    losses, _ = federation.evaluate(released, features, labels)
    return -losses[:, 0].cpu().numpy()
