"""The Flower ClientApp of a data owner; one of the owners is the adversary.

A handler is a function of its message, the run config, its node's own config and, for the
adversary, of what it remembers. Nothing is kept in module globals but caches of pure functions.
"""

import time

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedsim import adversary, consent, device, federation, messages, node_memory
from fedsim.config import Config, from_run_config
from fedsim.federation import Federation
from fedsim.mechanism import Trust, sensitivity
from fedsim.messages import Request, Role
from fedsim.owner import (
    candidate_masks,
    candidate_sums,
    challenge_gradients,
    clean_sum,
    gradient_distances,
    local_step_size,
    local_steps,
    noise,
    noise_round,
)
from fedsim.sampling import participation

MEMORY = "adversary-memory"
MEMBERSHIP = "adversary-membership"
PROGRESS = "round"
"""The array beside the adversary's memory that says which round it is of."""

app = ClientApp()


@app.query("identify")
def identify(message: Message, context: Context) -> Message:
    """Tell the server which partition this node holds."""
    return _reply(message, context)


@app.query("sensitivity")
def local_sensitivity(message: Message, context: Context) -> Message:
    """Measure the local sensitivity of the challenge: an instrument, not part of a DP release."""
    _, known, request = _prepare(message, context)
    # A norm that no noise protects leaves the owner.
    consent.check(context.node_config, {consent.INSTRUMENTED})
    present, absent = challenge_gradients(
        known, _model(message, known), request.record, _replacement(request)
    )
    norms = (present - absent).norm(dim=-1).cpu().numpy()
    return _reply(message, context, {messages.SENSITIVITY: messages.array_record(norms=norms)})


@app.train()
def train(message: Message, context: Context) -> Message:
    """Return the sum of this owner's clipped gradients, with its own noise under local trust.

    With local steps it is the sum over the steps that the owner took on its own copy of the model.
    """
    start = time.perf_counter()
    config, known, request = _prepare(message, context)
    parameters = _model(message, known)
    partition = _partition(context)
    challenged = request.role == Role.CHALLENGED
    taking_part = _participation(config, known, request)
    instrumented = config.audit.mode == "instrumented"
    noises: list[torch.Tensor] = []
    masks = None
    if config.privacy.noise == "pac":
        masks = candidate_masks(
            config,
            known,
            partition,
            request.record if challenged else None,
            _replacement(request),
            request.role == Role.ADVERSARY,
        )

    def clean(model: torch.Tensor) -> torch.Tensor:
        if masks is not None:
            replacement = _replacement(request) if challenged else None
            return candidate_sums(known, partition, model, masks, replacement)
        return clean_sum(
            known,
            partition,
            model,
            request.record if challenged else None,
            _replacement(request),
            _array(message, messages.WORLDS, known) if challenged else None,
            taking_part,
        )

    def own_noise(step: int) -> torch.Tensor:
        drawn = noise(
            config.noise_seed,
            request.trial_numbers,
            noise_round(config, request.round, step),
            partition,
            request.noise_multiplier * _noise_scale(message, config, known, request),
            parameters.shape[1],
        )
        if instrumented:
            noises.append(drawn)
        return drawn

    total = local_steps(
        clean,
        parameters,
        config.training.local_steps,
        local_step_size(config, request.round),
        own_noise if config.federation.trust is Trust.LOCAL else None,
    )
    sent = total.float()
    content = {messages.REPLY: messages.array_record(sum=sent.cpu().numpy())}
    if instrumented:
        measured = _measurement(known, request, parameters, taking_part)
        if noises and request.role != Role.ADVERSARY:
            # The adversary knows its own noise, which therefore hides nothing.
            (measured["noise"],) = noises
        if masks is not None and challenged:
            (column,) = (known.owned_by(partition) == request.record).nonzero()[0]
            measured["membership"] = torch.from_numpy(masks[:, column])
        if measured:
            content[messages.MEASUREMENT] = messages.array_record(
                **{name: tensor.cpu().numpy() for name, tensor in measured.items()}
            )
    elif request.role == Role.ADVERSARY:
        memory = _recall(message, context, known, request)
        memory = adversary.expect(
            memory,
            config,
            known,
            partition,
            request.record,
            _replacement(request),
            request.noise_multiplier,
            parameters,
            sent.double(),
            taking_part,
            request.round,
        )
        _remember(context, memory, request.round)
    if (distances := _distances(config, known, partition, request, parameters)) is not None:
        content[messages.DISTANCES] = messages.array_record(distances=distances.cpu().numpy())
    return _reply(message, context, content, seconds=time.perf_counter() - start)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Receive the final model and the last aggregate, from which the adversary concludes.

    An owner answers with nothing of its data: a loss on its own records, which differential privacy
    did not touch, would be one more release.
    """
    start = time.perf_counter()
    config, known, request = _prepare(message, context)
    if request.role == Role.ADVERSARY:
        if config.audit.mode == "participant":
            _remember(context, _recall(message, context, known, request), request.round)
        attack = adversary.infer_membership(known, request.record, _model(message, known))
        node_memory.remember(context, MEMBERSHIP, attack)
    return _reply(message, context, seconds=time.perf_counter() - start)


@app.query("findings")
def findings(message: Message, context: Context) -> Message:
    """Hand the adversary's findings to the auditor, who asks after the last round."""
    config = from_run_config(context.run_config)
    names = [MEMBERSHIP] if config.audit.mode == "instrumented" else [MEMORY, MEMBERSHIP]
    found = {}
    for name in names:
        arrays = node_memory.recall(context, name)
        found[name] = {key: array for key, array in arrays.items() if key != PROGRESS}
    node_memory.forget(context, names)
    records = {name: messages.array_record(**arrays) for name, arrays in found.items()}
    return _reply(message, context, records)


