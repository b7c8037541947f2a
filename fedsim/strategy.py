"""DP-SGD over a federation as a Flower strategy: Algorithm 1 of Bernau et al., T trials at once.

Strict where Flower's FedAvg is lenient: a missing or failed owner ends the run, because a missing
clipped sum or noise share changes the mechanism that was accounted for. Replies are sorted by
partition before they are summed, so that every runtime gives the same bits.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedsim import federation, instrumented, messages, server_adversary, vantages
from fedsim.challenge import Challenge
from fedsim.config import Config
from fedsim.ledger import Attempt
from fedsim.mechanism import Trust, Vantage, effective_noise_multiplier, sensitivity
from fedsim.messages import Request, Role
from fedsim.optimizers import ServerOptimizer
from fedsim.pac_release import Releases
from fedsim.randomness import SERVER, gaussian_noise
from fedsim.sampling import participation

Array = npt.NDArray[Any]


class OwnerFailedError(RuntimeError):
    """An owner did not answer, or answered with an error."""


@dataclass
class DPSGD(Strategy):
    """One cohort of trials, from theta_0 to theta_k.

    nodes: the Flower node of each partition; worlds bool [T]: which trials train on D; rounds: how
    many are run, None for all that the configuration plans; attempt: where they are charged.
    """

    config: Config
    challenge: Challenge
    noise_multiplier: float
    nodes: dict[int, int]
    trials: range
    worlds: npt.NDArray[np.bool_]
    rounds: int | None = None
    attempt: Attempt | None = None

    def __post_init__(self) -> None:
        self._model: Array | None = None
        self._aggregate: Array | None = None
        self._local_sensitivity: npt.NDArray[np.float64] | None = None
        self._measured: dict[Vantage, list[instrumented.Step]] = {}
        self._distances: list[Array] = []
        training = self.config.training
        self._releases: Releases | None = None
        if self.config.privacy.noise == "pac":
            self._releases = Releases(
                self.config.privacy.mutual_information / training.rounds,
                self.config.privacy.pac_prior,
                self.config.run.seed,
                self.trials,
                self.worlds,
            )
        self._optimizer = ServerOptimizer(training, self.config.divisor)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send the model, and the aggregate of the round before, to every owner.

        The round is charged first: once its messages are out it may be seen. Raises
        BudgetExceededError where it would exceed privacy.stop-at.
        """
        if self.attempt is not None:
            self.attempt.charge(server_round, self.nodes)
        self._model = messages.only(arrays)
        if self.config.privacy.sensitivity == "local":
            self._local_sensitivity = self._ask_local_sensitivity(server_round, arrays, grid)
        return self._requests(MessageType.TRAIN, server_round, arrays)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord, MetricRecord]:
        """Release r = sum of the owners' messages + central noise; step with r / n."""
        accepted = self._accept(replies, f"round {server_round}")
        assert self._model is not None
        shape = self._model.shape
        if self._releases is not None:
            shape = (shape[0], self.config.candidates, shape[1])
        total: npt.NDArray[np.float64] = np.zeros(shape)
        for reply in accepted:
            total += messages.only(reply.content.array_records[messages.REPLY])
        noise = None
        if self._releases is not None:
            total = self._release_pac(accepted, total, server_round)
        elif self.config.federation.trust is Trust.CENTRAL:
            std = self.noise_multiplier * self._noise_scale()
            noise = gaussian_noise(
                self.config.noise_seed, self.trials, server_round, SERVER, total.shape[1]
            )
            noise *= std[:, None]
            total += noise
        if self._releases is None and self.config.audit.mode == "instrumented":
            self._remember(self._measure(accepted, noise))
        elif self._releases is None and Vantage.SERVER in vantages.measured(self.config):
            self._remember({Vantage.SERVER: self._look(accepted, total, server_round)})
        distances = [
            messages.only(reply.content.array_records[messages.DISTANCES])
            for reply in accepted
            if messages.DISTANCES in reply.content.array_records
        ]
        if distances:
            self._distances.append(np.concatenate(distances, axis=1))
        # What the owners are sent is what the model is stepped with, to the last bit.
        self._aggregate = total.astype(np.float32)
        stepped = self._optimizer.step(
            torch.tensor(self._model), torch.from_numpy(self._aggregate), server_round
        )
        model = messages.array_record(parameters=stepped.numpy())
        return model, _computing_time(accepted)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """After the last round, send the final model and the last aggregate to every owner."""
        if server_round < self.last_round:
            return []
        return self._requests(MessageType.EVALUATE, server_round + 1, arrays)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Check that every owner received the final model; none says anything of its data."""
        if server_round < self.last_round:
            return None
        return _computing_time(self._accept(replies, "the final evaluation"))

    @property
    def last_round(self) -> int:
        """The number of rounds that are run."""
        return self.config.training.rounds if self.rounds is None else self.rounds

    def summary(self) -> None:
        """Say nothing: the run directory and the report describe the run."""

    def findings(self, grid: Grid) -> list[dict[str, Array]]:
        """Ask the adversary's node for its log-likelihood ratios and its attacks on the model.

        In an instrumented run the ratios are the auditor's own, and those of the server are never
        the node's; arrays of other vantages than the configured one have it in their names. With
        `audit.bayesian-pairs`, also what the owners found of their own records,
        `bayesian_distances` [E, k, pairs].
        """
        node = self.nodes[self.challenge.adversary]
        query = Message(RecordDict(), node, f"{MessageType.QUERY}.findings")
        replies = grid.send_and_receive([query], timeout=self.config.federation.timeout)
        (reply,) = self._accept(replies, "the adversary's findings", [self.challenge.adversary])
        found = [messages.arrays_of(record) for record in reply.content.array_records.values()]
        if self._distances:
            found.append({"bayesian_distances": np.stack(self._distances, axis=1)})
        primary = self.config.federation.vantage
        for vantage, steps in self._measured.items():
            joined = type(steps[0]).join(steps)
            ending = vantages.suffix(vantage, primary)
            found.append({f"{name}{ending}": array for name, array in joined.items()})
        return found

    def _requests(self, kind: str, round: int, arrays: ArrayRecord) -> list[Message]:
        requests = []
        trust = self.config.federation.trust
        for partition, node in sorted(self.nodes.items()):
            role = self._role(partition)
            content = RecordDict(
                {
                    messages.REQUEST: self._request(round, role).to_record(),
                    messages.MODEL: arrays,
                }
            )
            if round > 1:
                assert self._aggregate is not None
                content[messages.AGGREGATE] = messages.array_record(sum=self._aggregate)
            # Under PAC noise the owner sends both sums, and the server alone knows which counts.
            if role is Role.CHALLENGED and self._releases is None:
                content[messages.WORLDS] = messages.array_record(bits=self.worlds)
            if self._local_sensitivity is not None and trust is Trust.LOCAL:
                content[messages.SENSITIVITY] = messages.array_record(norms=self._local_sensitivity)
            requests.append(Message(content, node, kind))
        return requests

    def _request(self, round: int, role: Role) -> Request:
        told = (-1, -1, -1)
        if role is not Role.OWNER:
            record, replacement = (
                -1 if position is None else position
                for position in (self.challenge.record, self.challenge.replacement)
            )
            told = (record, replacement, self.challenge.owner)
        return Request(
            round, self.trials.start, len(self.trials), self.noise_multiplier, role, *told
        )

    def _role(self, partition: int) -> Role:
        if partition == self.challenge.owner:
            return Role.CHALLENGED
        return Role.ADVERSARY if partition == self.challenge.adversary else Role.OWNER

    def _ask_local_sensitivity(
        self, round: int, arrays: ArrayRecord, grid: Grid
    ) -> npt.NDArray[np.float64]:
        owner = self.challenge.owner
        content = RecordDict(
            {
                messages.REQUEST: self._request(round, Role.CHALLENGED).to_record(),
                messages.MODEL: arrays,
            }
        )
        query = Message(content, self.nodes[owner], f"{MessageType.QUERY}.sensitivity")
        replies = grid.send_and_receive([query], timeout=self.config.federation.timeout)
        (reply,) = self._accept(replies, f"the sensitivity of round {round}", [owner])
        record = reply.content.array_records[messages.SENSITIVITY]
        return messages.only(record).astype(np.float64)

    def _release_pac(self, replies: list[Message], candidates: Array, round: int) -> Array:
        """Add noise to the sums of all candidates [T, m, P]; return the secret one's, [T, P]."""
        assert self._releases is not None
        records = [reply.content.array_records for reply in replies]
        (measured,) = (
            messages.arrays_of(record[messages.MEASUREMENT])
            for record in records
            if messages.MEASUREMENT in record
        )
        present = np.linalg.norm(measured["present"], axis=1)
        absent = measured.get("absent")
        normals = gaussian_noise(
            self.config.noise_seed, self.trials, round, SERVER, self.config.candidates
        )
        total, step = self._releases.step(
            candidates,
            measured["membership"],
            present,
            np.zeros_like(present) if absent is None else np.linalg.norm(absent, axis=1),
            normals,
        )
        self._remember({Vantage.PARTICIPANT: step})
        return total

    def _remember(self, steps: Mapping[Vantage, instrumented.Step]) -> None:
        for vantage, step in steps.items():
            self._measured.setdefault(vantage, []).append(step)

    def _look(self, replies: list[Message], total: Array, round: int) -> instrumented.Step:
        """Let a curious server conclude from what it received: a message, or the sum of all."""
        config, known = self.config, federation.load(self.config)
        seen = total
        if config.federation.trust is not Trust.DISTRIBUTED:
            (seen,) = (
                messages.only(reply.content.array_records[messages.REPLY])
                for reply in replies
                if reply.metadata.src_node_id == self.nodes[self.challenge.owner]
            )
        coins = participation(
            config.noise_seed,
            self.trials,
            round,
            config.data.records,
            config.training.sampling_rate,
        )
        return server_adversary.conclude(
            config,
            known,
            self.challenge.owner,
            -1 if self.challenge.record is None else self.challenge.record,
            self.challenge.replacement,
            self.noise_multiplier,
            torch.tensor(self._model).to(known.device),
            torch.tensor(seen).to(known.device),
            None if coins is None else torch.from_numpy(coins).to(known.device),
            self.trials,
            round,
        )

    def _measure(
        self, replies: list[Message], server_noise: Array | None
    ) -> dict[Vantage, instrumented.Step]:
        """Compute what each vantage would conclude from the step, out of the noise itself."""
        partition_of = {node: partition for partition, node in self.nodes.items()}
        records = {
            partition_of[reply.metadata.src_node_id]: reply.content.array_records[
                messages.MEASUREMENT
            ]
            for reply in replies
            if messages.MEASUREMENT in reply.content.array_records
        }
        sights = self._sights()
        if not sights:
            return {}

        def tensor(record: ArrayRecord, name: str) -> torch.Tensor | None:
            return torch.from_numpy(record[name].numpy()) if name in record else None

        def noises() -> Iterator[tuple[int, torch.Tensor]]:
            # One after the other: all of them together are owners x [T, P].
            for partition, record in records.items():
                if (noise := tensor(record, "noise")) is not None:
                    yield partition, noise
            if server_noise is not None:
                yield SERVER, torch.from_numpy(server_noise)

        challenged = records[self.challenge.owner]
        present = tensor(challenged, "present")
        assert present is not None
        return instrumented.measure(
            present,
            tensor(challenged, "absent"),
            noises(),
            torch.from_numpy(self.worlds),
            tensor(challenged, "participation"),
            sights,
            self.config.training.sampling_rate,
        )

    def _sights(self) -> dict[Vantage, instrumented.Sight]:
        """Return what hides the challenge from each measured vantage that sees every round."""
        trust, owners = self.config.federation.trust, self.config.federation.owners
        scale = self._noise_scale()

        def sight(vantage: Vantage) -> instrumented.Sight:
            multiplier = effective_noise_multiplier(self.noise_multiplier, trust, vantage, owners)
            sources = vantages.unknown_noise(
                vantage, trust, owners, self.challenge.owner, self.challenge.adversary
            )
            return instrumented.Sight(sources, torch.from_numpy(multiplier * scale))

        seeing = (v for v in vantages.measured(self.config) if v in vantages.EXACT)
        return {vantage: sight(vantage) for vantage in seeing}

    def _noise_scale(self) -> npt.NDArray[np.float64]:
        if self._local_sensitivity is not None:
            return self._local_sensitivity
        bound = sensitivity(self.config.privacy.neighbouring, self.config.training.clipping_norm)
        return np.full(len(self.trials), bound)

    def _accept(
        self, replies: Iterable[Message], what: str, expected: Iterable[int] | None = None
    ) -> list[Message]:
        """Return the replies sorted by partition. Raises OwnerFailedError unless all are there."""
        partition_of = {node: partition for partition, node in self.nodes.items()}
        accepted: dict[int, Message] = {}
        for reply in replies:
            if reply.has_error():
                # Flower attributes some failures to the server's own node.
                owner = partition_of.get(reply.metadata.src_node_id, "?")
                raise OwnerFailedError(f"{what}: owner {owner} failed: {reply.error.reason}")
            accepted[partition_of[reply.metadata.src_node_id]] = reply
        missing = set(self.nodes if expected is None else expected) - set(accepted)
        if missing:
            raise OwnerFailedError(
                f"{what}: no answer from owner {', '.join(map(str, sorted(missing)))} within "
                f"{self.config.federation.timeout:g} s (federation.timeout)"
            )
        return [accepted[partition] for partition in sorted(accepted)]


def _computing_time(replies: list[Message]) -> MetricRecord:
    """Return the owners' computing time together, in seconds."""
    return MetricRecord({"seconds": sum(messages.metric(reply, "seconds") for reply in replies)})
