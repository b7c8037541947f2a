"""What an honest but curious server concludes from the clients' messages of a round.

It has the participant's knowledge, and sees single messages unless secure aggregation hides them.
"""

from collections.abc import Collection

from torch import Tensor

from fedsim.game.known_round import KnownRound
from fedsim.game.mechanisms.step import Step
from fedsim.game.observers.participant import of_local_steps, replay_target
from fedsim.game.observers.question import Question
from fedsim.game.pair import challenge_contributions, common_part
from fedsim.privacy.mechanism import Neighbouring


def conclude(
    knowledge: KnownRound, summed: Collection[int], noise_std: Tensor, message: Tensor
) -> Step:
    """Return the server's evidence from one round, on the CPU.

    noise_std: of the noise that the server does not know, float64 [T], of one of several steps.
    message: [T, P], less the noise that was disclosed to the server.
    """
    config = knowledge.config
    if config.training.local_steps > 1:
        with_record, common = replay_target(knowledge)
        question = of_local_steps(config, common, with_record - common, noise_std)
    else:
        present, absent = challenge_contributions(knowledge)
        replaced = config.privacy.neighbouring is Neighbouring.REPLACE
        question = Question(
            common_part(knowledge, summed),
            present,
            absent if replaced else None,
            noise_std,
            config.participation.rate,
        )
    return question.answer(message).on_cpu()
