"""A request to a client's node: refused, or admitted before anything is computed, then charged.

A deployed client's owner sets the terms. A simulated client admits everything, and charges nothing.
"""

import hashlib
import json
import logging
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property

import numpy as np
import torch
from flwr.app import Context, Message
from torch import Tensor

from adversaries.errors import InputError
from fedsim.common import device
from fedsim.configuration import Config, Scalar, from_run_config, to_run_config
from fedsim.configuration.campaign import AuditConfig
from fedsim.configuration.federation import OWN, TOLERATED
from fedsim.federation.client import client_ledger, kept_models
from fedsim.federation.client.client_ledger import AnsweredMessage
from fedsim.federation.protocol import consent, forms, messages
from fedsim.federation.protocol.consent import EPSILON_LIMIT, MAX_TRIALS, RefusedError, Terms
from fedsim.federation.protocol.forms import Form
from fedsim.federation.protocol.messages import Request, Role
from fedsim.game import federation
from fedsim.game.federation import Federation
from fedsim.game.mechanisms import privacy, vantages
from fedsim.learning import data
from fedsim.learning.data import schema as schemas
from fedsim.learning.training import models
from fedsim.privacy.mechanism import Steps, aggregate_noise_multiplier, changes_of_record
from fedsim.privacy.trust import Vantage

LOG = logging.getLogger(__name__)

SAME = 1e-9
"""Allowed relative difference of noise multipliers that different machines calibrated."""

MOST_VALUE = 2.0**20
"""Largest absolute value of a model's parameters. Beyond it, neighbouring float32 numbers differ by
an eighth, so no step of training would be kept. No honest training gets there."""

USUAL_MODE = AuditConfig().mode

ROLES = (Role.CLIENT, Role.TARGET_CLIENT, Role.ADVERSARY, Role.COLLUDER)
"""Roles of a node that holds records."""


@dataclass(frozen=True)
class Received:
    """A request to a client's node, with its experiment and the records that the client knows."""

    message: Message
    context: Context
    config: Config
    loaded: Federation
    request: Request

    @classmethod
    def of(cls, message: Message, context: Context) -> "Received":
        """Return a request that is not admitted yet."""
        config, partition = configured(context), messages.partition(context)
        request = Request.from_content(message.content)
        consent.require(context.node_config, needed(config, request, partition))
        loaded = known_to(config, partition)
        return cls(message, context, config, loaded, request)

    @property
    def partition(self) -> int:
        return messages.partition(self.context)

    @property
    def model(self) -> Tensor:
        """The models of the message, float32 [T, P], on the federation's device."""
        return self.array(messages.MODEL)

    @cached_property
    def terms(self) -> Terms | None:
        """The owner's terms; None for a simulated client."""
        return consent.terms(self.context.node_config)

    @property
    def protecting(self) -> bool:
        """Whether noise must protect what leaves, and every answer is charged."""
        return self.terms is not None and consent.EXPERIMENT not in self.terms.kinds

    @cached_property
    def experiment(self) -> str:
        """A digest of the run's configuration, but for how many clients may be missing.

        A training is the same one when it goes on without a client. The digest decides which kept
        answer is given again, but no charge: each answer is charged by its run's configuration.
        """
        values = {name: each for name, each in self.context.run_config.items() if name != TOLERATED}
        return _digest(json.dumps(values, sort_keys=True).encode())

    @cached_property
    def agreed(self) -> float | None:
        """The noise multiplier that the client computed for this run; None: not yet."""
        if self.terms is None:
            return None
        run = str(self.context.run_id)
        return client_ledger.agreed_multiplier(self.terms, run, self.experiment)

    @cached_property
    def noise_multiplier(self) -> float:
        """The noise multiplier by the run's configuration, whatever the server asks for."""
        return privacy.noise_multiplier(self.config) if self.agreed is None else self.agreed

    @property
    def alone(self) -> bool:
        return read_alone(self.config, self.context.node_config)

    @cached_property
    def repeats(self) -> bool:
        """Whether an interrupted round is answered again to the bit, which costs nothing.

        Not in a secure sum: the others may answer with new noise, and two sums with one message in
        common tell more of it than one.
        """
        if self.terms is None or self.terms.kinds.intersection(consent.UNPROTECTED):
            return False
        alone = self.alone or not self.config.federation.masked
        return alone and self.config.run.job == "training"

    def array(self, name: str) -> Tensor:
        """Return the only array of a record, on the federation's device."""
        record = messages.array_records(self.message.content)[name]
        return torch.tensor(messages.only(record)).to(self.loaded.device, non_blocking=True)

    def entry(self, noise_multiplier: float) -> AnsweredMessage:
        """Return the entry of the answer in the client's ledger, without its cost."""
        context, config, request = self.context, self.config, self.request
        return AnsweredMessage(
            datetime.now(UTC).isoformat(timespec="seconds"),
            str(context.run_id),
            config.run.name,
            str(context.node_id),
            self.experiment,
            records_digest(self.loaded, self.partition),
            request.first_trial,
            request.trials,
            request.round,
            noise_multiplier,
            None,
            config.privacy.unit,
            config.privacy.neighbouring,
            config.privacy.accountant,
        )


