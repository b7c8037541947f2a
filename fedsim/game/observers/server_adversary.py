"""What an honest but curious server concludes from the clients' messages of a round.

It has the participant's knowledge, and sees single messages unless secure aggregation hides them.
"""

from collections.abc import Collection

import torch
from torch import Tensor

from adversaries.attacks.posterior import hypotheses, log_likelihood_ratio, ratio_without_noise
from fedsim.game.client import challenge_contributions, common_part
from fedsim.game.known_round import KnownRound
from fedsim.game.mechanisms.step import Step
from fedsim.game.observers.participant import of_local_steps, replay_target
from fedsim.privacy.mechanism import Neighbouring

ROUNDING = 1e-5
"""Share of a clean float32 sum below which a difference may be rounding, and is no evidence."""


def conclude(
    knowledge: KnownRound, summed: Collection[int], noise_std: Tensor, message: Tensor
) -> Step:
    """Return the server's evidence from one round, on the CPU.

    noise_std: of the noise that the server does not know, float64 [T], of one of several steps.
    message: [T, P], less the noise that was disclosed to the server.
    """
    scheme, rate = knowledge.rules.scheme, knowledge.rules.scheme.participation.rate
    if scheme.training.local_steps > 1:
        with_record, common = replay_target(knowledge)
        present, absent = with_record - common, torch.zeros_like(common)
        expected = of_local_steps(scheme, common, present, noise_std)
    else:
        common = common_part(knowledge, summed)
        present, absent = challenge_contributions(knowledge)
        replaced = absent if scheme.privacy.neighbouring is Neighbouring.REPLACE else None
        expected = hypotheses(common, present, replaced, noise_std, rate)
    if bool(noise_std.any()):
        ratios = log_likelihood_ratio(expected, message)
    else:
        # Without noise the target's contribution itself is visible, up to the rounding of the sum.
        rest = message.double() - common
        distinguishable = expected.sensitivity > ROUNDING * message.double().norm(dim=-1)
        ratios = ratio_without_noise(
            _nearest(rest, present, absent, rate),
            expected.present_norm,
            expected.absent_norm,
            expected.sensitivity * distinguishable,
            rate,
        )
    norms = expected.present_norm, expected.absent_norm
    columns = (ratios, expected.sensitivity, expected.noise_std, *norms)
    return Step(*(column.cpu() for column in columns))


def _nearest(rest: Tensor, present: Tensor, absent: Tensor, sampling_rate: float) -> Tensor:
    """Return which of nothing (0), g (1) and g' (2) is nearest to a clean sum's rest, int [T]."""
    distances = torch.stack(
        [rest.norm(dim=-1), (rest - present).norm(dim=-1), (rest - absent).norm(dim=-1)]
    )
    # A record that surely takes part leaves g or g'.
    if sampling_rate == 1:
        return 1 + distances[1:].argmin(dim=0)
    return distances.argmin(dim=0)