def _prepare(message: Message, context: Context) -> tuple[Config, Federation, Request]:
    config = from_run_config(context.run_config)
    if path := context.node_config.get("data-path"):
        # An owner's files are where the owner says, and nobody else needs to know.
        config = config.reading_data_from(str(path))
    request = Request.from_content(message.content)
    consent.check(context.node_config, consent.needed(config, request))
    known = federation.load(config)
    if known.device.type == "cpu":
        device.single_threaded_kernels()
    return config, known, request


def _participation(config: Config, known: Federation, request: Request) -> torch.Tensor | None:
    """Return which records of D take part in this round, bool [T, n]; None if all do."""
    coins = participation(
        config.noise_seed,
        request.trial_numbers,
        request.round,
        config.data.records,
        config.training.sampling_rate,
    )
    return None if coins is None else torch.from_numpy(coins).to(known.device)


def _noise_scale(
    message: Message, config: Config, known: Federation, request: Request
) -> torch.Tensor:
    """Return the sensitivity [T] that this owner's noise is scaled to."""
    if config.privacy.sensitivity == "local":
        return _array(message, messages.SENSITIVITY, known)
    bound = sensitivity(config.privacy.neighbouring, config.training.clipping_norm)
    return torch.full((request.trials,), bound, dtype=torch.float64, device=known.device)


def _measurement(
    known: Federation,
    request: Request,
    parameters: torch.Tensor,
    taking_part: torch.Tensor | None,
) -> dict[str, torch.Tensor]:
    """Return what the owner of the challenge record tells the auditor of an instrumented run."""
    if request.role != Role.CHALLENGED:
        return {}
    replacement = _replacement(request)
    present, absent = challenge_gradients(known, parameters, request.record, replacement)
    measured = {"present": present}
    if replacement is not None:
        measured["absent"] = absent
    if taking_part is not None:
        measured["participation"] = taking_part[:, request.record]
    return measured


def _distances(
    config: Config, known: Federation, partition: int, request: Request, parameters: torch.Tensor
) -> torch.Tensor | None:
    """Return what the Bayesian accountant asks of this owner; None where it asks nothing."""
    evaluated = config.audit.evaluated(request.trial_numbers)
    if not config.audit.bayesian_pairs or not evaluated:
        return None
    trials = request.trial_numbers[:evaluated]
    return gradient_distances(
        config, known, partition, parameters[:evaluated], trials, request.round
    )


def _recall(
    message: Message, context: Context, known: Federation, request: Request
) -> adversary.Memory:
    """Return the memory after the aggregate that this message brings; empty in the first round."""
    if request.round == 1:
        return adversary.Memory.empty(request.trials)
    arrays = node_memory.recall(context, MEMORY)
    last = int(arrays.pop(PROGRESS)) if arrays else None
    if last != request.round - 1:
        raise RuntimeError(
            f"the adversary's state is of round {last}, but the message is of round "
            f"{request.round}: its Flower state was lost between rounds"
        )
    memory = adversary.Memory.from_arrays(arrays, known.device)
    return adversary.observe(memory, _array(message, messages.AGGREGATE, known))


def _remember(context: Context, memory: adversary.Memory, round: int) -> None:
    node_memory.remember(context, MEMORY, {**memory.to_arrays(), PROGRESS: np.asarray(round)})


def _model(message: Message, known: Federation) -> torch.Tensor:
    return _array(message, messages.MODEL, known)


def _array(message: Message, name: str, known: Federation) -> torch.Tensor:
    return torch.tensor(messages.only(message.content.array_records[name])).to(known.device)


def _replacement(request: Request) -> int | None:
    return None if request.replacement < 0 else request.replacement


def _partition(context: Context) -> int:
    return int(context.node_config["partition-id"])


def _reply(
    message: Message,
    context: Context,
    arrays: dict[str, ArrayRecord] | None = None,
    **metrics: float,
) -> Message:
    content = RecordDict({**(arrays or {})})
    content[messages.METRICS] = MetricRecord({"partition": _partition(context), **metrics})
    return Message(content, reply_to=message)
