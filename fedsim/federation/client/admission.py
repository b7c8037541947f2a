"""What a deployed client lets itself be asked: what the run plans, in order, and within its terms.

A request says who the node is in the game and where the run is. All else a client knows by itself,
from the configuration that every node of the run is sent: the noise, the trials, the rounds, the
shape of the model. What is weaker or different is refused, by name, before anything is computed,
and what is answered is entered in the client's own ledger before it leaves.

Simulated clients, whose config has nothing of `consent.DEPLOYED`, are asked nothing.
"""

import hashlib
import json
import logging
import math
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
from flwr.app import Context
from torch import Tensor

from adversaries.errors import InputError
from fedsim.config import Config
from fedsim.config.campaign import AuditConfig
from fedsim.config.objects import Scheme
from fedsim.config.privacy import PrivacyConfig
from fedsim.federation.client import client_ledger, seen_models
from fedsim.federation.client.client_ledger import Answer
from fedsim.federation.client.inputs import Received
from fedsim.federation.protocol import consent, messages
from fedsim.federation.protocol.arrays import check_array
from fedsim.federation.protocol.consent import MAX_TRIALS, RefusedError, Terms
from fedsim.federation.protocol.messages import Request, Role
from fedsim.federation.runs.ahead import Ahead, affordable
from fedsim.federation.runs.ledger_row import planned_kind
from fedsim.game.federation import Federation
from fedsim.game.mechanisms import fixed_point, privacy, vantages
from fedsim.game.observers import at_server
from fedsim.learning.training import models
from fedsim.privacy.mechanism import Steps, aggregate_noise_multiplier
from fedsim.privacy.trust.model import Vantage

LOG = logging.getLogger(__name__)

SAME = 1e-9
"""Relative difference of two noise multipliers that were calibrated on different machines."""

MOST_VALUE = 2.0**20
"""The largest parameter that a model may have. Float32 numbers beyond lie an eighth apart, so that
no step of training would be kept: no honest training gets there."""

ROLES = (Role.CLIENT, Role.TARGET_CLIENT, Role.ADVERSARY, Role.COLLUDER)
"""What a node that holds records may be."""


def needed(config: Config, request: Request, partition: int) -> dict[str, str]:
    """Return what the client who receives a request must have agreed to.

    Returns: what of the request or the run asks for it, by kind of consent.
    """
    asked = {}
    if config.federation.trust.model.server_draws:
        asked[consent.CENTRAL] = f"federation.trust is '{config.federation.trust}'"
    if request.role == Role.TARGET_CLIENT:
        asked[consent.CHALLENGE] = "one of this client's records is the target"
        if config.challenge.kind != "record":
            asked[consent.CANARIES] = f"challenge.kind is '{config.challenge.kind}'"
    if request.role == Role.ADVERSARY:
        asked[consent.ADVERSARY] = "this node is asked to be the adversary"
    if config.canaries.count:
        from fedsim.game import one_run  # noqa: PLC0415  (for canaries alone)

        if partition in one_run.hosts(config.game):
            asked[consent.CANARIES] = "canaries are planted among this client's records"
    if reason := _told_bare(config.audit, request):
        asked |= dict.fromkeys(consent.UNPROTECTED, reason)
    elif reason := _hides_nothing(config.privacy, config.training.clipping) or _tells_of_others(
        config.federation.vantage, config.audit.vantages, request
    ):
        asked[consent.EXPERIMENT] = reason
    return asked


def check(received: Received) -> None:
    """Check that the run's configuration plans a request.

    Raises RefusedError if it does not, or plans more trials than the node agreed to, or the
    integers of distributed trust are too coarse for the client's own budget.
    """
    terms = consent.terms(received.context.node_config)
    if terms is None:
        return
    config, request, known = received.config, received.request, received.known
    _check_place(received)
    if config.trials.count > terms.max_trials:
        raise RefusedError(
            f"trials.count is {config.trials.count}, but the client consented to {MAX_TRIALS} = "
            f"{terms.max_trials}, and every trial is a training of its own; who agrees to it sets "
            f"{MAX_TRIALS} = {config.trials.count} in the node's config"
        )
    _check_role(config.run.job, request, known, received.partition)
    expected = agreed_noise(terms, received.context)
    if expected is None:
        expected = privacy.noise_multiplier(config.scheme)
    if not math.isclose(request.noise_multiplier, expected, rel_tol=SAME):
        raise RefusedError(
            f"a noise multiplier of {request.noise_multiplier:g} is asked for, but the run's "
            f"configuration gives {expected:.6g}, and a client adds no other noise"
        )
    _check_arrays(received)
    integers = config.federation.trust.model.summed_securely
    if integers and consent.EXPERIMENT not in terms.kinds:
        grid = fixed_point.agreed(config.scheme, expected, models.size(known.model))
        steps = config.training.rounds * config.trials.count
        try:
            fixed_point.check(grid, steps, terms.delta_limit, terms.epsilon_limit)
        except InputError as error:
            raise RefusedError(str(error)) from None


