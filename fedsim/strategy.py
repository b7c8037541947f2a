"""DP-SGD over a federation as a Flower strategy: Algorithm 1 of Bernau et al., T trials at once.

Strict where Flower's FedAvg is lenient: a missing or failed owner ends the run, because a missing
clipped sum or noise share changes the mechanism that was accounted for. Where the configuration
tolerates missing owners, the round goes on without them, as what it then is: its true noise is
entered in the ledger before its sum is released. With more missing it is refused, and nothing of it
released. Replies are sorted by partition before they are summed, so that every runtime gives the
same bits.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
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

from fedsim import (
    federation,
    fixed_point,
    instrumented,
    messages,
    one_run,
    secure_aggregation,
    server_adversary,
    vantages,
)
from fedsim.challenge import Challenge, colluders
from fedsim.config import Config
from fedsim.ledger import Attempt
from fedsim.mechanism import (
    Neighbouring,
    Trust,
    Vantage,
    aggregate_noise_multiplier,
    sensitivity,
)
from fedsim.messages import Request, Role
from fedsim.nodes import Auditors
from fedsim.optimizers import ServerOptimizer
from fedsim.pac_release import Releases
from fedsim.question import Question
from fedsim.randomness import SERVER, gaussian_noise
from fedsim.replies import (
    check_array,
    check_findings,
    check_measurement,
    check_records,
    check_round,
    finding_names,
    sort_out,
)
from fedsim.sampling import participation
from fedsim.secure_aggregation import SecureSum
from fedsim.sum_bounds import LENIENT, longest_sum

Array = npt.NDArray[Any]


class OwnerFailedError(RuntimeError):
    """An owner did not answer, or answered with an error or with what it was not asked for."""


@dataclass
class DPSGD(Strategy):
    """One cohort of trials, from theta_0 to theta_k.

    nodes: the Flower node of each partition; worlds bool [T]: which trials train on D; rounds: how
    many are run, None for all that the configuration plans; attempt: where they are charged;
    log_event: where owners that are missing from a round are noted; auditors: who else is sent what
    every owner is sent.
    """

    config: Config
    challenge: Challenge
    noise_multiplier: float
    nodes: dict[int, int]
    trials: range
    worlds: npt.NDArray[np.bool_]
    rounds: int | None = None
    attempt: Attempt | None = None
    log_event: Callable[..., None] | None = None
    auditors: Auditors | None = None

    def __post_init__(self) -> None:
        self._model: Array | None = None
        self._aggregate: Array | None = None
        self._secure: SecureSum | None = None
        self._participants: tuple[int, ...] = ()
        self._confided: ArrayRecord | None = None
        self._colluders = colluders(self.config, self.challenge)
        self._local_sensitivity: npt.NDArray[np.float64] | None = None
        self._measured: dict[Vantage, list[instrumented.Step]] = {}
        self._distances: list[Array] = []
        self._canary_scores: Array | None = None
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
        self._inform_auditors(grid, MessageType.TRAIN, server_round, arrays)
        requests = self._requests(MessageType.TRAIN, server_round, arrays)
        if not secure_aggregation.enabled(self.config):
            return requests
        assert self._grid is not None
        self._secure = SecureSum(
            grid,
            self.nodes,
            self._grid,
            secure_aggregation.agreed_setup(self.config),
            self.config.federation.timeout,
        )
        told = self._secure.exchange_keys()
        requests = [request for request in requests if request.metadata.dst_node_id in told]
        for request in requests:
            request.content[secure_aggregation.CONFIGS] = told[request.metadata.dst_node_id]
        return requests

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord, MetricRecord]:
        """Release r = sum of the owners' messages + central noise; step with r / n."""
        failed = () if self._secure is None else self._secure.failed.values()
        found = self._accept_train([*replies, *failed], server_round)
        accepted, self._participants = list(found.values()), tuple(found)
        if self.attempt is not None:
            self.attempt.settle(server_round, found)
        total = self._sum(accepted)
        noise = None
        if self._releases is not None:
            total = self._release_pac(accepted, total, server_round)
        elif self.config.federation.trust is Trust.CENTRAL:
            std = self.noise_multiplier * self._noise_scale()
            noise = gaussian_noise(
                self.config.noise_seed,
                self.config.trials.leaves(self.trials),
                server_round,
                SERVER,
                total.shape[1],
            )
            noise *= std[:, None]
            total += noise
        if self._releases is None and self.config.audit.mode == "instrumented":
            self._remember(self._measure(found, noise))
        self._confided = self._confidences(found)
        curious = self._releases is None and self.config.audit.mode == "participant"
        if curious and Vantage.SERVER in vantages.measured(self.config):
            self._remember({Vantage.SERVER: self._look(found, total, server_round)})
        distances = [
            messages.only(reply.content.array_records[messages.DISTANCES])
            for reply in accepted
            if messages.DISTANCES in reply.content.array_records
        ]
        if distances:
            self._distances.append(np.concatenate(distances, axis=1))
        # What the owners are sent is what the model is stepped with, to the last bit.
        self._aggregate = total.astype(np.float32)
        if not np.isfinite(self._aggregate).all():
            raise OwnerFailedError(
                f"round {server_round}: the sum of the owners' messages is beyond what float32 can "
                "hold, so that at least one of them is false; nothing of it is released"
            )
        if self.config.canaries.count:
            self._score_canaries()
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
        self._inform_auditors(grid, MessageType.EVALUATE, server_round + 1, arrays)
        return self._requests(MessageType.EVALUATE, server_round + 1, arrays)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Check that every owner received the final model; none says anything of its data."""
        if server_round < self.last_round:
            return None
        answered = self._accept(
            replies,
            "the final evaluation",
            self.config.federation.tolerated_dropouts,
            needed=self.challenge.adversary,
        )
        return _computing_time(list(answered.values()))

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
        asked = [self.challenge.adversary]
        follows = self.config.audit.mode == "participant"
        needed = None
        if follows and Vantage.PARTICIPANT in vantages.measured(self.config):
            needed = f"ratios{vantages.suffix(Vantage.PARTICIPANT, self.config.federation.vantage)}"
        answers = self._accept(
            replies,
            "the adversary's findings",
            asked=asked,
            inspect=lambda reply: check_findings(
                reply, finding_names(self.config), len(self.trials), self.last_round, needed
            ),
        )
        (reply,) = answers.values()
        found = [messages.arrays_of(record) for record in reply.content.array_records.values()]
        if self._distances:
            found.append({"bayesian_distances": np.stack(self._distances, axis=1)})
        if self._canary_scores is not None:
            coins = one_run.included(self.config, self.trials)
            found.append({"canary_scores": self._canary_scores, "canaries_included": coins})
        primary = self.config.federation.vantage
        for vantage, steps in self._measured.items():
            joined = type(steps[0]).join(steps)
            ending = vantages.suffix(vantage, primary)
            found.append({f"{name}{ending}": array for name, array in joined.items()})
        return found

    def _inform_auditors(self, grid: Grid, kind: str, round: int, arrays: ArrayRecord) -> None:
        """Send what every owner is sent to auditors as well, before the owners begin to compute."""
        if self.auditors is not None:
            self.auditors.look_around(grid)
            self.auditors.inform(grid, kind, lambda: self._content(round, Role.AUDITOR, arrays))

    def _requests(self, kind: str, round: int, arrays: ArrayRecord) -> list[Message]:
        requests = []
        trust = self.config.federation.trust
        for partition, node in sorted(self.nodes.items()):
            role = self._role(partition)
            content = self._content(round, role, arrays)
            if role is Role.ADVERSARY and self._confided is not None:
                content[messages.CONFIDED] = self._confided
            # Under PAC noise the owner sends both sums, and the server alone knows which counts.
            if role is Role.CHALLENGED and self._releases is None:
                content[messages.WORLDS] = messages.array_record(bits=self.worlds)
            if self._local_sensitivity is not None and trust is Trust.LOCAL:
                content[messages.SENSITIVITY] = messages.array_record(norms=self._local_sensitivity)
            requests.append(Message(content, node, kind))
        return requests

    def _content(self, round: int, role: Role, arrays: ArrayRecord) -> RecordDict:
        """Return what everybody is sent: the model, and what the round before released."""
        content = RecordDict(
            {messages.REQUEST: self._request(round, role).to_record(), messages.MODEL: arrays}
        )
        if round > 1:
            assert self._aggregate is not None
            content[messages.AGGREGATE] = messages.array_record(sum=self._aggregate)
            content[messages.PARTICIPANTS] = ConfigRecord({"owners": list(self._participants)})
        return content

    def _request(self, round: int, role: Role) -> Request:
        told = (-1, -1, -1)
        if role in (Role.CHALLENGED, Role.ADVERSARY, Role.AUDITOR):
            record, replacement = (
                -1 if position is None else position
                for position in (self.challenge.record, self.challenge.replacement)
            )
            told = (record, replacement, self.challenge.owner)
        before = (0, 0) if self.attempt is None else (self.attempt.earlier, self.attempt.released)
        first, count = self.trials.start, len(self.trials)
        return Request(round, first, count, self.noise_multiplier, role, *told, *before)

    def _role(self, partition: int) -> Role:
        if partition == self.challenge.owner:
            return Role.CHALLENGED
        if partition == self.challenge.adversary:
            return Role.ADVERSARY
        return Role.COLLUDER if partition in self._colluders else Role.OWNER

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
        most = sensitivity(self.config.privacy.neighbouring, self.config.training.clipping_norm)

        def inspect(reply: Message) -> None:
            check_round(reply, round)
            check_array(reply, messages.SENSITIVITY, [(len(self.trials),)], np.float64)
            norms = messages.only(reply.content.array_records[messages.SENSITIVITY])
            if self.config.training.clipping and not np.all(
                (norms >= 0) & (norms <= most * LENIENT)
            ):
                raise ValueError(f"its sensitivity is not between 0 and {most:g}")

        (reply,) = self._accept(
            replies, f"the sensitivity of round {round}", asked=[owner], inspect=inspect
        ).values()
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

    def _score_canaries(self) -> None:
        """Look for every canary in the released sum, as anybody can who is sent it."""
        assert self._model is not None and self._aggregate is not None
        known = federation.load(self.config)
        sent = (torch.tensor(array).to(known.device) for array in (self._model, self._aggregate))
        found: Array = one_run.scores(self.config, known, *sent).cpu().numpy()
        before = self._canary_scores
        self._canary_scores = found if before is None else before + found

    def _remember(self, steps: Mapping[Vantage, instrumented.Step]) -> None:
        for vantage, step in steps.items():
            self._measured.setdefault(vantage, []).append(step)

    def _look(self, found: dict[int, Message], total: Array, round: int) -> instrumented.Step:
        """Let a curious server conclude from what it received: a message, or the sum of all."""
        config, known = self.config, federation.load(self.config)
        sources = self._unknown_noise(Vantage.SERVER)
        noise_std = self._multiplier(sources) * self._noise_scale()
        if self.challenge.owner not in found:  # there is nothing to tell apart
            return instrumented.nothing(torch.from_numpy(noise_std))
        seen, summed = total, self._participants
        if config.federation.trust is not Trust.DISTRIBUTED:
            reply = found[self.challenge.owner]
            seen = messages.only(reply.content.array_records[messages.REPLY])
            summed = (self.challenge.owner,)
        elif self._confided is not None:
            seen = total - sum(messages.arrays_of(self._confided).values())
        coins = participation(
            config.noise_seed,
            config.trials.leaves(self.trials),
            round,
            config.data.records,
            config.training.sampling_rate,
        )
        return server_adversary.conclude(
            config,
            known,
            summed,
            Question(
                round,
                self.trials,
                self.noise_multiplier,
                self.challenge.owner,
                self.challenge.record,
                self.challenge.replacement,
            ),
            torch.from_numpy(noise_std).to(known.device),
            torch.tensor(self._model).to(known.device),
            torch.tensor(seen).to(known.device),
            None if coins is None else torch.from_numpy(coins).to(known.device),
        )

    def _measure(
        self, found: dict[int, Message], server_noise: Array | None
    ) -> dict[Vantage, instrumented.Step]:
        """Compute what each vantage would conclude from the step, out of the noise itself."""
        records = {
            partition: reply.content.array_records[messages.MEASUREMENT]
            for partition, reply in found.items()
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

        if self.challenge.owner not in found:  # there is nothing to tell apart
            return {
                vantage: instrumented.nothing(sight.noise_std) for vantage, sight in sights.items()
            }
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
        scale = self._noise_scale()

        def sight(vantage: Vantage) -> instrumented.Sight:
            sources = self._unknown_noise(vantage)
            return instrumented.Sight(sources, torch.from_numpy(self._multiplier(sources) * scale))

        seeing = (v for v in vantages.measured(self.config) if v in vantages.EXACT)
        return {vantage: sight(vantage) for vantage in seeing}

    def _multiplier(self, sources: frozenset[int]) -> float:
        """Return the noise multiplier towards somebody who does not know these noises."""
        trust, owners = self.config.federation.trust, self.config.federation.owners
        return aggregate_noise_multiplier(self.noise_multiplier, trust, owners, len(sources))

    def _unknown_noise(self, vantage: Vantage) -> frozenset[int]:
        """Return whose noise of this round's participants hides the challenge from a vantage."""
        return vantages.unknown_noise(
            vantage,
            self.config.federation.trust,
            self._participants,
            self.challenge.owner,
            self.challenge.adversary,
            self._colluders,
        )

    def _confidences(self, found: dict[int, Message]) -> ArrayRecord | None:
        """Return the noise of every colluder that took part, for the adversary's eyes alone."""
        told = {
            str(partition): messages.only(reply.content.array_records[messages.CONFIDED])
            for partition, reply in found.items()
            if messages.CONFIDED in reply.content.array_records
        }
        return messages.array_record(**told) if told else None

    def _sum(self, accepted: list[Message]) -> npt.NDArray[np.float64]:
        """Return the sum of the owners' messages."""
        if self._secure is not None and self._grid is not None:
            by_node = {reply.metadata.src_node_id: reply for reply in accepted}
            words = self._secure.unmask(by_node, self._shape)
            if self.log_event is not None:
                for owner, why in self._secure.silent.items():
                    self.log_event(silent=owner, of="unmasking", reason=why)
            return self._grid.values(words)
        sums = (messages.only(reply.content.array_records[messages.REPLY]) for reply in accepted)
        if self._grid is not None:
            return self._grid.values(fixed_point.summed(sums))
        total: npt.NDArray[np.float64] = np.zeros(self._shape)
        for each in sums:
            total += each
        return total

    @property
    def _grid(self) -> fixed_point.FixedPoint | None:
        """The grid of the owners' messages under distributed trust."""
        if self.config.federation.trust is not Trust.DISTRIBUTED:
            return None
        return fixed_point.agreed(self.config, self.noise_multiplier, self._shape[-1])

    @property
    def _shape(self) -> tuple[int, ...]:
        """The shape of one owner's sum."""
        assert self._model is not None
        trials, size = self._model.shape
        return (trials, size) if self._releases is None else (trials, self.config.candidates, size)

    def _noise_scale(self) -> npt.NDArray[np.float64]:
        if self._local_sensitivity is not None:
            return self._local_sensitivity
        if self._grid is not None:
            return np.full(len(self.trials), self._grid.sensitivity)
        bound = sensitivity(self.config.privacy.neighbouring, self.config.training.clipping_norm)
        return np.full(len(self.trials), bound)

    def _accept_train(self, answers: Iterable[Message], round: int) -> dict[int, Message]:
        federation = self.config.federation

        def inspect(reply: Message) -> None:
            check_round(reply, round)
            dtype = np.uint32 if federation.trust is Trust.DISTRIBUTED else np.float32
            if self._secure is None:
                # Of an owner whose records all candidates have there is one sum for all of them.
                alike = (self._shape[0], 1, self._shape[-1])
                shapes = [self._shape] if self._releases is None else [self._shape, alike]
                check_array(reply, messages.REPLY, shapes, dtype)
                self._check_norm(reply)
                if self._grid is not None:
                    sent = messages.only(reply.content.array_records[messages.REPLY])
                    self._grid.check_range(sent, 1)
            else:
                if reply.metadata.src_node_id not in self._secure.sharing:
                    raise ValueError("it had no part in the exchange of keys")
                secure_aggregation.masked(reply, self._shape)
            asked = self._asked_of(int(messages.metric(reply, "partition")))
            check_records(
                reply, asked, {messages.DISTANCES} if self.config.audit.bayesian_pairs else set()
            )
            check_measurement(
                reply,
                len(self.trials),
                self._shape[-1],
                self.config.candidates,
                self.config.audit.evaluated(self.trials),
            )

        # Without its memory of a round the adversary could not go on.
        participant = self.config.audit.mode == "participant"
        return self._accept(
            answers,
            f"round {round}",
            federation.tolerated_dropouts,
            needed=self.challenge.adversary if participant else None,
            inspect=inspect,
        )

    def _check_norm(self, reply: Message) -> None:
        """Raise ValueError for a sum that is longer than this owner's can be.

        On a grid the range of the numbers is what bounds it.
        """
        if self._grid is not None:
            return
        sent = messages.only(reply.content.array_records[messages.REPLY]).astype(np.float64)
        norms = np.linalg.norm(sent, axis=-1).reshape(len(self.trials), -1).max(axis=1)
        most = longest_sum(
            self.config,
            federation.load(self.config),
            self.challenge,
            int(messages.metric(reply, "partition")),
            self.noise_multiplier * self._noise_scale(),
            self._shape[-1],
        )
        if (norms > most).any():
            worst = int(np.argmax(norms / most))
            raise ValueError(
                f"its sum has norm {norms[worst]:g}, but its records, clipped, and their noise "
                f"allow {most[worst]:g}"
            )

    def _asked_of(self, partition: int) -> dict[str, set[str]]:
        """Return the arrays that an owner's reply must have, by record; distances are not named."""
        config, trust = self.config, self.config.federation.trust
        asked = {} if self._secure is not None else {messages.REPLY: {"sum"}}
        challenged, colluder = partition == self.challenge.owner, partition in self._colluders
        adversary = partition == self.challenge.adversary
        measured = set()
        if config.audit.mode == "instrumented":
            if trust is not Trust.CENTRAL and vantages.tells_noise(
                config, challenged, adversary, colluder
            ):
                measured.add("noise")
            if challenged:
                measured.add("present")
                if config.privacy.neighbouring is Neighbouring.REPLACE:
                    measured.add("absent")
                if config.training.sampling_rate < 1:
                    measured.add("participation")
                if self._releases is not None:
                    measured.add("membership")
        elif colluder and trust is not Trust.CENTRAL:
            asked[messages.CONFIDED] = {"noise"}
        if measured:
            asked[messages.MEASUREMENT] = measured
        return asked

    def _accept(
        self,
        answers: Iterable[Message],
        what: str,
        tolerated: int = 0,
        needed: int | None = None,
        asked: Iterable[int] | None = None,
        inspect: Callable[[Message], None] = lambda _: None,
    ) -> dict[int, Message]:
        """Return the good replies by partition, sorted.

        Raises OwnerFailedError, which names the owners, unless at most `tolerated` are missing and
        `needed` is not one of them.
        """
        owners = self.nodes if asked is None else list(asked)
        found = sort_out(answers, self.nodes, owners, inspect)
        lost = {owner: f"owner {owner} failed: {why}" for owner, why in found.failed.items()}
        if found.missing:
            silent = (
                f"no answer from owner {', '.join(map(str, found.missing))} within "
                f"{self.config.federation.timeout:g} s (federation.timeout)"
            )
            lost |= dict.fromkeys(found.missing, silent)
        reasons = "; ".join(dict.fromkeys([*found.strangers, *lost.values()]))
        if reasons and not tolerated:
            raise OwnerFailedError(f"{what}: {reasons}")
        if len(lost) > tolerated:
            raise OwnerFailedError(
                f"{what}: {len(lost)} of {len(self.nodes)} owners are missing, more than "
                f"federation.tolerated-dropouts = {tolerated}; nothing of it is released: {reasons}"
            )
        if needed in lost:
            raise OwnerFailedError(
                f"{what}: the adversary's node is missing, without which there is no belief to "
                f"report: {reasons}"
            )
        if self.log_event is not None:
            for owner, why in lost.items():
                self.log_event(dropped=owner, of=what, reason=why)
            for why in found.strangers:
                self.log_event(dropped=None, of=what, reason=why)
        return found.accepted


def _computing_time(replies: list[Message]) -> MetricRecord:
    """Return the owners' computing time together, in seconds."""
    return MetricRecord({"seconds": sum(messages.metric(reply, "seconds") for reply in replies)})
