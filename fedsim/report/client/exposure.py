"""Exposure of each of a client's own records by the client's messages.

A guarantee of differential privacy is for the worst record. A record with a short gradient is less
exposed: towards an adversary who knows everything else, the messages of k rounds are one
observation with a signal of

    mu^2 = sum over the rounds of (|clipped gradient| / (z S))^2,

where z S is the standard deviation of the noise. The signal depends on the records. It is not a
guarantee, and publishing it would be a further release: it stays on the client's machine.

Source:
    Feldman and Zrnic, "Individual privacy accounting via a Rényi filter", 2021.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from adversaries.attacks import roc
from adversaries.statistics import gaussian
from fedsim.config.objects import Scheme
from fedsim.federation.client import admission
from fedsim.federation.client.seen_models import SeenTraining
from fedsim.game.federation import Federation
from fedsim.learning.training.clipped_block import MARGIN
from fedsim.privacy.mechanism import sensitivity

Floats = npt.NDArray[np.float64]

WHOLE = (1 - MARGIN) * (1 - 1e-6)
"""A gradient counts as clipped from this share of the bound on, because of rounding."""

SHOWN = 10
"""Number of most exposed records that are named."""

NEEDED = 20
"""An attack needs at least this many records on each side."""


@dataclass(frozen=True, eq=False)
class Exposure:
    """Exposure of a client's n records by a training.

    Attributes:
        rounds: rounds whose models were kept, int64 [k].
        clipped: share of the records whose gradients were clipped, float64 [k].
        mu: signal of every record, float64 [n].
        everybody: mu of a record that is clipped in every one of these rounds.
    """

    rounds: npt.NDArray[np.int64]
    clipped: Floats
    mu: Floats
    everybody: float


def measurable(scheme: Scheme) -> bool:
    """Return whether the noise of a training hides the gradients of single records."""
    single = scheme.privacy.unit == "record" and scheme.training.local_steps == 1
    return single and scheme.training.clipping


def measure(
    training: SeenTraining, known: Federation, partition: int, noise_multiplier: float
) -> Exposure:
    """Return the exposure towards the adversary who sees most of the client's messages."""
    config = training.config
    faced = admission.released(config.scheme, noise_multiplier, 1).noise_multiplier
    clipping_norm = config.training.clipping_norm
    std = faced * sensitivity(config.privacy.neighbouring, clipping_norm)
    features, labels = known.members(known.owned_by(partition))
    each = torch.arange(len(labels), device=known.device)[None, :, None]
    squares, clipped = np.zeros(len(labels)), list[float]()
    for round in training.models:
        model = torch.from_numpy(training.model(round)).to(known.device)[None]
        norms = known.clipper.clipped_distances(model, features, labels, each)[0].cpu().numpy()
        squares += (norms / std) ** 2
        clipped.append(float((norms >= WHOLE * clipping_norm).mean()))
    rounds = np.array(list(training.models), dtype=np.int64)
    everybody = math.sqrt(len(rounds)) * clipping_norm / std
    return Exposure(rounds, np.array(clipped), np.sqrt(squares), everybody)


def as_json(found: Exposure, delta: float) -> dict[str, Any]:
    """Return the exposure as JSON values."""
    # Many gradients may be clipped, and then have equal lengths up to rounding.
    order = np.argsort(-np.round(found.mu, 9), kind="stable")

    def said(mu: float) -> dict[str, float]:
        return {
            "mu": mu,
            "epsilon": gaussian.epsilon(mu, delta),
            "advantage": gaussian.advantage(mu),
        }

    return {
        "rounds": found.rounds.tolist(),
        "clipped_share": found.clipped.tolist(),
        "median": said(float(np.median(found.mu))),
        "highest": said(float(found.mu[order[0]])),
        "allowed": said(found.everybody),
        "most_exposed": [
            {"record": int(place), **said(float(found.mu[place]))} for place in order[:SHOWN]
        ],
    }


def attacked(own: Floats, others: Floats) -> dict[str, Any] | None:
    """Return how well losses separate a client's records from others; None with too few records.

    Args:
        own: losses of the client's records at a released model, [n].
        others: losses of records that took no part, [h].

    Returns:
        The area under the ROC curve, where 1/2 is guessing, and the advantage at the best
        threshold. One model gives no interval.

    Source:
        Yeom et al., "Privacy risk in machine learning", 2018.
    """
    if min(own.size, others.size) < NEEDED:
        return None
    scores = -np.concatenate([own, others])
    found = roc.curve(scores[None], (np.arange(scores.size) < own.size)[None])
    return {
        "members": own.size,
        "others": others.size,
        "area": found.area,
        "advantage": float((found.true_positive - found.false_positive).max()),
    }
