"""DP-SGD that goes on where an interrupted training stopped.

Flower counts the rounds of every start from 1; here they go on being counted.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid

from fedsim.federation.protocol import messages
from fedsim.federation.server.batch import Floats, Received, Release
from fedsim.federation.server.checkpoint import Checkpoint
from fedsim.federation.server.strategy import DPSGD
from fedsim.game.observers.noise_watch import NoiseWatch, claimed_std, watchable


@dataclass
class ResumableDPSGD(DPSGD):
    """The aggregation strategy of a training whose state is kept.

    It holds every message and every sum against the noise that they should have.

    Attributes:
        left_off: where it goes on; None from the beginning.
        noise: what was found of it since then; None where it cannot be judged.
    """

    left_off: Checkpoint | None = None
    noise: NoiseWatch | None = field(default=None, init=False)
    _own_noise: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        config = self.batch.config
        # Elsewhere a message has no noise, or a share that only the sum's makes whole.
        trust = config.federation.trust.model
        alone = not (trust.server_draws or trust.summed_securely)
        self._own_noise = alone and trust.noise_share(config.federation.clients, 1) >= 1
        clients = config.federation.clients if self._own_noise else 0
        self.noise = (
            NoiseWatch(clients)
            if watchable(config.privacy, config.training, config.trials.count)
            else None
        )
        if self.left_off is not None:
            self._release = self.left_off.release
            self._optimizer.resume(torch.tensor(self.left_off.model), self.left_off.optimizer)

    @property
    def done(self) -> int:
        """The number of rounds that were done before this start."""
        return 0 if self.left_off is None else self.left_off.round

    def checkpoint(self, arrays: ArrayRecord, server_round: int) -> Checkpoint:
        """Return all that the next round depends on.

        server_round: Flower's number of the round, from 1 in every start.
        """
        assert self._release is not None
        return Checkpoint(
            self.done + server_round,
            messages.only(arrays),
            self._release,
            self._optimizer.state(),
        )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the clients' messages, as DPSGD does.

        server_round: Flower's number of the round.
        arrays: the model, float32 [1, P].
        config: Flower's, not looked at.
        Raises BudgetExceededError if the round would exceed privacy.stop-at.
        """
        return super().configure_train(self.done + server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord, MetricRecord]:
        """Release the noisy sum and step with it, as DPSGD does.

        server_round: Flower's number of the round.
        Returns: the next model, and the clients' computing time together.
        """
        return super().aggregate_train(self.done + server_round, replies)

    def _released(self, round: int, received: Received, total: Floats) -> Release:
        """Round the sum to what clients are sent, and look at its noise."""
        release = super()._released(round, received, total)
        if self.noise is not None:
            config, nominal = self.batch.config, self.batch.noise_multiplier
            sent = received.records(messages.REPLY) if self._own_noise else {}
            self.noise.observe(
                release.aggregate[0],
                claimed_std(config.scheme, nominal, len(received.replies)),
                {client: messages.only(record)[0] for client, record in sent.items()},
                claimed_std(config.scheme, nominal, 1),
            )
        return release

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Inform auditors of the final model, as DPSGD does.

        server_round: Flower's number of the round.
        arrays: the model, float32 [1, P].
        config: Flower's, not looked at.
        Returns: no messages: nobody concludes anything from the model of a training.
        """
        return super().configure_evaluate(self.done + server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Take in the answers to it, as DPSGD does.

        server_round: Flower's number of the round.
        Returns: no time; None before the last round.
        """
        return super().aggregate_evaluate(self.done + server_round, replies)