def admitted(message: Message, context: Context) -> Received:
    """Return a request that is within the client's terms and its run's plan.

    Raises RefusedError for any other, which says nothing about the records.
    """
    received = Received.of(message, context)
    if received.terms is not None:
        _check(received, received.terms)
    # Before the answer is charged: memory that is needed behind that would depend on the records.
    received.loaded.contents(received.loaded.owned_by(received.partition))
    if received.loaded.device.type == "cpu":
        device.single_threaded_kernels()
    return received


def known_to(config: Config, partition: int) -> Federation:
    """Return the data as this client knows them; a RefusedError says nothing about them."""
    if config.data.name != OWN or config.run.job != "training":
        return federation.load(config)
    try:
        return federation.load(config, partition)
    except InputError as error:
        LOG.error("this client's records: %s", error)
        raise RefusedError(
            "this client's records do not fit data.public-schema or the run's model; the client's "
            "own log has the details"
        ) from None


def configured(context: Context) -> Config:
    """Return the experiment with this client's own files. Raises RefusedError without them."""
    config, node = from_run_config(context.run_config), context.node_config
    protects = consent.protects(node)
    if protects and config.data.name not in data.BUNDLED:  # a file is read
        why = f"data.name is '{config.data.name}', which has no public schema"
        if config.data.name == OWN:
            why = f"run.job is '{config.run.job}', and these records are this client's own"
        if config.data.name != OWN or config.run.job != "training":
            consent.require(node, {consent.EXPERIMENT: why})
        if not node.get(consent.SCHEMA):
            raise RefusedError(
                f"this client's node.toml has no {consent.SCHEMA}; set it to the path of the "
                "client's copy of the schema that all clients agreed on"
            )
    if protects or consent.DATA in node:
        # The node's own config has the path of its files. No other party needs it.
        config = config.reading_data_from(str(node.get(consent.DATA, "")), offline=True)
    weights = str(node.get(consent.WEIGHTS, config.model.weights))
    digest = config.model.weights_sha256
    if digest:
        from fedsim.learning.training import pretrained  # noqa: PLC0415  (only where needed)

        if not pretrained.same(weights, digest):
            raise RefusedError(
                f"this client has no copy of model.weights with SHA-256 {digest}; set "
                f"{consent.WEIGHTS} in its node.toml to the path of the copy"
            )
    if config.data.name == OWN and (path := node.get(consent.SCHEMA)):
        _check_schema(str(path), config.data.public_schema)
    return config.starting_from(weights if digest else config.model.weights)


def _check_schema(path: str, public_schema: str) -> None:
    """Raise RefusedError if a run's schema differs from the node's copy."""
    try:
        own = schemas.load(path)
    except InputError as error:
        LOG.error("%s: %s", consent.SCHEMA, error)
        raise RefusedError(
            f"this client's {consent.SCHEMA} names no valid schema; its own log says why"
        ) from None
    if change := schemas.difference(own, schemas.parse(public_schema)):
        raise RefusedError(f"data.public-schema differs from this client's own copy: {change}")


