"""The server's checks of the replies of a round, and of the round as a whole.

A missing clipped sum or noise share changes the accounted mechanism, so it ends the run unless the
configuration tolerates it.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import Message, RecordDict

from adversaries.arrays import Floats
from fedsim.common.blocks import slices
from fedsim.configuration.federation import TOLERATED
from fedsim.federation.protocol import forms, messages, secure_aggregation
from fedsim.federation.protocol.forms import Form
from fedsim.federation.protocol.replies import check_round, metric, sort_out
from fedsim.federation.protocol.secure_aggregation import SecureSum
from fedsim.federation.server.batch import Array, Batch, Received, Round
from fedsim.game import federation, one_run
from fedsim.game.mechanisms import vantages
from fedsim.game.observers import at_server
from fedsim.game.observers.memory import (
    HISTORY,
    MEMBERSHIP,
    POISON_SCORES,
    POPULATION,
    POPULATION_LOSSES,
)
from fedsim.privacy.mechanism import Neighbouring, sensitivity
from fedsim.privacy.trust import Vantage

CHANCE = 1e-15
"""Probability that honest noise is longer than its bound, in one trial and round."""

LENIENT = 1 + 1e-4
"""Factor by which a float32 norm may exceed its bound."""

CACHED = 2**16
"""Numbers of an array that are processed at once."""


class ClientFailedError(RuntimeError):
    """A client did not answer, or answered with an error or an invalid reply."""


def quiet(**_: Any) -> None:
    """Log nothing."""


def accept(
    batch: Batch,
    answers: Iterable[Message],
    what: str,
    asked: Collection[int],
    inspect: Callable[[Message], None] = lambda _: None,
    tolerated: int = 0,
    needed: int | None = None,
    log_event: Callable[..., None] = quiet,
) -> dict[int, Message]:
    """Return the valid replies by partition, sorted. Raises ClientFailedError for too few."""
    replies = sort_out(answers, batch.nodes, asked, inspect)
    lost = replies.failures
    if late := [client for client in replies.missing if client in batch.nodes]:
        silent = (
            f"no answer from client {', '.join(map(str, late))} within "
            f"{batch.plan.config.federation.timeout:g} s (federation.timeout)"
        )
        lost |= dict.fromkeys(late, silent)
    lost |= {client: f"client {client} left" for client in asked if client not in batch.nodes}
    reasons = "; ".join(dict.fromkeys([*replies.unsolicited, *lost.values()]))
    problem = ""
    if reasons and not tolerated:
        problem = f"{reasons.rstrip('.')}{_without(batch, lost)}"
    elif len(lost) > tolerated:
        problem = (
            f"{len(lost)} of {len(asked)} clients are missing, more than "
            f"federation.tolerated-dropouts = {tolerated}; nothing of it is released: {reasons}"
        )
    elif needed in lost:
        problem = f"the adversary's node is missing, so there is no belief to report: {reasons}"
    if problem:
        raise ClientFailedError(f"{what}: {problem}")
    for client, why in (*lost.items(), *((None, why) for why in replies.unsolicited)):
        log_event(dropped=client, of=what, reason=why)
    return replies.accepted


def _without(batch: Batch, lost: Collection[int]) -> str:
    """Return how a training goes on without its lost clients; "" where it cannot."""
    config = batch.plan.config
    tolerable = config.run.job == "training" and not config.federation.masked
    if not tolerable or not 0 < len(lost) < len(batch.nodes) - 1:
        return ""
    return f". If that stays so, the same command with {TOLERATED}={len(lost)} goes on without"


def accept_round(
    batch: Batch,
    round: Round,
    answers: Iterable[Message],
    secure: SecureSum | None,
    log_event: Callable[..., None] = quiet,
) -> Received:
    """Return the clients' valid replies of a round."""
    # An adversary that misses a round has lost its memory and cannot continue.
    follows = at_server.seat(batch.plan.config.audit.mode).follows
    accepted = accept(
        batch,
        answers,
        f"round {round.number}",
        batch.asked(round.number),
        lambda reply: _check_reply(batch, round, secure, reply),
        batch.plan.config.federation.tolerated_dropouts,
        batch.challenge.adversary if follows else None,
        log_event,
    )
    senders = batch.plan.config.participation.participants(round.number)
    return Received({client: each for client, each in accepted.items() if client in senders})


