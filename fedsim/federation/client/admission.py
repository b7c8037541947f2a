"""The checks of a request at a deployed client; a simulated one checks nothing."""

import hashlib
import json
import logging
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import torch
from flwr.app import Context, Message
from torch import Tensor

from adversaries.errors import InputError
from fedsim.configuration import Config, Scalar, to_run_config
from fedsim.configuration.campaign import AuditConfig
from fedsim.configuration.federation import TOLERATED
from fedsim.configuration.objects import GameRules, Scheme
from fedsim.configuration.privacy import PrivacyConfig
from fedsim.federation.client import client_ledger, seen_models
from fedsim.federation.client.client_ledger import AnsweredMessage
from fedsim.federation.protocol import consent, messages, signed_keys
from fedsim.federation.protocol.consent import (
    DELTA_LIMIT,
    EPSILON_LIMIT,
    MAX_TRIALS,
    RefusedError,
    Terms,
)
from fedsim.federation.protocol.forms import Form
from fedsim.federation.protocol.messages import Request, Role
from fedsim.federation.runs.ahead import Ahead, affordable
from fedsim.federation.runs.book import planned_kind
from fedsim.game.federation import Federation
from fedsim.game.mechanisms import fixed_point, privacy, vantages
from fedsim.game.observers import at_server
from fedsim.learning.training import models
from fedsim.privacy.mechanism import Steps, aggregate_noise_multiplier, changes_of_record
from fedsim.privacy.trust.model import Vantage


@dataclass(frozen=True)
class ReceivedMessage:
    """A message to a client's node."""

    message: Message
    context: Context
    config: Config
    loaded: Federation
    request: Request

    @property
    def partition(self) -> int:
        return messages.partition(self.context)

    @property
    def model(self) -> torch.Tensor:
        """The models of the message, float32 [T, P], on the federation's device."""
        return self.array(messages.MODEL)

    def array(self, name: str) -> torch.Tensor:
        """Return the only array of a record, on the federation's device."""
        record = messages.array_records(self.message.content)[name]
        return torch.tensor(messages.only(record)).to(self.loaded.device, non_blocking=True)


LOG = logging.getLogger(__name__)

SAME = 1e-9
"""Allowed relative difference of noise multipliers that different machines calibrated."""

MOST_VALUE = 2.0**20
"""Largest absolute value of a model's parameters. Beyond it, neighbouring float32 numbers differ by
an eighth, so no step of training would be kept. No honest training gets there."""

ROLES = (Role.CLIENT, Role.TARGET_CLIENT, Role.ADVERSARY, Role.COLLUDER)
"""Roles of a node that holds records."""


def needed(game: GameRules, audit: AuditConfig, request: Request, partition: int) -> dict[str, str]:
    """Return, for each kind of consent that a request needs, the setting or role that needs it."""
    needs, scheme = {}, game.scheme
    if scheme.federation.trust.model.server_draws:
        needs[consent.CENTRAL] = f"federation.trust is '{scheme.federation.trust}'"
    if request.role == Role.TARGET_CLIENT:
        needs[consent.CHALLENGE] = "one of this client's records is the target"
        if game.challenge.kind != "record":
            needs[consent.CANARIES] = f"challenge.kind is '{game.challenge.kind}'"
    if request.role == Role.ADVERSARY:
        needs[consent.ADVERSARY] = "the server asks this node to be the adversary"
    if game.canaries.count:
        from fedsim.game import one_run  # noqa: PLC0415  (canaries only)

        if partition in one_run.hosts(game):
            needs[consent.CANARIES] = "canaries are planted among this client's records"
    if reason := _release_without_noise(audit, request):
        needs |= dict.fromkeys(consent.UNPROTECTED, reason)
    elif reason := _no_protection(scheme.privacy, scheme.training.clipping) or _belief_handed_over(
        scheme.federation.vantage, audit.vantages, request
    ):
        needs[consent.EXPERIMENT] = reason
    return needs


