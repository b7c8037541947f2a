"""The observations at the server in each round, for the adversaries and for the auditor."""

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from flwr.app import ArrayRecord

from fedsim.common.randomness import SERVER
from fedsim.federation.protocol import messages
from fedsim.federation.server.batch import Array, Batch, BegunRound, ReceivedReplies
from fedsim.federation.server.checkpoint import RoundRelease
from fedsim.game import federation, one_run
from fedsim.game.challenge import NOBODY
from fedsim.game.mechanisms import vantages
from fedsim.game.mechanisms.step import Learnt, UnknownNoise, join
from fedsim.game.observers import at_server, disclosed_noise
from fedsim.game.observers.at_server import OracleView, Seen
from fedsim.privacy.noise import Noised
from fedsim.privacy.trust.model import Vantage


class BatchObservations:
    """The observations of a batch of trials over its rounds."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._seat = at_server.seat(batch.plan.config.audit.mode)()
        self._learnt: dict[Vantage, list[Learnt]] = {}
        self._distances: list[Array] = []
        self._canary_scores: Array | None = None

    def observe(self, round: BegunRound, received: ReceivedReplies, noised: Noised) -> None:
        """Add the adversaries' conclusions from a round, and the clients' measurements in it.

        A training has none, since it has no adversary.
        """
        if self._batch.challenge is NOBODY:
            return
        for vantage, step in self._from_seat(round, received, noised).items():
            self._learnt.setdefault(vantage, []).append(step)
        if distances := received.records(messages.DISTANCES):
            arrays = [messages.only(record) for record in distances.values()]
            self._distances.append(np.concatenate(arrays, axis=1))

    def _from_seat(
        self, round: BegunRound, received: ReceivedReplies, noised: Noised
    ) -> Mapping[Vantage, Learnt]:
        """Return what the seat learns; no information where the target's client was missing."""
        batch = self._batch
        watched = [
            vantage
            for vantage in vantages.measured(
                batch.plan.config.federation.vantage, batch.plan.config.audit.vantages
            )
            if vantage in vantages.EXACT and vantage in self._seat.vantages
        ]
        unknown_noise = {}
        for vantage in watched:
            sources = batch.unknown_noise(vantage, received.participants)
            noise_std = torch.from_numpy(batch.towards(sources) * round.sensitivities)
            unknown_noise[vantage] = UnknownNoise(sources, noise_std)
        if not unknown_noise:
            return {}
        if batch.challenge.client not in received.replies:
            return {
                vantage: disclosed_noise.nothing(unknown.noise_std).learnt
                for vantage, unknown in unknown_noise.items()
            }
        steps = self._seat.observe(_seen(batch, round, received, noised, unknown_noise))
        return {vantage: step.learnt for vantage, step in steps.items()}

    def score_canaries(self, round: BegunRound, release: RoundRelease, after: torch.Tensor) -> None:
        """Add the score of every canary in the released sum, which every recipient can compute."""
        config = self._batch.plan.config
        if not config.canaries.count:
            return
        loaded = federation.load(config.experiment)
        sent = torch.tensor(round.model), torch.tensor(release.aggregate), after
        placed = (each.to(loaded.device) for each in sent)
        scores: Array = one_run.scores(config.game, loaded, *placed).cpu().numpy()
        before = self._canary_scores
        # A canary is in all rounds or in none, so the scores of its rounds add up.
        self._canary_scores = scores if before is None else before + scores

    def findings(self) -> list[dict[str, Array]]:
        """Return all observations by name; those of other vantage points with a suffix."""
        config, arrays = self._batch.plan.config, []
        if self._distances:
            arrays.append({"bayesian_distances": np.stack(self._distances, axis=1)})
        if self._canary_scores is not None:
            coins = one_run.included(config.canaries.count, config.run.seed, self._batch.trials)
            arrays.append({"canary_scores": self._canary_scores, "canaries_included": coins})
        for vantage, rounds in self._learnt.items():
            ending = vantages.suffix(vantage, config.federation.vantage)
            arrays.append({f"{name}{ending}": array for name, array in join(rounds).items()})
        return arrays


def _seen(
    batch: Batch,
    round: BegunRound,
    received: ReceivedReplies,
    noised: Noised,
    unknown_noise: Mapping[Vantage, UnknownNoise],
) -> Seen:
    """Return the values that a seat may look at in a round that the target's client joined."""
    total = noised.total
    if received.disclosed is not None:
        total = total - sum(messages.arrays_of(received.disclosed).values())

    def message(partition: int) -> Array:
        reply = received.replies[partition]
        return messages.only(messages.array_records(reply.content)[messages.REPLY])

    return Seen(
        batch.plan.config.experiment,
        batch.game(round.number),
        received.participants,
        unknown_noise,
        round.model,
        total,
        message,
        lambda: _measured(batch, received, noised),
    )


def _measured(batch: Batch, received: ReceivedReplies, noised: Noised) -> OracleView:
    records = received.records(messages.MEASUREMENT)
    target = records[batch.challenge.client]

    def noises() -> Iterator[tuple[int, torch.Tensor]]:
        # One after the other, since all of them take clients x [T, P] numbers.
        for partition, record in records.items():
            if (noise := _tensor(record, "noise")) is not None:
                yield partition, noise
        if noised.noise is not None:
            yield SERVER, torch.from_numpy(noised.noise)

    present = _tensor(target, "present")
    assert present is not None
    return OracleView(
        torch.from_numpy(batch.worlds),
        present,
        _tensor(target, "absent"),
        _tensor(target, "participation"),
        noises(),
    )


def _tensor(record: ArrayRecord, name: str) -> torch.Tensor | None:
    return torch.tensor(record[name].numpy()) if name in record else None
