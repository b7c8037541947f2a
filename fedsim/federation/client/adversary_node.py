"""The adversary's node: a belief from round to round, and attacks on the final model."""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from flwr.app import ArrayRecord, Context

from adversaries.attacks import membership_attacks
from fedsim.common import private_files, reading
from fedsim.configuration.federation import FederationConfig
from fedsim.federation.client.admission import Received
from fedsim.federation.protocol import consent, messages
from fedsim.game.known_round import KnownRound
from fedsim.game.mechanisms import vantages
from fedsim.game.observers import at_server, participant, released_model
from fedsim.game.observers.memory import POISON_SCORES, Memory
from fedsim.privacy.trust import Vantage

MEMORY = "adversary-memory"
MEMBERSHIP = "adversary-membership"
LOSSES = "adversary-losses"
RELEASED = "adversary-released-model"
AWAITING = "adversary-awaiting"

PROGRESS = "round"
"""The array that names the round of the adversary's memory."""


def follow(
    received: Received,
    parameters: torch.Tensor,
    sent: torch.Tensor,
    taking_part: torch.Tensor | None,
) -> None:
    """Learn from the previous aggregate, and expect this round's, in which `sent` is known."""
    if _follows_rounds(received):
        memory = _recall(received)
        if _waits(received.config.federation):
            arrays = {"model": parameters.cpu().numpy(), "message": sent.double().cpu().numpy()}
            remember(received.context, AWAITING, arrays)
        else:
            of_round = KnownRound(
                received.config, received.loaded, received.request.game, parameters, taking_part
            )
            memory = participant.expect(memory, of_round, received.partition, sent.double())
        _remember(received.context, memory, received.request.round)


def conclude(received: Received) -> None:
    context, config, loaded = received.context, received.config, received.loaded
    request = received.request
    if _follows_rounds(received):
        memory = _recall(received)
        # No later aggregate can be compared with the residual.
        _remember(context, replace(memory, past=None), request.round)
    if Vantage.RELEASED_MODEL in vantages.measured(
        config.federation.vantage, config.audit.vantages
    ) and not released_model.why_not(config):
        game = request.game.at(request.round - 1)
        step = released_model.attack(config, loaded, game, received.model)
        arrays = {name.replace("_", "-"): array for name, array in step.items()}
        remember(context, RELEASED, arrays)
    if not consent.protects(context.node_config):
        remember(context, MEMBERSHIP, _attack_losses(received))


def findings(context: Context, configured_vantage: Vantage) -> dict[str, ArrayRecord]:
    """Return the adversary's arrays by record, and delete them from the node."""
    names = {MEMBERSHIP: ""}
    for name, vantage in ((MEMORY, Vantage.PARTICIPANT), (RELEASED, Vantage.RELEASED_MODEL)):
        names[name] = vantages.suffix(vantage, configured_vantage)
    records = {}
    for name, ending in names.items():
        arrays = recall(context, name)
        arrays.pop(PROGRESS, None)
        if arrays:
            records[name] = messages.array_record(
                **{f"{key}{ending}": array for key, array in arrays.items()}
            )
    forget(context, [*names, AWAITING])
    return records


def _follows_rounds(received: Received) -> bool:
    vantage, audit = received.config.federation.vantage, received.config.audit
    follows = Vantage.PARTICIPANT in vantages.measured(vantage, audit.vantages)
    return follows and at_server.seat(audit.mode).follows


def _attack_losses(received: Received) -> dict[str, npt.NDArray[Any]]:
    """Return the scores of attacks on the final model, which read losses without noise."""
    config, loaded, trials = received.config, received.loaded, received.request.trial_numbers
    model = received.model
    losses = bool(membership_attacks.chosen(config.audit.attacks))
    attack = participant.infer_membership(loaded, _target(received), model, losses=losses)
    scores = released_model.poison_scores(config, loaded, trials, model)
    if scores is not None:
        attack[POISON_SCORES] = scores
    return attack