def check_request(received: ReceivedMessage) -> None:
    """Raise RefusedError unless the run's plan of a request is within the client's terms."""
    terms = consent.terms(received.context.node_config)
    if terms is None:
        return
    config, request, loaded = received.config, received.request, received.loaded
    _check_place(received)
    _check_trials(config.trials.count, terms)
    _check_role(config.run.job, request, loaded, received.partition)
    expected = agreed_noise(terms, received.context)
    if expected is None:
        expected = privacy.noise_multiplier(config.scheme)
    if not math.isclose(request.noise_multiplier, expected, rel_tol=SAME):
        raise RefusedError(
            f"the server asks for a noise multiplier of {request.noise_multiplier:g}, but the "
            f"run's configuration gives {expected:.6g}, and a client adds no other noise"
        )
    _check_arrays(received)
    _check_memory(received)
    integers = config.federation.trust.model.summed_securely
    if integers and consent.EXPERIMENT not in terms.kinds:
        grid = fixed_point.agreed(config.scheme, expected, models.size(loaded.model))
        steps = config.training.rounds * config.trials.count
        try:
            fixed_point.check_rounding(grid, steps, terms.delta_limit, terms.epsilon_limit)
        except InputError as error:
            most = math.floor(100 * fixed_point.largest_epsilon(grid, steps, terms.delta_limit))
            if not most:
                raise RefusedError(str(error)) from None
            raise RefusedError(
                f"this client's {EPSILON_LIMIT} is {terms.epsilon_limit:g}, but the integers of "
                f"secure aggregation keep no guarantee above epsilon {most / 100:g} at its "
                f"{DELTA_LIMIT} = {terms.delta_limit:g}; set {EPSILON_LIMIT} = {most / 100:g} or "
                "less in the node's config"
            ) from None


def enter(received: ReceivedMessage) -> None:
    """Enter the answer to a request in the client's own ledger, as `client_ledger.enter` does."""
    context, config, request = received.context, received.config, received.request
    terms = consent.terms(context.node_config)
    if terms is None:
        return
    agreed = agreed_noise(terms, context)
    answer = answer_to(received, agreed)
    planned = None
    if consent.EXPERIMENT not in terms.kinds:
        alone = read_alone(config.scheme, context.node_config)
        steps = released(config.scheme, answer.noise_multiplier, request.trials, alone)
        answer = replace(answer, charged=steps)
        if agreed is None:
            planned = _planned(received, terms, answer)
    client_ledger.enter(terms, answer, planned, _ended(request))


def reserve(received: ReceivedMessage) -> None:
    """Reserve in the client's budget what a run plans from a place on, before anything leaves.

    The server's noise multiplier is believed here, since nothing leaves: the first answer is
    checked, and its run planned again, with the one that the client computes.

    Raises RefusedError if the owner did not agree, or the plan exceeds the budget.
    """
    context, config, request = received.context, received.config, received.request
    terms = consent.terms(context.node_config)
    if terms is None or consent.EXPERIMENT in terms.kinds:
        return
    needs = needed(config.game, config.audit, request, received.partition)
    consent.require(context.node_config, needs)
    _check_trials(config.trials.count, terms)
    _check_place(received)
    if not 0 < request.noise_multiplier < math.inf:
        raise RefusedError(
            f"the server asks for a noise multiplier of {request.noise_multiplier:g}, but a client "
            "adds finite noise"
        )
    answer = answer_to(received, request.noise_multiplier)
    if config.run.job == "training" and config.federation.repeats_answers:
        earlier = client_ledger.last_round(terms, answer.experiment, answer.node)
        # An interrupted round is answered again to the bit, and charged no more. If the answer
        # cannot be given again, the new one is planned and checked before it is charged.
        if earlier == request.round:
            received = replace(received, request=replace(request, round=earlier + 1))
    if received.request.round <= config.training.rounds:
        client_ledger.reserve(terms, _planned(received, terms, answer), _ended(request))


def _planned(received: ReceivedMessage, terms: Terms, answer: AnsweredMessage) -> AnsweredMessage:
    """Return the plan of a run from a request on, as an entry of the ledger."""
    config = received.config
    earlier = client_ledger.attempted(terms, answer.experiment)
    alone = read_alone(config.scheme, received.context.node_config)
    ahead = _ahead(config.scheme, answer.noise_multiplier, received.request, earlier, alone)
    return replace(answer, charged=ahead)


def _ended(request: Request) -> frozenset[str]:
    if not isinstance(request.ended, str):
        raise RefusedError("the runs that have ended must be named in a text, with commas")
    return frozenset(request.ended.split(","))


def answer_to(received: ReceivedMessage, agreed: float | None) -> AnsweredMessage:
    """Return the entry of a request, without its cost."""
    context, config, request = received.context, received.config, received.request
    expected = privacy.noise_multiplier(config.scheme) if agreed is None else agreed
    return AnsweredMessage(
        datetime.now(UTC).isoformat(timespec="seconds"),
        str(context.run_id),
        config.run.name,
        str(context.node_id),
        _experiment(context),
        records_digest(received.loaded, received.partition),
        request.first_trial,
        request.trials,
        request.round,
        expected,
        None,
        config.privacy.unit,
        config.privacy.neighbouring,
        config.privacy.accountant,
    )


