"""DP-SGD over a federation: Algorithm 1 of Bernau et al., T trials at once.

Each round is charged, sent, collected, checked, summed, noised and stepped, in this order.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from adversaries.arrays import Floats
from fedsim.federation.protocol.messages import Role
from fedsim.federation.protocol.secure_aggregation import CONFIGS, SecureSum, agreed_setup
from fedsim.federation.runs.ledger import Attempt
from fedsim.federation.server import acceptance
from fedsim.federation.server.acceptance import ClientFailedError, quiet
from fedsim.federation.server.batch import Batch, Outgoing, Received, Round
from fedsim.federation.server.checkpoint import Release, State
from fedsim.federation.server.nodes import Nodes
from fedsim.game.mechanisms import fixed_point
from fedsim.game.mechanisms.fixed_point import FixedPoint
from fedsim.learning.training.optimizers import ServerOptimizer
from fedsim.privacy.noise import Noised, add_noise

Observe = Callable[[Round, Received, Noised, State], None]
"""Observes a round: its replies, its release with the server's noise, and the state after it."""


@dataclass
class Training:
    """The rounds of one batch of trials on the nodes of a grid.

    Attributes:
        attempt: the account of the batch in the run's ledger; None: charged elsewhere.
        nodes: all nodes of the run; auditors among them record every round.
        observe: sees every round.
    """

    grid: Grid
    batch: Batch
    attempt: Attempt | None = None
    log_event: Callable[..., None] = quiet
    nodes: Nodes | None = None
    observe: Observe = lambda *_: None

    def __post_init__(self) -> None:
        config = self.batch.plan.config
        self._optimizer = ServerOptimizer(config.training, config.participation.divisor)

    def run(self, state: State, each: Callable[[State], None]) -> State:
        """Play the rounds that are left; `each` sees the state before and after every round.

        Returns: the final state, which the adversary and the auditors receive too.
        Raises BudgetExceededError for a round that costs too much, before it leaves.
        Raises ClientFailedError if a client is missing that may not be, or its sum is false.
        """
        self._optimizer.resume(state.optimizer)
        each(state)
        for _ in range(state.round, self.batch.plan.rounds):
            state = self.play(state)
            each(state)
        self._conclude(state)  # also of a resumed one: a kill may have come before this message
        return state

    def play(self, state: State) -> State:
        """Return the state after the next round; see `run`."""
        number, config = state.round + 1, self.batch.plan.config
        nominal, size = self.batch.plan.noise_multiplier, state.model.shape[1]
        integers = fixed_point.grid(config, nominal, size)
        secure = self._with_keys(integers)
        if self.attempt is not None:
            # Before the messages leave: a crash must not hide a release.
            self.attempt.charge(number, config.participation.charged(number))
        round = self._begun(state, integers)
        received = self._collect(round, state, secure)
        if self.attempt is not None:
            # The ledger has the round's actual noise before its sum is released.
            self.attempt.settle(number, received.replies)
        noised = self.noised(round, self.summed(round, received, secure))
        release = self._released(number, received, noised.total)
        model = torch.tensor(round.model), torch.from_numpy(release.aggregate)
        stepped = self._optimizer.step(*model, number)
        state = State(number, stepped.numpy(), release, self._optimizer.state())
        self.observe(round, received, noised, state)
        return state

    def _begun(self, state: State, integers: FixedPoint | None) -> Round:
        plan, (trials, size) = self.batch.plan, state.model.shape
        config, number, nominal = plan.config, state.round + 1, plan.noise_multiplier
        if config.privacy.sensitivity != "local":
            bound = fixed_point.sensitivity(config, nominal, size)
            return Round(number, state.model, np.full(trials, bound), False, integers)
        alone = Outgoing(self.batch, State(state.round, state.model), self._spent)
        node = self.batch.nodes[self.batch.challenge.client]
        content = alone.to_everybody(Role.TARGET_CLIENT)
        answers = self._ask([Message(content, node, f"{MessageType.QUERY}.sensitivity")])
        norms = acceptance.accept_sensitivity(self.batch, number, answers)
        told = not config.federation.trust.model.server_draws
        return Round(number, state.model, norms, told, integers)

    def _with_keys(self, integers: FixedPoint | None) -> SecureSum | None:
        """Return a round's secure sum, for which the clients exchanged keys; nothing leaves yet."""
        federation = self.batch.plan.config.federation
        if integers is None or not federation.masked:
            return None
        setup = agreed_setup(federation.clients)
        secure = SecureSum(self.grid, self.batch.nodes, integers, setup, federation.timeout)
        secure.exchange_keys()
        return secure

    def _collect(self, round: Round, state: State, secure: SecureSum | None) -> Received:
        """Send a round, and return the valid replies."""
        batch, number = self.batch, round.number
        sensitivities = round.sensitivities if round.told else None
        outgoing = Outgoing(batch, state, self._spent, sensitivities)
        self._inform(MessageType.TRAIN, outgoing)
        requests = outgoing.to_clients(MessageType.TRAIN, batch.asked(number))
        if secure is not None:
            for request in requests:
                request.content[CONFIGS] = secure.keys[request.metadata.dst_node_id]
        answers = self._ask(requests)
        return acceptance.accept_round(batch, round, answers, secure, self.log_event)

    def summed(self, round: Round, received: Received, secure: SecureSum | None) -> Floats:
        """Return the sum of the clients' messages, float64 of the round's shape.

        Raises SecureAggregationError as `SecureSum.unmask` does.
        """
        if secure is not None and round.integers is not None:
            by_node = {reply.metadata.src_node_id: reply for reply in received.replies.values()}
            return round.integers.values(secure.unmask(by_node, round.shape))
        sums = [*received.sums.values()]
        if round.integers is not None and sums:
            return round.integers.values(fixed_point.summed(sums))
        total: Floats = np.zeros(round.shape)
        # In the order of the clients, so that the rounding is the same in every runtime.
        for each in sums:
            total += each
        return total

    def noised(self, round: Round, total: Floats) -> Noised:
        """Return a round's sum with the server's noise. It may overwrite the sum."""
        config, trials = self.batch.plan.config, self.batch.trials
        if not config.federation.trust.model.server_draws:
            return Noised(total)
        stds = self.batch.plan.noise_multiplier * round.sensitivities
        return add_noise(total, stds, config.noise_seed, trials, round.number)

    def _released(self, round: int, received: Received, total: Floats) -> Release:
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
        return Release(aggregate, received.participants, received.disclosed, sent)

    def _conclude(self, state: State) -> None:
        """Send the final model to those who conclude from it; their replies have no data."""
        batch, outgoing = self.batch, Outgoing(self.batch, state, self._spent)
        self._inform(MessageType.EVALUATE, outgoing)
        asked = batch.concluding
        acceptance.accept(
            batch,
            self._ask(outgoing.to_clients(MessageType.EVALUATE, asked)),
            "the final evaluation",
            asked,
            tolerated=batch.plan.config.federation.tolerated_dropouts,
            needed=batch.challenge.adversary,
            log_event=self.log_event,
        )

    @property
    def _spent(self) -> tuple[int, int, int]:
        return (0, 0, 1) if self.attempt is None else self.attempt.before

    def _inform(self, kind: str, outgoing: Outgoing) -> None:
        if self.nodes is not None:  # before the clients begin to compute
            self.nodes.look_around()
            self.nodes.inform(kind, lambda: outgoing.to_everybody(Role.AUDITOR))

    def _ask(self, requests: list[Message]) -> list[Message]:
        timeout = self.batch.plan.config.federation.timeout
        return [*self.grid.send_and_receive(requests, timeout=timeout)] if requests else []