def accept_findings(batch: Batch, answers: Iterable[Message]) -> Message:
    """Return the adversary's reply."""
    config, needed = batch.plan.config, None
    configured, listed = config.federation.vantage, config.audit.vantages
    follows = at_server.seat(config.audit.mode).follows
    if follows and Vantage.PARTICIPANT in vantages.measured(configured, listed):
        needed = f"ratios{vantages.suffix(Vantage.PARTICIPANT, configured)}"
    known = _findings(configured, listed, len(batch.trials), batch.plan.rounds)
    (reply,) = accept(
        batch,
        answers,
        "the adversary's findings",
        [batch.challenge.adversary],
        lambda reply: check_findings(reply.content, known, needed),
    ).values()
    return reply


def check_findings(content: RecordDict, known: Mapping[str, Form], needed: str | None) -> None:
    """Raise ValueError unless the adversary's findings have every trial and no unknown array.

    known: the allowed arrays, whose names go into the run directory.
    needed: the one that must be there.
    """
    records = messages.array_records(content).values()
    arrays = {key: array for record in records for key, array in record.items()}
    if sum(map(len, records)) != len(arrays):
        raise ValueError("it has a finding twice")
    if needed is not None and needed not in arrays:
        raise ValueError(
            f"it has no '{needed}': the node lost its Flower state, for example when its SuperNode "
            "restarted; give the node's config a state-path"
        )
    for key, array in arrays.items():
        if key not in known:
            raise ValueError(f"it has a finding {forms.shown(key)}, which was not requested")
        known[key].check(array, key)
        known[key].check_values(array, key)


def _findings(
    configured: Vantage, audit_vantages: str, trials: int, rounds: int
) -> dict[str, Form]:
    """Return the forms of all arrays that an adversary's findings may have."""
    ends = {vantages.suffix(v, configured) for v in vantages.measured(configured, audit_vantages)}
    history = {f"{name.replace('_', '-')}{ending}" for name in HISTORY for ending in ends}
    form = Form(None, ((trials,), (trials, rounds)), infinite=True)
    others = tuple((trials, size) for size in range(1, POPULATION + 1))
    return dict.fromkeys({*history, *MEMBERSHIP, POISON_SCORES}, form) | {
        POPULATION_LOSSES: Form(None, others, infinite=True)
    }


def accept_sensitivity(batch: Batch, round: int, answers: Iterable[Message]) -> Floats:
    """Return the change of a sum by the target, as its client measured it, float64 [T]."""
    config = batch.plan.config
    most = sensitivity(config.privacy.neighbouring, config.training.clipping_norm)

    def norms(reply: Message) -> Floats:
        return messages.only(messages.array_records(reply.content)[messages.SENSITIVITY])

    def inspect(reply: Message) -> None:
        check_round(reply, round)
        form = Form.of(np.float64, len(batch.trials))
        forms.check(reply.content, {messages.SENSITIVITY: {"norms": form}})
        sent = norms(reply)
        if config.training.clipping and not np.all((sent >= 0) & (sent <= most * LENIENT)):
            raise ValueError(f"its sensitivity is not between 0 and {most:g}")

    what = f"the sensitivity of round {round}"
    (reply,) = accept(batch, answers, what, [batch.challenge.client], inspect).values()
    return norms(reply)


def _check_reply(batch: Batch, round: Round, secure: SecureSum | None, reply: Message) -> None:
    partition = int(metric(reply, "partition"))
    check_round(reply, round.number)
    if not batch.sends(partition, round.number):
        forms.check(reply.content, {})
        return
    needed = _measured_by(batch, partition, round.shape)
    if secure is None:
        dtype = np.float32 if round.integers is None else np.uint32
        needed[messages.REPLY] = {"sum": Form.of(dtype, *round.shape)}
    forms.check(reply.content, needed)
    if secure is None:
        check_size(batch, round, reply)
    else:
        secure_aggregation.masked(reply, round.shape)


