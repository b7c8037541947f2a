"""The observations at the server in each round, for the adversaries and for the auditor."""

from collections.abc import Iterator, Mapping
from functools import partial

import torch
from flwr.app import ArrayRecord

from fedsim.common.randomness import SERVER
from fedsim.federation.protocol import messages
from fedsim.federation.server.batch import Array, Batch, Received, Round
from fedsim.federation.server.checkpoint import State
from fedsim.game import federation, one_run
from fedsim.game.mechanisms import vantages
from fedsim.game.mechanisms.step import Learnt, UnknownNoise, join
from fedsim.game.observers import at_server, disclosed_noise
from fedsim.game.observers.at_server import OracleView, Seen
from fedsim.game.round_game import RoundGame
from fedsim.privacy.mechanism import aggregate_noise_multiplier
from fedsim.privacy.noise import Noised
from fedsim.privacy.trust import Vantage


class BatchObservations:
    """The observations of a batch of trials over its rounds."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._config = batch.plan.config
        self._seat = at_server.seat(self._config.audit.mode)()
        self._learnt: dict[Vantage, list[Learnt]] = {}
        self._canary_scores: Array | None = None

    def observe(self, round: Round, received: Received, noised: Noised, after: State) -> None:
        """Add what the adversaries conclude, what the clients measured, and canaries' scores."""
        for vantage, step in self._from_seat(round, received, noised).items():
            self._learnt.setdefault(vantage, []).append(step)
        if self._config.canaries.count:
            scores = self._scores(round, after)
            before = self._canary_scores
            # A canary is in all rounds or in none, so the scores of its rounds add up.
            self._canary_scores = scores if before is None else before + scores

    def findings(self) -> list[dict[str, Array]]:
        """Return all observations by name; those of other vantage points with a suffix."""
        config, arrays = self._config, []
        if self._canary_scores is not None:
            coins = one_run.included(config.canaries.count, config.run.seed, self._batch.trials)
            arrays.append({"canary_scores": self._canary_scores, "canaries_included": coins})
        for vantage, rounds in self._learnt.items():
            ending = vantages.suffix(vantage, config.federation.vantage)
            arrays.append({f"{name}{ending}": array for name, array in join(rounds).items()})
        return arrays

    def _from_seat(
        self, round: Round, received: Received, noised: Noised
    ) -> Mapping[Vantage, Learnt]:
        """Return what the seat learns; no information where the target's client was missing."""
        batch, config = self._batch, self._config
        unknown_noise = {
            vantage: self._unknown(vantage, round, received)
            for vantage in vantages.measured(config.federation.vantage, config.audit.vantages)
            if vantage in vantages.EXACT and vantage in self._seat.vantages
        }
        if not unknown_noise:
            return {}
        target = batch.challenge
        if target.client not in received.replies:
            return {
                vantage: disclosed_noise.nothing(unknown.noise_std).learnt
                for vantage, unknown in unknown_noise.items()
            }
        total = noised.total
        if received.disclosed is not None:
            total = total - sum(messages.arrays_of(received.disclosed).values())
        game = RoundGame(
            round.number,
            batch.trials,
            batch.plan.noise_multiplier,
            target.client,
            target.record,
            target.replacement,
        )
        seen = Seen(
            config,
            game,
            received.participants,
            unknown_noise,
            round.model,
            total,
            lambda client: messages.only(received.records(messages.REPLY)[client]),
            partial(_measured, batch, received, noised),
        )
        return {vantage: step.learnt for vantage, step in self._seat.observe(seen).items()}

    def _unknown(self, vantage: Vantage, round: Round, received: Received) -> UnknownNoise:
        """Return the sources of the noise that hides the target from a vantage, and its size."""
        batch, federation = self._batch, self._config.federation
        target, clients = batch.challenge, self._config.participation.expected_clients
        sources = federation.trust.model.unknown_noise(
            vantage, received.participants, target.client, target.adversary, batch.colluders
        )
        multiplier = aggregate_noise_multiplier(
            batch.plan.noise_multiplier, federation.trust, clients, len(sources)
        )
        return UnknownNoise(sources, torch.from_numpy(multiplier * round.sensitivities))

    def _scores(self, round: Round, after: State) -> Array:
        """Return every canary's score in the released sum, which every recipient can compute."""
        assert after.release is not None
        loaded = federation.load(self._config)
        sent = (round.model, after.release.aggregate)
        placed = (torch.tensor(each).to(loaded.device) for each in sent)
        scores: Array = one_run.scores(self._config, loaded, *placed).cpu().numpy()
        return scores


def _measured(batch: Batch, received: Received, noised: Noised) -> OracleView:
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