def needed(config: Config, request: Request, partition: int) -> dict[str, str]:
    """Return, for each kind of consent that a request needs, the setting or role that needs it."""
    needs, role = {}, request.role
    if config.federation.trust.model.server_draws:
        needs[consent.CENTRAL] = f"federation.trust is '{config.federation.trust}'"
    if role == Role.TARGET_CLIENT:
        needs[consent.CHALLENGE] = "one of this client's records is the target"
        if config.challenge.kind != "record":
            needs[consent.CANARIES] = f"challenge.kind is '{config.challenge.kind}'"
    if role == Role.ADVERSARY:
        needs[consent.ADVERSARY] = "the server asks this node to be the adversary"
    if config.canaries.count:
        from fedsim.game import one_run  # noqa: PLC0415  (canaries only)

        if partition in one_run.hosts(config):
            needs[consent.CANARIES] = "canaries are planted among this client's records"
    measured = vantages.measured(config.federation.vantage, config.audit.vantages)
    seen = [vantage.value for vantage in measured if vantage is not Vantage.SERVER]
    bare = {
        f"audit.mode is '{config.audit.mode}'": reads_noise(config.audit.mode),
        "the server asks this node to disclose its noise to the adversary": role == Role.COLLUDER,
    }
    unprotected = {
        "training.clipping is false, so nothing bounds what a record adds": (
            not config.training.clipping
        ),
        "privacy.noise-source is 'seed', so the server knows the noise": (
            config.privacy.noise_source == "seed"
        ),
        "privacy.sensitivity is 'local', and the server decides its size": (
            config.privacy.sensitivity == "local"
        ),
        f"the run measures the belief at the vantage point {''.join(seen[:1])}: this node computes "
        "it from another client's record and hands it over without noise": (
            role == Role.ADVERSARY and bool(seen)
        ),
    }
    if reasons := [why for why, holds in bare.items() if holds]:
        needs |= dict.fromkeys(consent.UNPROTECTED, reasons[0])
    elif reasons := [why for why, holds in unprotected.items() if holds]:
        needs[consent.EXPERIMENT] = reasons[0]
    return needs


def reads_noise(mode: str) -> bool:
    """Return whether an audit reads the clients' noise; the default one does not."""
    if mode == USUAL_MODE:
        return False
    from fedsim.game.observers import at_server  # noqa: PLC0415  (audits only)

    return at_server.seat(mode).reads_noise


def enter(received: Received) -> None:
    """Enter the answer to a request in the client's own ledger, as `client_ledger.enter` does."""
    terms, config = received.terms, received.config
    if terms is None:
        return
    answer, planned = received.entry(received.noise_multiplier), None
    if received.protecting:
        trials = received.request.trials
        steps = released(config, answer.noise_multiplier, trials, received.alone)
        answer = replace(answer, charged=steps)
        if received.agreed is None:
            planned = _planned(received, terms, answer)
    client_ledger.enter(terms, answer, planned)


def check_plan(received: Received) -> None:
    """Compare what a run plans from a place on with the client's budget, before anything leaves.

    The server's noise multiplier is believed here, since nothing leaves: the first answer is
    checked, and its run planned again, with the one that the client computes.

    Raises RefusedError if the owner did not agree, or the plan exceeds the budget.
    """
    config, request, terms = received.config, received.request, received.terms
    if terms is None or not received.protecting:
        return
    _check_place(received, terms)
    if not 0 < request.noise_multiplier < math.inf:
        raise RefusedError(
            f"the server asks for a noise multiplier of {request.noise_multiplier:g}, but a client "
            "adds finite noise"
        )
    answer = received.entry(request.noise_multiplier)
    if received.repeats:
        earlier = client_ledger.last_round(terms, answer.experiment, answer.node)
        # If the answer cannot be given again, the new one is planned and checked before its charge.
        if earlier == request.round:
            received = replace(received, request=replace(request, round=earlier + 1))
    if received.request.round <= config.training.rounds:
        planned = _planned(received, terms, answer)
        client_ledger.check_budget(terms, client_ledger.read_answers(terms.state), planned, planned)


def _planned(received: Received, terms: Terms, answer: AnsweredMessage) -> AnsweredMessage:
    """Return the plan of a run from a request on, up to privacy.stop-at, as a ledger's entry."""
    config, request, noise = received.config, received.request, answer.noise_multiplier
    trials, rounds = config.trials.count - request.first_trial, config.training.rounds
    left = rounds * trials - (request.round - 1) * request.trials
    if config.privacy.stop_at:
        from fedsim.federation.runs.ledger import planned_kind  # noqa: PLC0415
        from fedsim.federation.runs.spending import Ahead  # noqa: PLC0415  (stop-at only)

        kind = planned_kind(config.training, config.participation, noise)
        earlier = Counter({kind: client_ledger.attempted(terms, answer.experiment)})
        ahead = Ahead(config, trials, [(earlier, [kind] * rounds)])
        left = min(left, ahead.affordable(rounds) * trials)
    left = max(left, request.trials)
    return replace(answer, charged=released(config, noise, left, received.alone))


def keep_model(received: Received, model: Tensor) -> None:
    """Keep the model of a training, float32 [1, P], for a deployed client's own report."""
    config, round, terms = received.config, received.request.round, received.terms
    if terms is None or config.run.job != "training":
        return
    try:
        values = to_run_config(config.reading_data_from(""))  # without the client's own paths
        run, sent = str(received.context.run_id), model[0].cpu().numpy()
        kept_models.keep(terms.state, run, values, round, sent)
    except InputError as error:  # the answer leaves: it is charged already
        LOG.warning("the client's report will lack round %d: %s", round, error)