def keep_model(received: ReceivedMessage, model: Tensor) -> None:
    """Keep the model of a training, float32 [1, P], for a deployed client's own report."""
    context, config, round = received.context, received.config, received.request.round
    terms = consent.terms(context.node_config)
    if terms is None or config.run.job != "training":
        return
    sent = model[0].cpu().numpy()
    try:
        values = to_run_config(config.reading_data_from(""))  # without the client's own paths
        seen_models.keep(terms.state, str(context.run_id), values, round, sent)
    except InputError as error:  # the answer leaves: it is charged already
        LOG.warning("the client's report will lack round %d: %s", round, error)


def read_alone(scheme: Scheme, node_config: Mapping[str, Scalar]) -> bool:
    """Return whether a hostile server may read a client's message under its own share of noise.

    Secure aggregation prevents it where the client knows the other clients' node keys. If clients
    may be missing, a server could still name different missing clients to each of the others.
    """
    federation = scheme.federation
    if not federation.trust.model.summed_securely:
        return False
    secure = not federation.summed_in_the_clear and signed_keys.knows_peers(node_config)
    return not secure or federation.tolerated_dropouts > 0


def released(scheme: Scheme, noise_multiplier: float, trials: int, alone: bool = False) -> Steps:
    """Return the release of one round towards the party that learns most about a record.

    The owner's limit is for any one record, also where the noise is scaled to a whole client.

    alone: from `read_alone`.
    """
    unit, neighbouring = scheme.privacy.unit, scheme.privacy.neighbouring
    noise_multiplier /= changes_of_record(unit, neighbouring)
    plan, federation = privacy.describe(scheme, noise_multiplier), scheme.federation
    plan = replace(plan, rounds=tuple(replace(alike, count=trials) for alike in plan.rounds))
    trusted = {Vantage.SERVER} if federation.trust.model.server_draws else set()
    seen = [
        steps
        for vantage in Vantage
        if vantage not in trusted
        for steps in plan.towards(vantage).groups
    ]
    if alone:
        clients = scheme.participation.expected_clients
        own = aggregate_noise_multiplier(noise_multiplier, federation.trust, clients, 1)
        seen.append(replace(seen[0], noise_multiplier=own))
    return min(seen, key=lambda steps: steps.noise_multiplier)


def _ahead(
    scheme: Scheme, noise_multiplier: float, request: Request, earlier: int, alone: bool
) -> Steps:
    """Return the release of a run from this request on, up to the limit of privacy.stop-at."""
    trials, rounds = scheme.trial_count - request.first_trial, scheme.training.rounds
    if scheme.privacy.stop_at:
        kind = planned_kind(scheme.training, scheme.participation, noise_multiplier)
        rounds = affordable(scheme, kind, rounds, Ahead(trials, [Counter({kind: earlier})]))
    left = rounds * trials - (request.round - 1) * request.trials
    return released(scheme, noise_multiplier, max(left, request.trials), alone)


def _release_without_noise(audit: AuditConfig, request: Request) -> str | None:
    if at_server.seat(audit.mode).reads_noise:
        return f"audit.mode is '{audit.mode}'"
    if audit.bayesian_pairs:
        return f"audit.bayesian-pairs is {audit.bayesian_pairs}"
    if request.role == Role.COLLUDER:
        return "the server asks this node to disclose its noise to the adversary"
    return None


def _no_protection(mechanism: PrivacyConfig, clipping: bool) -> str | None:
    """Return why a run's noise protects no record; None where it does."""
    if not clipping:
        return "training.clipping is false, so nothing bounds what a record adds"
    if mechanism.noise_source == "seed":
        return "privacy.noise-source is 'seed', so the server knows the noise"
    if mechanism.sensitivity == "local":
        return "privacy.sensitivity is 'local', and the server decides its size"
    return None


def _belief_handed_over(
    configured_vantage: Vantage, audit_vantages: str, request: Request
) -> str | None:
    """Return why an adversary hands over a belief about another client's record without noise."""
    seen = [
        vantage
        for vantage in vantages.measured(configured_vantage, audit_vantages)
        if vantage is not Vantage.SERVER
    ]
    if request.role != Role.ADVERSARY or not seen:
        return None
    return (
        f"the run measures the belief at the vantage point {seen[0].value}: this node computes it "
        "from another client's record and hands it over without noise"
    )


