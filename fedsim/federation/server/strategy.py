"""DP-SGD over a federation as a Flower strategy: Algorithm 1 of Bernau et al., T trials at once."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from adversaries.arrays import Floats
from fedsim.federation.protocol import messages, secure_aggregation
from fedsim.federation.protocol.messages import Role
from fedsim.federation.protocol.secure_aggregation import SecureSum
from fedsim.federation.runs.ledger import Attempt
from fedsim.federation.server import acceptance
from fedsim.federation.server.acceptance import ClientFailedError
from fedsim.federation.server.batch import Array, Batch, BegunRound, ReceivedReplies
from fedsim.federation.server.checkpoint import RoundRelease
from fedsim.federation.server.nodes import Auditors
from fedsim.federation.server.observing import BatchObservations
from fedsim.federation.server.requests import Sending
from fedsim.game.mechanisms import fixed_point
from fedsim.learning.training.optimizers import ServerOptimizer
from fedsim.privacy.noise import Noised, add_noise


@dataclass
class DPSGD(Strategy):
    """One batch of trials, from theta_0 to theta_k, or for some rounds only."""

    batch: Batch
    attempt: Attempt | None = None
    log_event: Callable[..., None] | None = None
    auditors: Auditors | None = None

    def __post_init__(self) -> None:
        config = self.batch.plan.config
        self._round: BegunRound | None = None
        self._release: RoundRelease | None = None
        self._secure: SecureSum | None = None
        self._observations = BatchObservations(self.batch)
        self._optimizer = ServerOptimizer(config.training, config.participation.divisor)

    @property
    def done(self) -> int:
        """The number of rounds before this start, since Flower counts from 1 again."""
        return 0

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Charge a round and return its messages. Raises BudgetExceededError if too costly."""
        number = self.done + server_round
        # Charge before the messages leave: a crash must not hide a release.
        if self.attempt is not None:
            self.attempt.charge(number, self.batch.plan.config.participation.charged(number))
        self._round = self._begin(number, arrays, grid)
        asked = self.batch.asked(number)
        requests = self._ask(MessageType.TRAIN, number, arrays, grid, asked)
        return self._with_keys(requests, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord, MetricRecord]:
        """Release r = the sum of the clients' messages and the server's noise; step with r / n.

        Returns: the next model, and the clients' computing time.
        Raises ClientFailedError if a client is missing that may not be, or its sum is false.
        """
        assert self._round is not None
        begun = self._round
        failed = () if self._secure is None else self._secure.failed.values()
        answers = [*replies, *failed]
        try:
            received = acceptance.accept_round(
                self.batch, begun, answers, self._secure, self.log_event
            )
        except ClientFailedError:
            masked = self._secure is not None
            if self.attempt and acceptance.unanswered(self.batch, begun.number, answers, masked):
                self.attempt.withdraw(begun.number)
            raise
        # The ledger has the round's actual noise before its sum is released.
        if self.attempt is not None:
            self.attempt.settle(begun.number, received.replies)
        noised = self._add_noise(begun, self._sum(begun, received))
        self._observations.observe(begun, received, noised)
        self._release = self._released(begun.number, received, noised.total)
        stepped = self._optimizer.step(
            torch.tensor(begun.model), torch.from_numpy(self._release.aggregate), begun.number
        )
        self._observations.score_canaries(begun, self._release, stepped)
        model = messages.array_record(parameters=stepped.numpy())
        return model, _computing_time(received.replies)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the final model and the last aggregate for the clients that conclude from them."""
        number = self.done + server_round
        if number < self.batch.plan.rounds:
            return []
        return self._ask(MessageType.EVALUATE, number + 1, arrays, grid, self.batch.concluding)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Check that the adversary received the final model. The reply has no data of its node."""
        if self.done + server_round < self.batch.plan.rounds:
            return None
        answered = acceptance.accept(
            self.batch,
            replies,
            "the final evaluation",
            self.batch.plan.config.federation.tolerated_dropouts,
            needed=self.batch.challenge.adversary,
            asked=self.batch.concluding,
            log_event=self.log_event,
        )
        return _computing_time(answered)

    def summary(self) -> None:
        """Do nothing: the run directory and the report describe the run."""

    def findings(self, grid: Grid) -> list[dict[str, Array]]:
        """Return the findings of the adversary's node, and the observations at the server.

        In an oracle audit the ratios are the auditor's. With `audit.bayesian-pairs` they include
        the distances of the clients' gradients, `bayesian_distances` [E, k, pairs].
        """
        node = self.batch.nodes[self.batch.challenge.adversary]
        query = Message(RecordDict(), node, f"{MessageType.QUERY}.findings")
        replies = grid.send_and_receive([query], timeout=self.batch.plan.config.federation.timeout)
        reply = acceptance.accept_findings(self.batch, replies, self.log_event)
        observations = [
            messages.arrays_of(record) for record in messages.array_records(reply.content).values()
        ]
        return [*observations, *self._observations.findings()]

    def _begin(self, number: int, arrays: ArrayRecord, grid: Grid) -> BegunRound:
        config, model = self.batch.plan.config, messages.only(arrays)
        trials, size = model.shape
        local = config.privacy.sensitivity == "local"
        if local:
            sending = self._sending(number, arrays)
            sensitivities = acceptance.ask_local_sensitivity(sending, grid, self.log_event)
        else:
            bound = fixed_point.sensitivity(config.scheme, self.batch.plan.noise_multiplier, size)
            sensitivities = np.full(trials, bound)
        return BegunRound(
            number,
            model,
            sensitivities,
            local and not config.federation.trust.model.server_draws,
            fixed_point.grid(config.scheme, self.batch.plan.noise_multiplier, size),
            (trials, size),
        )

    def _ask(
        self, kind: str, round: int, arrays: ArrayRecord, grid: Grid, clients: Iterable[int]
    ) -> list[Message]:
        sending = self._sending(round, arrays)
        if self.auditors is not None:
            # Before the clients begin to compute.
            self.auditors.look_around(grid)
            self.auditors.inform(grid, kind, lambda: sending.to_everybody(Role.AUDITOR))
        return sending.to_clients(kind, clients)

    def _sending(self, round: int, arrays: ArrayRecord) -> Sending:
        attempt, begun = self.attempt, self._round
        return Sending(
            self.batch,
            round,
            arrays,
            (0, 0, 1) if attempt is None else attempt.before,
            self._release if round > 1 else None,
            begun.sensitivities if begun is not None and begun.local else None,
        )

    def _with_keys(self, requests: list[Message], grid: Grid) -> list[Message]:
        """Add the keys of the other clients where the clients' messages are masked."""
        config, begun = self.batch.plan.config, self._round
        if not secure_aggregation.enabled(config.federation.secure_aggregation):
            return requests
        assert begun is not None and begun.grid is not None
        # A client that does not join the round sends no sum, and needs no keys.
        joining = config.participation.participants(begun.number)
        nodes = self.batch.nodes
        summing_nodes = {client: nodes[client] for client in joining if client in nodes}
        self._secure = None
        if not joining:
            return requests
        self._secure = SecureSum(
            grid,
            summing_nodes,
            begun.grid,
            secure_aggregation.agreed_setup(
                config.participation, config.training.rounds, begun.number
            ),
            config.federation.timeout,
        )
        keys = self._secure.exchange_keys()
        left = []
        for request in requests:
            node = request.metadata.dst_node_id
            if node in keys:
                request.content[secure_aggregation.CONFIGS] = keys[node]
            if node in keys or node not in summing_nodes.values():
                left.append(request)
        return left

    def _sum(self, round: BegunRound, received: ReceivedReplies) -> Floats:
        """Return the sum of the clients' messages, float64 of the round's shape.

        Raises SecureAggregationError as `SecureSum.unmask` does.
        """
        secure = self._secure
        if secure is not None and round.grid is not None:
            by_node = {reply.metadata.src_node_id: reply for reply in received.replies.values()}
            words = secure.unmask(by_node, round.shape)
            if self.log_event is not None:
                for client, why in secure.silent.items():
                    self.log_event(silent=client, of="unmasking", reason=why)
            return round.grid.values(words)
        sums = [messages.only(record) for record in received.records(messages.REPLY).values()]
        if round.grid is not None and sums:
            return round.grid.values(fixed_point.summed(sums))
        total: Floats = np.zeros(round.shape)
        # In the order of the clients, so that the rounding is the same in every runtime.
        for each in sums:
            total += each
        return total

    def _add_noise(self, round: BegunRound, total: Floats) -> Noised:
        """Return a round's sum with the server's noise. It may overwrite the sum."""
        config, trials = self.batch.plan.config, self.batch.trials
        if not config.federation.trust.model.server_draws:
            return Noised(total)
        stds = self.batch.plan.noise_multiplier * round.sensitivities
        return add_noise(total, stds, config.noise_seed, trials, round.number)

    def _released(self, round: int, received: ReceivedReplies, total: Floats) -> RoundRelease:
        """Round the sum to float32, as clients receive it and as the model is stepped with it.

        Raises ClientFailedError where float32 cannot hold it.
        """
        aggregate = total.astype(np.float32)
        if not np.isfinite(aggregate).all():
            raise ClientFailedError(
                f"round {round}: the sum of the clients' messages is beyond what float32 can hold, "
                "so at least one of them is false; nothing of it is released"
            )
        sent = received.for_auditors(self.batch.plan.config.federation.auditor_sees)
        return RoundRelease(aggregate, received.participants, received.disclosed, sent)


def _computing_time(replies: dict[int, Message]) -> MetricRecord:
    seconds = sum(messages.metric(reply, "seconds") for reply in replies.values())
    return MetricRecord({"seconds": seconds})