def check_size(batch: Batch, round: Round, reply: Message) -> None:
    """Raise ValueError if a sum is longer than its client's can be, or outside the grid."""
    sent = messages.only(messages.array_records(reply.content)[messages.REPLY])
    if round.integers is not None:
        round.integers.check_range(sent, 1)
        return
    norms = _row_norms(sent).reshape(len(batch.trials), -1).max(axis=1)
    partition = int(metric(reply, "partition"))
    most = _longest_sum(batch, partition, batch.plan.noise_multiplier * round.sensitivities, sent)
    if (norms > most).any():
        worst = int(np.argmax(norms / most))
        raise ValueError(
            f"its sum has norm {norms[worst]:g}, but its clipped records and their noise allow at "
            f"most {most[worst]:g}"
        )


def _row_norms(values: Array) -> Floats:
    """Return the norms of the rows of an array [..., P], in order, in float64."""
    rows = values.reshape(-1, values.shape[-1])
    norms = np.empty(len(rows))
    # A few rows at a time, so that their float64 copy stays in the cache.
    for part in slices(len(rows), max(1, CACHED // rows.shape[1])):
        some = rows[part].astype(np.float64)
        norms[part] = np.sqrt(np.einsum("ij,ij->i", some, some))
    return norms


def _longest_sum(batch: Batch, partition: int, noise_std: Floats, sent: Array) -> Floats:
    """Return the largest length of a client's honest message in each trial, noise included.

    noise_std: standard deviation of a step's noise, [T], if clients add it.
    sent: the client's message, [..., P].
    Returns: [T]; infinity where nothing is clipped.
    """
    config, training = batch.plan.config, batch.plan.config.training
    if not training.clipping:
        return np.full(noise_std.shape, np.inf)
    parts = 1
    if config.privacy.unit == "record":
        loaded = federation.load(config)
        parts += len(loaded.owned_by(partition)) if len(loaded.client_of) else config.data.records
        parts += partition == batch.challenge.client
    if config.canaries.count:
        parts += int((one_run.hosts(config) == partition).sum())
    # Triangle inequality: a sum is at most as long as its clipped gradients together.
    clean = training.local_steps * parts * training.clipping_norm * LENIENT
    trust = config.federation.trust.model
    if trust.server_draws:
        return np.full(noise_std.shape, clean)
    # |N(0, s² I)|² / s² is chi-squared with P degrees of freedom. The noises of L steps add up.
    from scipy.stats import chi2  # noqa: PLC0415  (slow to import)

    quantile = math.sqrt(training.local_steps * chi2.isf(CHANCE, sent.shape[-1]))
    share = trust.noise_share(config.participation.expected_clients, 1)
    return clean + share * noise_std * quantile * LENIENT


def _measured_by(
    batch: Batch, partition: int, shape: tuple[int, ...]
) -> dict[str, dict[str, Form]]:
    """Return the forms of what a client sends beside its sum: noise, or an oracle's measurement."""
    config, target = batch.plan.config, batch.challenge
    target_client, colluder = partition == target.client, partition in batch.colluders
    whole = Form.of(np.float64, *shape)
    if not at_server.seat(config.audit.mode).reads_noise:
        discloses = colluder and not config.federation.trust.model.server_draws
        return {messages.DISCLOSED: {"noise": whole}} if discloses else {}
    roles = target_client, partition == target.adversary, colluder
    measured = {}
    if vantages.tells_noise(config.federation, config.audit.vantages, *roles):
        measured["noise"] = whole
    if target_client:
        measured["present"] = whole
        if config.privacy.neighbouring is Neighbouring.REPLACE:
            measured["absent"] = whole
        if config.participation.secret:
            measured["participation"] = Form.of(np.bool_, len(batch.trials))
    return {messages.MEASUREMENT: measured} if measured else {}