def enter(received: Received) -> None:
    """Enter the answer to a request in the client's own ledger, as `client_ledger.enter` does."""
    context, config, request = received.context, received.config, received.request
    terms = consent.terms(context.node_config)
    if terms is None:
        return
    agreed = agreed_noise(terms, context)
    answer = answer_to(terms, received, agreed)
    ahead, measures = None, 0.0
    if consent.EXPERIMENT not in terms.kinds:
        expected = answer.noise_multiplier
        steps = released(config.scheme, expected, request.trials)
        answer = replace(answer, charged=steps)
        if agreed is None:
            earlier = client_ledger.attempted(terms, answer.experiment)
            ahead = _ahead(config.scheme, expected, request, earlier)
            if consent.MEASURES in terms.kinds:
                measures = config.federation.measures_epsilon
    client_ledger.enter(terms, answer, ahead, measures)


def answer_to(terms: Terms, received: Received, agreed: float | None) -> Answer:
    """Return the entry of a request, without what it costs.

    agreed: the run's noise multiplier, if the client worked it out before.
    """
    context, config, request = received.context, received.config, received.request
    expected = privacy.noise_multiplier(config.scheme) if agreed is None else agreed
    return Answer(
        datetime.now(UTC).isoformat(timespec="seconds"),
        str(context.run_id),
        config.run.name,
        str(context.node_id),
        _experiment(context),
        records_digest(received.whole, received.partition),
        request.first_trial,
        request.trials,
        request.round,
        expected,
        None,
        config.privacy.unit,
        config.privacy.neighbouring,
        config.privacy.accountant,
    )


def keep_model(received: Received, model: Tensor) -> None:
    """Keep the model float32 [1, P] of a training, for a report of the deployed client's own."""
    context, config, round = received.context, received.config, received.request.round
    terms = consent.terms(context.node_config)
    if terms is None or config.run.job != "training":
        return
    sent = model[0].cpu().numpy()
    try:
        seen_models.keep(terms.state, str(context.run_id), config, round, sent)
    except InputError as error:  # the answer is charged already, and leaves
        LOG.warning("the report does without round %d: %s", round, error)


def released(scheme: Scheme, noise_multiplier: float, trials: int) -> Steps:
    """Return what one round releases of a record to whoever learns most of it.

    Under central trust that is anybody but the server, who is trusted; where sums are in the clear,
    the server, to whom the client's own share of the noise is all there is. A record that D has
    several times moves a sum as often.
    """
    noise_multiplier /= scheme.copies
    plan, federation = privacy.describe(scheme, noise_multiplier), scheme.federation
    plan = replace(plan, rounds=tuple(replace(alike, count=trials) for alike in plan.rounds))
    trusted = {Vantage.SERVER} if federation.trust.model.server_draws else set()
    seen = [
        steps
        for vantage in Vantage
        if vantage not in trusted
        for steps in plan.towards(vantage).groups
    ]
    if federation.summed_in_the_clear:
        clients = scheme.participation.expected_clients
        own = aggregate_noise_multiplier(noise_multiplier, federation.trust, clients, 1)
        seen.append(replace(seen[0], noise_multiplier=own))
    return min(seen, key=lambda steps: steps.noise_multiplier)


def _ahead(scheme: Scheme, noise_multiplier: float, request: Request, earlier: int) -> Steps:
    """Return what a run releases from this request on, as far as privacy.stop-at lets it go.

    earlier: how many rounds, of all trials together, attempts at the run have spent of stop-at.
    """
    trials, rounds = scheme.trial_count - request.first_trial, scheme.training.rounds
    if scheme.privacy.stop_at:
        kind = planned_kind(scheme.training, scheme.participation, noise_multiplier)
        rounds = affordable(scheme, kind, rounds, Ahead(trials, [Counter({kind: earlier})]))
    left = rounds * trials - (request.round - 1) * request.trials
    return released(scheme, noise_multiplier, max(left, request.trials))


def _told_bare(audit: AuditConfig, request: Request) -> str | None:
    """Return why something of this client leaves without any noise; None where nothing does."""
    if at_server.seat(audit.mode).reads_noise:
        return f"audit.mode is '{audit.mode}'"
    if audit.bayesian_pairs:
        return f"audit.bayesian-pairs is {audit.bayesian_pairs}"
    if request.role == Role.COLLUDER:  # it hands over its noise, and what its message protects
        return "this node is asked to disclose its noise to the adversary"
    return None


