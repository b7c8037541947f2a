"""The Flower ClientApp of a data owner; one of the owners is the adversary.

A handler is a function of its message, the run config and, for the adversary, of its own Flower
state. Nothing is kept in module globals but caches of pure functions.
"""

import time

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedsim import adversary, device, federation, messages
from fedsim.config import Config, from_run_config
from fedsim.federation import Federation
from fedsim.mechanism import Trust, sensitivity
from fedsim.messages import Request, Role
from fedsim.owner import challenge_gradients, clean_sum, noise

MEMORY = "adversary-memory"
MEMBERSHIP = "adversary-membership"
PROGRESS = "adversary-progress"

app = ClientApp()


@app.query("identify")
def identify(message: Message, context: Context) -> Message:
    """Tell the server which partition this node holds."""
    return _reply(message, context)


@app.query("sensitivity")
def local_sensitivity(message: Message, context: Context) -> Message:
    """Measure the local sensitivity of the challenge: an instrument, not part of a DP release."""
    _, known, request = _prepare(message, context)
    present, absent = challenge_gradients(
        known, _model(message, known), request.record, _replacement(request)
    )
    norms = (present - absent).norm(dim=-1).cpu().numpy()
    return _reply(message, context, {messages.SENSITIVITY: messages.array_record(norms=norms)})


@app.train()
def train(message: Message, context: Context) -> Message:
    """Return the sum of this owner's clipped gradients, with its own noise under local trust."""
    start = time.perf_counter()
    config, known, request = _prepare(message, context)
    parameters = _model(message, known)
    partition = _partition(context)
    challenged = request.role == Role.CHALLENGED
    total = clean_sum(
        known,
        partition,
        parameters,
        request.record if challenged else None,
        _replacement(request),
        _array(message, messages.WORLDS, known) if challenged else None,
    )
    if config.federation.trust is Trust.LOCAL:
        if config.privacy.sensitivity == "local":
            scale = _array(message, messages.SENSITIVITY, known)
        else:
            bound = sensitivity(config.privacy.neighbouring, config.training.clipping_norm)
            scale = torch.full((request.trials,), bound, dtype=torch.float64, device=known.device)
        total += noise(
            config.noise_seed,
            request.trial_numbers,
            request.round,
            partition,
            request.noise_multiplier * scale,
            total.shape[1],
        )
    sent = total.float()
    if request.role == Role.ADVERSARY:
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
        )
        _remember(context, memory, request.round)
    reply = {messages.REPLY: messages.array_record(sum=sent.cpu().numpy())}
    return _reply(message, context, reply, seconds=time.perf_counter() - start)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Receive the final model and the last aggregate, from which the adversary concludes.

    An owner answers with nothing of its data: a loss on its own records, which differential privacy
    did not touch, would be one more release.
    """
    start = time.perf_counter()
    _, known, request = _prepare(message, context)
    if request.role == Role.ADVERSARY:
        _remember(context, _recall(message, context, known, request), request.round)
        attack = adversary.infer_membership(known, request.record, _model(message, known))
        context.state[MEMBERSHIP] = messages.array_record(**attack)
    return _reply(message, context, seconds=time.perf_counter() - start)


@app.query("findings")
def findings(message: Message, context: Context) -> Message:
    """Hand the adversary's findings to the auditor, who asks after the last round."""
    return _reply(
        message,
        context,
        {name: context.state.array_records[name] for name in (MEMORY, MEMBERSHIP)},
    )


def _prepare(message: Message, context: Context) -> tuple[Config, Federation, Request]:
    config = from_run_config(context.run_config)
    known = federation.load(config)
    if known.device.type == "cpu":
        device.single_threaded_kernels()
    return config, known, Request.from_content(message.content)


def _recall(
    message: Message, context: Context, known: Federation, request: Request
) -> adversary.Memory:
    """Return the memory after the aggregate that this message brings; empty in the first round."""
    if request.round == 1:
        return adversary.Memory.empty(request.trials)
    seen = context.state.config_records.get(PROGRESS)
    last = None if seen is None else int(seen["round"])  # type: ignore[arg-type]
    if last != request.round - 1:
        raise RuntimeError(
            f"the adversary's state is of round {last}, but the message is of round "
            f"{request.round}: its Flower state was lost between rounds"
        )
    arrays = messages.arrays_of(context.state.array_records[MEMORY])
    memory = adversary.Memory.from_arrays(arrays, known.device)
    return adversary.observe(memory, _array(message, messages.AGGREGATE, known))


def _remember(context: Context, memory: adversary.Memory, round: int) -> None:
    context.state[MEMORY] = messages.array_record(**memory.to_arrays())
    context.state[PROGRESS] = ConfigRecord({"round": round})


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
