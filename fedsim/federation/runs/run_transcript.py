"""The transcript of a run, transcript.npz, and the checks before a report uses it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.configuration.campaign import AuditConfig
from fedsim.federation.runs.batches import EXPERIMENT, Batches
from fedsim.federation.runs.ledger import LedgerRow, planned_kind
from fedsim.federation.runs.run_directory import TRANSCRIPT as FILE
from fedsim.federation.runs.run_directory import Arrays, RunDirectory
from fedsim.game.mechanisms.vantages import measured, suffix
from fedsim.privacy.trust import Vantage

LOSS_ATTACK = ("true_positive_rate", "false_positive_rate", "challenge_is_member")
"""Arrays of runs whose clients do not protect their records."""

LOSSES = ("challenge_loss", "population_losses")
"""Other arrays of records' losses, in the runs with LOSS_ATTACK."""

RESIDUALS = ("squares", "freedoms", "repeats", "scales", "signals")
"""Statistics of residuals. The residual tests need all of them."""

NEEDED = (
    *("worlds", "log_odds", "sensitivities", "noise_stds", "losses", "accuracies"),
    *("final_models", "epsilon_spent"),
)
"""Arrays of every run."""

Array = npt.NDArray[Any]

ALLOWED: dict[str, tuple[Callable[[Array], Any], str]] = {
    "any": (lambda values: True, ""),
    "rate": (lambda values: (values >= 0) & (values <= 1), "has values that are not from 0 to 1"),
    "length": (lambda values: values >= 0, "has values that are negative or NaN"),
    "number": (lambda values: ~np.isnan(values), "contains NaN"),
    # Log-odds add up over the rounds, so they stay NaN once they are.
    "log-odds": (
        lambda values: ~np.isnan(values[:, :-1]) | np.isnan(values[:, 1:]),
        "contains a number after NaN",
    ),
}
"""Tests of an array's values, each with the complaint."""

ARRAYS: dict[str, tuple[str, str, str]] = {
    "worlds": ("b", "T", "any"),
    "challenge_is_member": ("b", "T", "any"),
    "canaries_included": ("b", "TC", "any"),
    "final_models": ("u", "TS", "any"),
    "log_odds": ("f", "TK", "log-odds"),
    "true_positive_rate": ("f", "T", "rate"),
    "false_positive_rate": ("f", "T", "rate"),
    "poison_scores": ("f", "T", "any"),
    "challenge_loss": ("f", "T", "number"),
    "population_losses": ("f", "T*", "number"),
    "canary_scores": ("f", "TC", "any"),
    "accuracies": ("f", "JE", "rate"),
    "losses": ("f", "JE", "any"),
    "balanced_accuracies": ("f", "E", "rate"),
    "areas_under_curve": ("f", "E", "rate"),
    "epsilon_spent": ("f", "AVK", "any"),
    **dict.fromkeys(
        (
            *("sensitivities", "noise_stds", "present_norms", "absent_norms", "batch_sizes"),
            *("residual_squares", "residual_freedoms"),
        ),
        ("f", "TK", "length"),
    ),
    **dict.fromkeys(
        ("residual_repeats", "residual_scales", "residual_signals", "residual_shapes"),
        ("f", "TK", "number"),
    ),
}
"""Type, shape and values of each array. T: trials, K: rounds, J: rounds and the first model, E:
evaluated trials, C: canaries, A: accounts, V: vantages, S: bytes of a SHA-256, *: any.
Arrays of another vantage than the configured one have its suffix."""