def _target(received: Received) -> npt.NDArray[np.intp]:
    if received.config.privacy.unit == "client":
        return received.loaded.owned_by(received.request.target_client)
    return np.asarray([received.request.record])


def _waits(federation: FederationConfig) -> bool:
    """Return whether the adversary learns the participants of a sum only with the aggregate."""
    return federation.tolerated_dropouts > 0 or (
        federation.colluding > 0 and not federation.trust.model.server_draws
    )


def _recall(received: Received) -> Memory:
    """Return the memory after this message's aggregate; an empty memory in the first round."""
    request, loaded = received.request, received.loaded
    if request.round == 1:
        return Memory.empty(request.trials)
    arrays = recall(received.context, MEMORY)
    last = int(arrays.pop(PROGRESS)) if arrays else None
    if last != request.round - 1:
        state = "is missing" if last is None else f"is of round {last}"
        raise RuntimeError(
            f"the adversary's state {state}, but the message is of round {request.round}: its "
            "Flower state was lost between rounds; start the run again"
        )
    memory = Memory.from_arrays(arrays, loaded.device)
    if _waits(received.config.federation):
        memory = _expect_late(memory, received)
    return participant.observe(memory, received.array(messages.AGGREGATE))


def _expect_late(memory: Memory, received: Received) -> Memory:
    """Form the hypotheses about the previous aggregate, whose participants the message names."""
    message, context = received.message, received.context
    config, loaded = received.config, received.loaded
    own = received.partition
    before = replace(received.request, round=received.request.round - 1)
    awaiting = recall(context, AWAITING)
    clients = messages.participants(message.content)
    disclosed: dict[str, npt.NDArray[Any]] = {}
    if messages.DISCLOSED in message.content:
        disclosed = messages.arrays_of(messages.array_records(message.content)[messages.DISCLOSED])
    contribution = torch.tensor(awaiting["message"]).to(loaded.device)
    for disclosed_noise in disclosed.values():
        contribution = contribution + torch.tensor(disclosed_noise).to(loaded.device)
    unknown = config.federation.trust.model.unknown_noise(
        Vantage.PARTICIPANT, clients, before.target_client, own, {int(name) for name in disclosed}
    )
    model = torch.tensor(awaiting["model"]).to(loaded.device)
    of_round = KnownRound.drawn(config, loaded, before.game, model)
    return participant.expect(
        memory,
        of_round,
        own,
        contribution,
        set(range(config.federation.clients)) - set(clients),
        len(unknown),
    )


def _remember(context: Context, memory: Memory, round: int) -> None:
    remember(context, MEMORY, {**memory.to_arrays(), PROGRESS: np.asarray(round)})


Arrays = dict[str, npt.NDArray[Any]]


def remember(context: Context, name: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Remember arrays under a name. They replace earlier arrays of that name.

    Raises OSError if the file cannot be written.
    Raises InputError if the folder is a symbolic link.
    """
    path = _path(context, name)
    if path is None:
        context.state[name] = messages.array_record(**arrays)
        return
    private_files.make_directory(path.parent)
    with private_files.replacing(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # allow_pickle's bool


def recall(context: Context, name: str) -> Arrays:
    """Return the arrays of a name; empty if they are missing or unreadable."""
    path = _path(context, name)
    if path is None:
        record = context.state.array_records.get(name)
        return {} if record is None else messages.arrays_of(record)
    try:
        return reading.arrays(path)
    except reading.DAMAGE:
        return {}


def forget(context: Context, names: Iterable[str]) -> None:
    """Delete the files of some names, which hold beliefs about a person."""
    for name in names:
        if (path := _path(context, name)) is not None:
            with contextlib.suppress(OSError):
                path.unlink()


def _path(context: Context, name: str) -> Path | None:
    folder = context.node_config.get("state-path")
    if not folder:
        return None
    # Several nodes of one machine may share the folder.
    return Path(str(folder)).resolve() / f"{context.run_id}-{context.node_id}-{name}.npz"