def _hides_nothing(mechanism: PrivacyConfig, clipping: bool) -> str | None:
    """Return why the noise of a run protects nobody; None where it does."""
    if not clipping:
        return "training.clipping is false, so that nothing bounds what a record adds"
    if mechanism.noise_source == "seed":
        return "privacy.noise-source is 'seed', so that the server knows the noise"
    if mechanism.noise.mechanism.failing:
        return f"privacy.noise is '{mechanism.noise}', which is no differential privacy"
    if mechanism.sensitivity == "local":
        return "privacy.sensitivity is 'local', and the server says how large it is"
    return None


def _tells_of_others(
    configured_vantage: Vantage, audit_vantages: str, request: Request
) -> str | None:
    """Return why an adversary hands over what it works out from another client's record, bare."""
    seen = [
        vantage
        for vantage in vantages.measured(configured_vantage, audit_vantages)
        if vantage is not Vantage.SERVER
    ]
    if request.role != Role.ADVERSARY or not seen:
        return None
    return (
        f"the belief of the {seen[0].value} is measured, which this node works out from another "
        "client's record and hands over without noise"
    )


def _check_place(received: Received) -> None:
    """Raise RefusedError unless trials and round are among those that the run plans."""
    request, rounds = received.request, received.config.training.rounds
    planned = received.config.trials.count
    numbers = (request.first_trial, request.trials, request.round, request.record)
    if any(type(number) is not int for number in numbers):
        raise RefusedError("trials, rounds and records are counted in whole numbers")
    first, count = request.first_trial, request.trials
    if count < 1 or first < 0 or first + count > planned:
        raise RefusedError(
            f"{count} trial(s) from {first} on are asked for, but the run's configuration has "
            f"trials 0 to {planned - 1}"
        )
    # The final model comes after the last round.
    last = rounds + received.message.metadata.message_type.startswith("evaluate")
    if not 1 <= request.round <= last:
        raise RefusedError(
            f"round {request.round} is asked for, but the run's configuration has rounds 1 to "
            f"{rounds}"
        )


def _check_role(job: str, request: Request, known: Federation, partition: int) -> None:
    """Raise RefusedError unless a client may be what it is asked to be, about this record."""
    role, record = request.role, request.record
    if role not in ROLES:
        raise RefusedError(f"the role is '{role}', but a client is one of {', '.join(ROLES)}")
    if job == "training" and (role != Role.CLIENT or record >= 0):
        # Which records there are is this client's own business: a game about one would tell.
        raise RefusedError(
            f"the role is '{role}' and the record {record}, but a training has no target and no "
            "adversary"
        )
    own, asked = record in known.owned_by(partition), request.target_client == partition
    if role == Role.ADVERSARY and (own or asked):
        raise RefusedError(
            "this node is asked to be the adversary of its own records, but no run has one that "
            "knows what it is to find out"
        )
    if role == Role.TARGET_CLIENT and not (asked and (own or record < 0)):
        raise RefusedError("this node is asked for a challenge about another client's records")


def _check_arrays(received: Received) -> None:
    """Raise RefusedError unless the model is of the run's shape, finite and at most MOST_VALUE."""
    message, request = received.message, received.request
    shape = (request.trials, models.size(received.known.model))
    try:
        check_array(message, messages.MODEL, [shape], np.float32)
        if messages.WORLDS in message.content:
            check_array(message, messages.WORLDS, [(request.trials,)], np.bool_)
        model = messages.only(messages.array_records(message.content)[messages.MODEL])
        if (largest := float(np.abs(model).max(initial=0.0))) > MOST_VALUE:
            raise ValueError(
                f"its model has a value of {largest:.3g}, and a client trains none above 2^20"
            )
    except (ValueError, TypeError) as error:
        raise RefusedError(f"invalid request: {error}") from None


def agreed_noise(terms: Terms, context: Context) -> float | None:
    """Return the noise multiplier that the client worked out for this run before, if it did."""
    return client_ledger.agreed_multiplier(terms, str(context.run_id), _experiment(context))


def _experiment(context: Context) -> str:
    return _digest(json.dumps(dict(context.run_config), sort_keys=True).encode())


def records_digest(known: Federation, partition: int) -> str:
    """Return a digest of a client's records as they take part, for its own ledger."""
    own = known.split.members_records.take(known.owned_by(partition))
    return _digest(own.features.tobytes() + own.labels.tobytes())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
