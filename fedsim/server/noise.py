"""How the server sums a round's messages and what noise it adds: one class a noise mechanism."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from fedsim.common.randomness import SERVER, gaussian_noise
from fedsim.mechanisms import fixed_point
from fedsim.mechanisms.pac_release import Releases
from fedsim.mechanisms.step import Step
from fedsim.protocol import messages
from fedsim.protocol.secure_aggregation import SecureSum
from fedsim.server.acceptance import LogEvent
from fedsim.server.batch import Batch, Floats, Received, Round
from fedsim.trust.model import Vantage


@dataclass(frozen=True)
class Noised:
    """A sum with its noise.

    Attributes:
        total: float64 [T, P].
        noise: float64 [T, P], what the server drew of it; None where clients draw it.
        steps: what the mechanism itself says that an adversary learns; it knows the law.
    """

    total: Floats
    noise: Floats | None = None
    steps: Mapping[Vantage, Step] = field(default_factory=dict)


class Noise(Protocol):
    """A noise mechanism over the rounds of a batch."""

    def __init__(self, batch: Batch) -> None:
        """Begin with the first round."""

    def add(self, round: Round, received: Received, total: Floats) -> Noised:
        """Return the sum of a round, float64 of the round's shape, with its noise."""


class Isotropic:
    """Gaussian noise, the same in all directions: the server's, if trust is central."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def add(self, round: Round, received: Received, total: Floats) -> Noised:
        """Return the sum with the server's noise, in place; as it is where clients have drawn."""
        config = self._batch.config
        if not config.federation.trust.model.server_draws:
            return Noised(total)
        noise = gaussian_noise(
            config.noise_seed,
            config.trials.leaves(self._batch.trials),
            round.number,
            SERVER,
            total.shape[1],
        )
        std = self._batch.noise_multiplier * round.sensitivities
        noise *= std[:, None]
        total += noise
        return Noised(total, noise)


class Pac:
    """Noise shaped by how the candidates' sums differ; the sum of the secret one is released."""

    def __init__(self, batch: Batch) -> None:
        self._batch, privacy = batch, batch.config.privacy
        self._releases = Releases(
            privacy.mutual_information / batch.config.training.rounds,
            privacy.pac_prior,
            batch.config.run.seed,
            batch.trials,
            batch.worlds,
        )

    def add(self, round: Round, received: Received, total: Floats) -> Noised:
        """Return the secret candidate's sum, of those of all candidates [T, m, P], with noise."""
        config = self._batch.config
        (record,) = received.records(messages.MEASUREMENT).values()
        measured = messages.arrays_of(record)
        present = np.linalg.norm(measured["present"], axis=1)
        absent = measured.get("absent")
        normals = gaussian_noise(
            config.noise_seed, self._batch.trials, round.number, SERVER, config.candidates
        )
        released, step = self._releases.step(
            total,
            measured["membership"],
            present,
            np.zeros_like(present) if absent is None else np.linalg.norm(absent, axis=1),
            normals,
        )
        return Noised(released, steps={Vantage.PARTICIPANT: step})


NOISES: Mapping[str, type[Noise]] = {"isotropic": Isotropic, "pac": Pac}
"""By `privacy.noise`."""


def summed(
    batch: Batch,
    round: Round,
    received: Received,
    secure: SecureSum | None,
    log_event: LogEvent | None,
) -> Floats:
    """Return the sum of the clients' messages, float64 of the round's shape.

    Args:
        batch: the batch of trials.
        round: the round.
        received: the clients' replies.
        secure: the exchange that the messages are masked by; None where the server sees them.
        log_event: where clients that do not help to unmask are noted.
    """
    if secure is not None and round.grid is not None:
        by_node = {reply.metadata.src_node_id: reply for reply in received.replies.values()}
        words = secure.unmask(by_node, round.shape)
        if log_event is not None:
            for owner, why in secure.silent.items():
                log_event(silent=owner, of="unmasking", reason=why)
        return round.grid.values(words)
    sums = (messages.only(record) for record in received.records(messages.REPLY).values())
    if round.grid is not None:
        return round.grid.values(fixed_point.summed(sums))
    total: Floats = np.zeros(round.shape)
    for each in sums:
        total += each
    return total
