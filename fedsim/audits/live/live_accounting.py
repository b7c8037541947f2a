"""What the messages to an auditor's node ask for, and the noise of their rounds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from fedsim.audits.live.live_rounds import LiveBatch
from fedsim.configuration.federation import FederationConfig
from fedsim.configuration.privacy import PrivacyConfig
from fedsim.configuration.training import TrainingConfig
from fedsim.federation.transcripts.records import ObservedRound, not_of_an_auditor
from fedsim.privacy.accounting import PLD
from fedsim.privacy.mechanism import Mechanism, Steps, aggregate_noise_multiplier


@dataclass(frozen=True)
class LiveRequest:
    """A message's request, as an auditor's node recorded it.

    Attributes:
        earlier: number of rounds of interrupted attempts.
        released: number of rounds that all trainings had released when this one began.
        begun: first round of this attempt.
    """

    first_trial: int
    record: int
    replacement: int
    target_client: int
    noise_multiplier: float
    earlier: int
    released: int
    begun: int

    @classmethod
    def of(cls, observed: ObservedRound) -> Self:
        """Return the request of a recorded message.

        Raises InputError if it has none, or one whose values are of another type.
        """
        types = {each.name: (int, float) if each.type is float else (int,) for each in fields(cls)}
        values: dict[str, Any] = {
            name: observed.mechanism.get(f"request.{name.replace('_', '-')}") for name in types
        }
        well_typed = all(type(values[name]) in allowed for name, allowed in types.items())
        if not well_typed or "parameters" not in observed.model:
            raise not_of_an_auditor(observed)
        return cls(**values)


@dataclass(frozen=True)
class LiveAccounting:
    """Accounts for rounds, for an observer without noise of its own.

    An auditor that receives single messages faces as little noise as the server.
    """

    federation: FederationConfig
    training: TrainingConfig
    privacy: PrivacyConfig

    def mechanism(self, groups: Iterable[Steps]) -> Mechanism:
        return Mechanism(tuple(groups), self.privacy.neighbouring)

    def epsilon(self, groups: Iterable[Steps]) -> float:
        return PLD.epsilon(self.mechanism(groups), self.privacy.delta)

    def everything(self, batches: Sequence[LiveBatch]) -> Mechanism:
        """Return the noise of all rounds of all trials together.

        Rounds that the transcript lacks, such as those before an interruption, count as the server
        states them, with the least tolerated noise.
        """
        groups = [
            replace(group, count=group.count * len(batch.trials))
            for batch in batches
            for group in batch.groups
        ]
        last = max(batches, key=lambda batch: batch.before)
        count = sum(
            len(batch.trials) * (batch.earlier if batch is last else batch.rounds)
            for batch in batches
        )
        if last.before > count:
            groups.append(self.unseen(last.nominal, last.before - count))
        return self.mechanism(groups)

    def steps(self, nominal: float, sources: int, rounds: int) -> Steps:
        """Return rounds with this many clients."""
        if self.federation.auditor_sees == "messages":
            sources = 1  # a single message has only its own client's noise
        multiplier = nominal
        if self.training.local_steps == 1:
            # In a round of local steps, others' noise does not hide the models in between.
            multiplier = aggregate_noise_multiplier(
                nominal, self.federation.trust, self.federation.clients, sources
            )
        return Steps(
            multiplier if self.training.clipping else 0.0,
            rounds * self.training.local_steps,
            self.training.sampling_rate,
        )

    def unseen(self, nominal: float, rounds: int) -> Steps:
        """Return rounds without a result, with the least tolerated noise."""
        return self.steps(nominal, self.federation.fewest_participants, rounds)
