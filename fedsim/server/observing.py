"""What is learnt at the server from a round: by the seat that looks, and by whoever audits."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch
from flwr.app import ArrayRecord

from fedsim.common.randomness import SERVER
from fedsim.game import federation, one_run
from fedsim.mechanisms import vantages
from fedsim.mechanisms.step import Step, join
from fedsim.noise.mechanism import Learnt, Noised
from fedsim.protocol import messages
from fedsim.seats import instrumented, server_adversary
from fedsim.server.batch import Array, Batch, Floats, Received, Release, Round
from fedsim.training.sampling import participation
from fedsim.trust.model import Vantage

Seat = Callable[[Batch, Round, Received, Noised], Mapping[Vantage, Step]]
"""What an adversary at the server learns from a round, at each vantage that it stands for."""


def curious_server(
    batch: Batch, round: Round, received: Received, noised: Noised
) -> Mapping[Vantage, Step]:
    """Return what the server concludes from the target's message, or from the sum of all.

    Args:
        batch: the batch of trials.
        round: the round.
        received: the clients' replies.
        noised: the sum with its noise.

    Returns:
        One step, or none where the server's belief is not measured.
    """
    config = batch.config
    if Vantage.SERVER not in vantages.measured(config):
        return {}
    known, target = federation.load(config), batch.challenge.owner
    sources = batch.unknown_noise(Vantage.SERVER, received.participants)
    noise_std = torch.from_numpy(batch.towards(sources) * round.sensitivities)
    if target not in received.replies:  # there is nothing to tell apart
        return {Vantage.SERVER: instrumented.nothing(noise_std)}
    seen, within = _seen_by_server(batch, received, noised.total)
    coins = participation(
        config.noise_seed,
        config.trials.leaves(batch.trials),
        round.number,
        config.data.records,
        config.training.sampling_rate,
    )
    step = server_adversary.conclude(
        config,
        known,
        within,
        batch.question(round.number),
        noise_std.to(known.device),
        torch.tensor(round.model).to(known.device),
        torch.tensor(seen).to(known.device),
        None if coins is None else torch.from_numpy(coins).to(known.device),
    )
    return {Vantage.SERVER: step}


def oracle(
    batch: Batch, round: Round, received: Received, noised: Noised
) -> Mapping[Vantage, Step]:
    """Return what each vantage would conclude from a round, computed out of the noise itself.

    Args:
        batch: the batch of trials.
        round: the round.
        received: the clients' replies, with what the auditor is told.
        noised: the sum with its noise.
    """
    sights = {
        vantage: _sight(batch, round, received, vantage)
        for vantage in vantages.measured(batch.config)
        if vantage in vantages.EXACT
    }
    if not sights:
        return {}
    target = batch.challenge.owner
    if target not in received.replies:  # there is nothing to tell apart
        return {vantage: instrumented.nothing(sight.noise_std) for vantage, sight in sights.items()}
    records = received.records(messages.MEASUREMENT)

    def noises() -> Iterator[tuple[int, torch.Tensor]]:
        # One after the other: all of them together are clients x [T, P].
        for partition, record in records.items():
            if (noise := _tensor(record, "noise")) is not None:
                yield partition, noise
        if noised.noise is not None:
            yield SERVER, torch.from_numpy(noised.noise)

    present = _tensor(records[target], "present")
    assert present is not None
    return instrumented.measure(
        present,
        _tensor(records[target], "absent"),
        noises(),
        torch.from_numpy(batch.worlds),
        _tensor(records[target], "participation"),
        sights,
        batch.config.training.sampling_rate,
    )


SEATS: Mapping[str, Seat] = {"participant": curious_server, "instrumented": oracle}
"""Who looks at the server, by `audit.mode`."""


class Observations:
    """What was learnt over the rounds of a batch."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._learnt: dict[Vantage, list[Learnt]] = {}
        self._distances: list[Array] = []
        self._canary_scores: Array | None = None

    def observe(self, round: Round, received: Received, noised: Noised) -> None:
        """Add what the adversaries conclude from a round, and what clients measured in it.

        A noise mechanism that says itself what an adversary learns is not asked about twice.

        Args:
            round: the round.
            received: the clients' replies.
            noised: the sum with its noise.
        """
        seat = SEATS[self._batch.config.audit.mode]
        learnt = noised.learnt
        if not learnt:
            steps = seat(self._batch, round, received, noised)
            learnt = {vantage: step.learnt for vantage, step in steps.items()}
        for vantage, told in learnt.items():
            self._learnt.setdefault(vantage, []).append(told)
        if distances := received.records(messages.DISTANCES):
            arrays = [messages.only(record) for record in distances.values()]
            self._distances.append(np.concatenate(arrays, axis=1))

    def score_canaries(self, round: Round, release: Release) -> None:
        """Look for every canary in the released sum, as anybody can who is sent it.

        Args:
            round: the round.
            release: of that round.
        """
        config = self._batch.config
        if not config.canaries.count:
            return
        known = federation.load(config)
        sent = (torch.tensor(array).to(known.device) for array in (round.model, release.aggregate))
        found: Array = one_run.scores(config, known, *sent).cpu().numpy()
        before = self._canary_scores
        self._canary_scores = found if before is None else before + found

    def findings(self) -> list[dict[str, Array]]:
        """Return everything as named arrays; vantages but the configured one have an ending."""
        config, found = self._batch.config, []
        if self._distances:
            found.append({"bayesian_distances": np.stack(self._distances, axis=1)})
        if self._canary_scores is not None:
            coins = one_run.included(config, self._batch.trials)
            found.append({"canary_scores": self._canary_scores, "canaries_included": coins})
        for vantage, rounds in self._learnt.items():
            ending = vantages.suffix(vantage, config.federation.vantage)
            found.append({f"{name}{ending}": array for name, array in join(rounds).items()})
        return found


def _seen_by_server(
    batch: Batch, received: Received, total: Floats
) -> tuple[Array, tuple[int, ...]]:
    """Return what the server received [T, P], less noise that it was told, and whose sum it is."""
    target = batch.challenge.owner
    if not batch.config.federation.trust.model.summed_securely:
        reply = received.replies[target]
        return messages.only(reply.content.array_records[messages.REPLY]), (target,)
    if received.disclosed is not None:
        total = total - sum(messages.arrays_of(received.disclosed).values())
    return total, received.participants


def _sight(batch: Batch, round: Round, received: Received, vantage: Vantage) -> instrumented.Sight:
    """Return what hides the target from a vantage that sees every round."""
    sources = batch.unknown_noise(vantage, received.participants)
    noise_std = torch.from_numpy(batch.towards(sources) * round.sensitivities)
    return instrumented.Sight(sources, noise_std)


def _tensor(record: ArrayRecord, name: str) -> torch.Tensor | None:
    return torch.from_numpy(record[name].numpy()) if name in record else None