def _check_trials(trials: int, terms: Terms) -> None:
    if trials > terms.max_trials:
        raise RefusedError(
            f"trials.count is {trials}, but the client consented to {MAX_TRIALS} = "
            f"{terms.max_trials}, and every trial is one more training; to agree, set "
            f"{MAX_TRIALS} = {trials} in the node's config"
        )


def _check_place(received: ReceivedMessage) -> None:
    request, rounds = received.request, received.config.training.rounds
    planned = received.config.trials.count
    numbers = (request.first_trial, request.trials, request.round, request.record)
    if any(type(number) is not int for number in numbers):
        raise RefusedError("the numbers of trials, rounds and records must be whole numbers")
    first, count = request.first_trial, request.trials
    if count < 1 or first < 0 or first + count > planned:
        raise RefusedError(
            f"the server asks for {count} trial{'s' * (count != 1)} from trial {first} on, but the "
            f"run's configuration has trials 0 to {planned - 1}"
        )
    # The final model counts as the round after the last one.
    last = rounds + received.message.metadata.message_type.startswith("evaluate")
    if not 1 <= request.round <= last:
        raise RefusedError(
            f"the server asks for round {request.round}, but the run's configuration has rounds 1 "
            f"to {rounds}"
        )


def _check_role(job: str, request: Request, loaded: Federation, partition: int) -> None:
    role, record = request.role, request.record
    if role not in ROLES:
        raise RefusedError(
            f"the role is '{role}', but a client's role is one of {', '.join(ROLES)}"
        )
    if job == "training" and (role != Role.CLIENT or record >= 0):
        # A game about a record would reveal which records this client has.
        raise RefusedError(
            f"the server names the role '{role}' and the record {record}, but a training has no "
            "target and no adversary"
        )
    own, target = record in loaded.owned_by(partition), request.target_client == partition
    if role == Role.ADVERSARY and (own or target):
        raise RefusedError(
            "the server asks this node to be the adversary of its own records, but an adversary "
            "must not know the answer of the game"
        )
    if role == Role.TARGET_CLIENT and not (target and (own or record < 0)):
        raise RefusedError(
            "the server asks this node for a challenge about another client's records"
        )


def _check_arrays(received: ReceivedMessage) -> None:
    message, request = received.message, received.request
    size = models.size(received.loaded.model)
    known = {
        messages.MODEL: Form.of(np.float32, request.trials, size),
        messages.WORLDS: Form.of(np.bool_, request.trials),
    }
    try:
        records = messages.array_records(message.content)
        worlds = [messages.WORLDS] if messages.WORLDS in message.content else []
        for name in (messages.MODEL, *worlds):
            if len(records.get(name, {})) != 1:
                raise ValueError(f"it has no record '{name}' of one array")
            (array,) = records[name].values()
            known[name].check(array, name)
            known[name].check_values(array, name)
        model = messages.only(messages.array_records(message.content)[messages.MODEL])
        if (largest := float(np.abs(model).max(initial=0.0))) > MOST_VALUE:
            raise ValueError(
                f"its model has a value of {largest:.3g}, but a client trains no model with a "
                "value above 2^20"
            )
    except (ValueError, TypeError) as error:
        raise RefusedError(f"invalid request: {error}") from None


def _check_memory(received: ReceivedMessage) -> None:
    """Raise RefusedError if the run's memory limit is too little for a record, whatever it holds.

    After admission an error would tell the server something about the records.
    """
    loaded, records = received.loaded, received.loaded.split.dataset.train
    record, label = (
        torch.tensor(np.zeros(each.shape[1:], each.dtype)).to(loaded.device)
        for each in (records.features, records.labels)
    )
    try:
        loaded.clipper.cut(record, label, received.request.trials, 1, own=True)
    except InputError as error:
        raise RefusedError(str(error)) from None


def agreed_noise(terms: Terms, context: Context) -> float | None:
    """Return the noise multiplier that the client computed for this run; None: not yet."""
    return client_ledger.agreed_multiplier(terms, str(context.run_id), _experiment(context))


def _experiment(context: Context) -> str:
    """Return a digest of a run's configuration, but for how many clients may be missing.

    A training is the same one when it goes on without a client. The digest decides which kept
    answer is given again, but no charge: each new answer is charged by the run's own configuration.
    """
    values = {name: value for name, value in context.run_config.items() if name != TOLERATED}
    return _digest(json.dumps(values, sort_keys=True).encode())


def records_digest(loaded: Federation, partition: int) -> str:
    """Return a digest of a client's records in the run, for its own ledger."""
    own = loaded.split.members_records.take(loaded.owned_by(partition))
    return _digest(own.features.tobytes() + own.labels.tobytes())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