def read(directory: RunDirectory) -> Arrays:
    """Return the arrays of a run's transcript, as the server wrote them.

    Log-odds may be NaN from some round to the last: the model diverged, and the reader says so.

    Raises InputError if the file is missing, of another configuration than config.toml, or damaged:
    an array is missing, has other trials or rounds than the log-odds, or has impossible numbers.
    """
    config, arrays = directory.config, directory.read_arrays(FILE)
    with directory.reading(FILE):
        mark = arrays.pop(EXPERIMENT)
        for name in _needed(config.federation.vantage, config.audit, arrays):
            if name not in arrays:
                raise ValueError(f"it has no '{name}'")
        trials, rounds = arrays["log_odds"].shape
        _, evaluated = arrays["accuracies"].shape
    campaign = Batches(config, directory)
    campaign.check(FILE, mark, range(trials), transcript=True)
    with directory.reading(FILE):
        if not rounds or trials not in {batch.stop for batch in campaign.ranges()}:
            raise ValueError(f"its 'log_odds' has {trials} trials and {rounds} rounds")
        sizes = {"T": trials, "K": rounds, "J": rounds + 1, "E": min(evaluated, trials), "S": 32}
        sizes |= {"C": config.canaries.count, "A": len(config.participation.accounts)}
        sizes |= {"V": len(Vantage)}
        for name, array in arrays.items():
            _check(name, array, sizes, config.federation.vantage)
    return arrays


class ContradictionError(InputError):
    """The facts of a run contradict its other files: one of them was changed."""


def check_facts(
    directory: RunDirectory, facts: Mapping[str, Any], transcript: Arrays, rows: Sequence[LedgerRow]
) -> None:
    """Raise ContradictionError if facts.json has other noise, records, trials or clients."""
    config, sizes, challenge = directory.config, facts["client_sizes"], facts["challenge"]
    kind = planned_kind(config.training, config.participation, facts["noise_multiplier"])
    client, adversary = challenge["client"], challenge["adversary"]
    clients, records = config.federation.clients, config.data.records
    agrees = {
        "noise_multiplier": {row.kind.noise_multiplier for row in rows} <= {kind.noise_multiplier},
        "client_sizes": (len(sizes), sum(sizes)) == (clients, records),
        "dataset": facts["dataset"] == config.data.name,
        "precision": facts["precision"] == config.run.precision,
        "planned_trials": facts["planned_trials"] == len(transcript["worlds"]),
        "challenge.client": client < clients,
        "challenge.adversary": adversary < clients and adversary != client,
    }
    if wrong := [name for name, holds in agrees.items() if not holds]:
        why = f"its '{wrong[0]}' contradicts another file of the run"
        raise ContradictionError(str(directory.damaged("facts.json", why)))


def _needed(vantage: Vantage, audit: AuditConfig, arrays: Arrays) -> list[str]:
    """Return the arrays that a run needs, by its configuration and by its other arrays."""
    from fedsim.game.observers import at_server  # noqa: PLC0415  (torch is slow to import)

    needed, watched = [*NEEDED], measured(vantage, audit.vantages)
    if at_server.seat(audit.mode).follows and Vantage.PARTICIPANT in watched:
        ending = suffix(Vantage.PARTICIPANT, vantage)
        needed += [f"residual_{name}{ending}" for name in RESIDUALS]
    if any(name in arrays for name in LOSS_ATTACK + LOSSES):
        needed += LOSS_ATTACK
    return needed


def _check(name: str, array: Array, sizes: Mapping[str, int], configured: Vantage) -> None:
    """Raise ValueError unless an array has the type, the shape and the values of `ARRAYS`."""
    endings = [suffix(vantage, configured) for vantage in Vantage if vantage is not configured]
    base = next((name.removesuffix(each) for each in endings if name.endswith(each)), name)
    kind, dimensions, allowed = ARRAYS.get(base, ("f", "", "any"))
    if array.dtype.kind != kind:
        raise ValueError(f"its '{name}' is of type {array.dtype}")
    if base not in ARRAYS:
        return
    own = dict(sizes)
    fits = len(dimensions) == array.ndim and all(
        letter == "*" or own.setdefault(letter, size) == size
        for letter, size in zip(dimensions, array.shape, strict=True)
    )
    if not fits or 0 in array.shape:
        raise ValueError(f"its '{name}' has the shape {list(array.shape)}")
    test, complaint = ALLOWED[allowed]
    if not np.all(test(array)):
        raise ValueError(f"its '{name}' {complaint}")
