"""The adversary: an ordinary owner that also keeps a posterior belief about the challenge.

It learns from the messages that every owner receives (the model before a step, the aggregate after
it) and from its stated background knowledge: D, D', the mechanism and theta_0. Nothing here takes
a world bit or another owner's noise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from adversaries import membership
from adversaries.posterior import Hypotheses, hypotheses, log_likelihood_ratio
from fedsim.config import Config
from fedsim.evaluation import evaluate
from fedsim.federation import Federation
from fedsim.mechanism import Vantage, effective_noise_multiplier, sensitivity
from fedsim.owner import challenge_gradients


@dataclass(frozen=True)
class Memory:
    """What the adversary remembers between rounds, in arrays that fit its Flower state.

    pending: the hypotheses about the aggregate of the current round; ratios, sensitivities,
    noise_stds: [T, i], a column for each aggregate seen so far.
    """

    pending: Hypotheses | None
    ratios: Tensor
    sensitivities: Tensor
    noise_stds: Tensor

    @classmethod
    def empty(cls, trials: int) -> "Memory":
        """Return the memory of an adversary that has seen nothing."""
        nothing = torch.empty(trials, 0, dtype=torch.float64)
        return cls(None, nothing, nothing, nothing)

    def to_arrays(self) -> dict[str, npt.NDArray[np.float64]]:
        """Return the memory as named arrays."""
        tensors = {
            "ratios": self.ratios,
            "sensitivities": self.sensitivities,
            "noise-stds": self.noise_stds,
        }
        if self.pending is not None:
            tensors["direction"] = self.pending.direction
            tensors["offset"] = self.pending.offset
            tensors["noise-std"] = self.pending.noise_std
        return {name: tensor.cpu().numpy() for name, tensor in tensors.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]], device: torch.device) -> "Memory":
        """Read the memory back; the hypotheses go to the device. Raises KeyError if it is none."""
        tensors = {name: torch.tensor(array) for name, array in arrays.items()}
        pending = None
        if "direction" in tensors:
            pending = Hypotheses(
                tensors["direction"].to(device),
                tensors["offset"].to(device),
                tensors["noise-std"].to(device),
            )
        return cls(pending, tensors["ratios"], tensors["sensitivities"], tensors["noise-stds"])


def expect(
    memory: Memory,
    config: Config,
    federation: Federation,
    adversary: int,
    record: int,
    replacement: int | None,
    noise_multiplier: float,
    parameters: Tensor,
    own_message: Tensor,
) -> Memory:
    """Form the two hypotheses about the aggregate that will answer this round's model.

    parameters [T, P] is the model as received; own_message [T, P] what the adversary itself sent,
    its own noise included, which is therefore no uncertainty to it.
    """
    others = (federation.owner_of != adversary) & (np.arange(len(federation.owner_of)) != record)
    features, labels = federation.members(np.flatnonzero(others))
    known = federation.clipper.clipped_sum(parameters, features, labels) + own_message
    present, absent = challenge_gradients(federation, parameters, record, replacement)
    bound = sensitivity(config.privacy.neighbouring, config.training.clipping_norm)
    local = (present - absent).norm(dim=-1)
    if bool((local > bound * (1 + 1e-5)).any()):
        raise AssertionError(
            f"local sensitivity {float(local.max())} exceeds the global {bound}: clipping is broken"
        )
    scale = local if config.privacy.sensitivity == "local" else torch.full_like(local, bound)
    multiplier = effective_noise_multiplier(
        noise_multiplier,
        config.federation.trust,
        Vantage.PARTICIPANT,
        config.federation.owners,
    )
    return replace(memory, pending=hypotheses(known, present, absent, multiplier * scale))


def observe(memory: Memory, aggregate: Tensor) -> Memory:
    """Update the belief with the aggregate [T, P] of the round before."""
    pending = memory.pending
    if pending is None:
        raise RuntimeError("an aggregate arrived for a round that the adversary did not see begin")
    ratio = log_likelihood_ratio(pending, aggregate)
    return Memory(
        None,
        _append(memory.ratios, ratio),
        _append(memory.sensitivities, pending.sensitivity),
        _append(memory.noise_stds, pending.noise_std),
    )


def infer_membership(
    federation: Federation, record: int, parameters: Tensor
) -> dict[str, npt.NDArray[np.generic]]:
    """Attack the final models [T, P] by their losses alone (Yeom et al.), for comparison.

    The threshold is the mean loss over the members that are the same in both worlds. Returns, for
    each trial, the true and false positive rates and whether x^ itself is taken for a member.
    """
    certain = np.delete(np.arange(len(federation.owner_of)), record)
    members, _ = evaluate(federation.model, parameters, *federation.members(certain))
    strangers, _ = evaluate(federation.model, parameters, *federation.held_out())
    target, _ = evaluate(federation.model, parameters, *federation.members(np.asarray([record])))
    true_positives, false_positives = membership.yeom(members, strangers)
    return {
        "true-positive-rate": true_positives,
        "false-positive-rate": false_positives,
        "challenge-is-member": membership.yeom_challenge(target[:, 0], members),
    }


def _append(history: Tensor, column: Tensor) -> Tensor:
    return torch.cat([history, column.cpu()[:, None]], dim=1)
