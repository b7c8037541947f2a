"""How the server sums a round's messages, and hands the sum to the noise mechanism.

The noise itself is drawn in `fedsim.privacy.noise`.
"""

import numpy as np

from fedsim.federation.protocol import messages
from fedsim.federation.protocol.secure_aggregation import SecureSum
from fedsim.federation.server.acceptance import LogEvent
from fedsim.federation.server.batch import Array, Batch, Received, Round
from fedsim.game.mechanisms import fixed_point
from fedsim.privacy.noise.mechanism import Floats, Noised, NoiseMechanism, Summed, Trials


def begin(batch: Batch) -> NoiseMechanism:
    """Return the noise mechanism of a batch before its first round."""
    config, privacy = batch.config, batch.config.privacy
    return privacy.noise.mechanism(
        Trials(
            streams=config.trials.streams(batch.trials),
            worlds=batch.worlds,
            rounds=config.training.rounds,
            noise_seed=config.noise_seed,
            secret_seed=config.run.seed,
            server_draws=config.federation.trust.model.server_draws,
            information=privacy.mutual_information,
            prior=privacy.pac_prior,
        )
    )


def add(
    mechanism: NoiseMechanism, batch: Batch, round: Round, received: Received, total: Floats
) -> Noised:
    """Return a round's sum with the server's noise.

    received: the clients' replies.
    total: the sum of their messages, float64 of the round's shape; may be overwritten.
    """

    def measured() -> dict[str, Array]:
        (record,) = received.records(messages.MEASUREMENT).values()
        return messages.arrays_of(record)

    stds = batch.noise_multiplier * round.sensitivities
    return mechanism.add(Summed(round.number, total, stds, measured))


def summed(
    batch: Batch,
    round: Round,
    received: Received,
    secure: SecureSum | None,
    log_event: LogEvent | None,
) -> Floats:
    """Return the sum of the clients' messages, float64 of the round's shape.

    received: the clients' replies.
    secure: the exchange that the messages are masked by; None where the server sees them.
    log_event: where clients that do not help to unmask are noted.
    """
    if secure is not None and round.grid is not None:
        by_node = {reply.metadata.src_node_id: reply for reply in received.replies.values()}
        words = secure.unmask(by_node, round.shape)
        if log_event is not None:
            for client, why in secure.silent.items():
                log_event(silent=client, of="unmasking", reason=why)
        return round.grid.values(words)
    sums = [messages.only(record) for record in received.records(messages.REPLY).values()]
    if round.grid is not None and sums:
        return round.grid.values(fixed_point.summed(sums))
    total: Floats = np.zeros(round.shape)
    for each in sums:
        total += each
    return total