def read_alone(config: Config, node_config: Mapping[str, Scalar]) -> bool:
    """Return whether a hostile server may read a client's message under its own share of noise.

    Secure aggregation of enough clients prevents it if this one knows the others' node keys.
    """
    federation = config.federation
    if not federation.trust.model.summed_securely:
        return False
    from fedsim.federation.protocol import signed_keys  # noqa: PLC0415  (secure sums only)

    hidden = signed_keys.knows_peers(node_config) and not federation.few_masks
    return federation.summed_in_the_clear or not hidden


def released(config: Config, noise_multiplier: float, trials: int, alone: bool = False) -> Steps:
    """Return the release of one round towards the party that learns most about a record.

    The owner's limit is for any one record, also where the noise is scaled to a whole client.

    alone: from `read_alone`.
    """
    unit, neighbouring = config.privacy.unit, config.privacy.neighbouring
    noise_multiplier /= changes_of_record(unit, neighbouring)
    plan, federation = privacy.describe(config, noise_multiplier), config.federation
    plan = replace(plan, rounds=tuple(replace(alike, count=trials) for alike in plan.rounds))
    trusted = {Vantage.SERVER} if federation.trust.model.server_draws else set()
    seen = [
        steps
        for vantage in Vantage
        if vantage not in trusted
        for steps in plan.towards(vantage).groups
    ]
    if alone:
        clients = config.participation.expected_clients
        own = aggregate_noise_multiplier(noise_multiplier, federation.trust, clients, 1)
        seen.append(replace(seen[0], noise_multiplier=own))
    return min(seen, key=lambda steps: steps.noise_multiplier)


def _check(received: Received, terms: Terms) -> None:
    """Raise RefusedError unless the run plans a request, and the terms allow it."""
    request, config = received.request, received.config
    _check_place(received, terms)
    _check_role(config.run.job, request, received.loaded, received.partition)
    expected = received.noise_multiplier
    if not math.isclose(request.noise_multiplier, expected, rel_tol=SAME):
        raise RefusedError(
            f"the server asks for a noise multiplier of {request.noise_multiplier:g}, but the "
            f"run's configuration gives {expected:.6g}, and a client adds no other noise"
        )
    _check_arrays(received)
    _check_memory(received)
    if config.federation.trust.model.summed_securely and received.protecting:
        _check_rounding(received, terms)


def _check_place(received: Received, terms: Terms) -> None:
    request, config = received.request, received.config
    planned, rounds = config.trials.count, config.training.rounds
    if planned > terms.max_trials:
        raise RefusedError(
            f"trials.count is {planned}, but the client consented to {MAX_TRIALS} = "
            f"{terms.max_trials}, and every trial is one more training; to agree, set "
            f"{MAX_TRIALS} = {planned} in the node's config"
        )
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


def _check_arrays(received: Received) -> None:
    message, request = received.message, received.request
    size = models.size(received.loaded.model)
    known = {messages.MODEL: Form.of(np.float32, request.trials, size)}
    if messages.WORLDS in message.content:
        known[messages.WORLDS] = Form.of(np.bool_, request.trials)
    try:
        for name, form in known.items():
            forms.check_only(message.content, name, form)
        model = messages.only(messages.array_records(message.content)[messages.MODEL])
        if (largest := float(np.abs(model).max(initial=0.0))) > MOST_VALUE:
            raise ValueError(
                f"its model has a value of {largest:.3g}, but a client trains no model with a "
                "value above 2^20"
            )
    except (ValueError, TypeError) as error:
        raise RefusedError(f"invalid request: {error}") from None


def _check_rounding(received: Received, terms: Terms) -> None:
    """Raise RefusedError if the integers of secure aggregation keep no guarantee at the limits."""
    from fedsim.game.mechanisms import fixed_point  # noqa: PLC0415  (integers only)

    config, size = received.config, models.size(received.loaded.model)
    grid = fixed_point.agreed(config, received.noise_multiplier, size)
    steps = config.training.rounds * config.trials.count
    try:
        fixed_point.check_rounding(grid, steps, terms.delta_limit, terms.epsilon_limit)
    except InputError as error:
        raise RefusedError(
            f"this client's {EPSILON_LIMIT} is {terms.epsilon_limit:g}, and {error}; or set a "
            f"smaller {EPSILON_LIMIT} in the node's config"
        ) from None


def _check_memory(received: Received) -> None:
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


def records_digest(loaded: Federation, partition: int) -> str:
    """Return a digest of a client's records in the run, for its own ledger."""
    own = loaded.split.members_records.take(loaded.owned_by(partition))
    return _digest(own.features.tobytes() + own.labels.tobytes())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
