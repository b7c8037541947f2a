"""The transcript of a run, transcript.npz, and the checks before a report uses it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedsim.configuration.campaign import AuditConfig
from fedsim.federation.runs.batches import EXPERIMENT, Batches
from fedsim.federation.runs.book import LedgerRow, planned_kind
from fedsim.federation.runs.run_directory import Arrays, RunDirectory
from fedsim.game.mechanisms.vantages import measured, suffix
from fedsim.privacy.participation.rule import Participation
from fedsim.privacy.trust.model import Vantage

FILE = "transcript.npz"

NEEDED = (
    "worlds",
    "log_odds",
    "sensitivities",
    "noise_stds",
    "losses",
    "accuracies",
    "final_models",
    "epsilon_spent",
)
"""Arrays of every run."""

LOSS_ATTACK = ("true_positive_rate", "false_positive_rate", "challenge_is_member")
"""Arrays of runs whose clients do not protect their records."""

OF_FINAL_MODELS = ("balanced_accuracies", "areas_under_curve")
"""Measures of the final models of the evaluated trials."""

COUNTS = ("confusions", "calibrations")
"""Counts of these models' answers: confusions [E, c, c] and calibrations [E, b, 3]."""

RATES = ("true_positive_rate", "false_positive_rate", "accuracies", *OF_FINAL_MODELS)
"""Arrays of numbers from 0 to 1."""

LENGTHS = (
    "sensitivities",
    "noise_stds",
    "present_norms",
    "absent_norms",
    "batch_sizes",
    "residual_squares",
    "residual_freedoms",
)
"""Arrays [T, k] of numbers of at least 0."""

RESIDUALS = ("squares", "freedoms", "repeats", "scales", "signals")
"""Statistics of residuals. The residual tests need all of them."""

SIGNED = ("residual_repeats", "residual_scales", "residual_signals", "residual_shapes")
"""Other arrays [T, k] of numbers."""

LOSSES = ("challenge_loss", "population_losses")
"""Other arrays of records' losses, in the runs with LOSS_ATTACK."""

TRUTHS = ("worlds", "challenge_is_member", "canaries_included")
"""Arrays of truth values."""


def read(directory: RunDirectory) -> Arrays:
    """Return the arrays of a run's transcript, as the server wrote them.

    Log-odds may be NaN from some round to the last: the model diverged, and the reader says so.

    Raises InputError if the file is missing, of another configuration than config.toml, or damaged:
    an array is missing, has other trials or rounds than the log-odds, or has impossible numbers.
    """
    config, arrays = directory.config, directory.read_arrays(FILE)
    with directory.reading(FILE):
        mark = arrays.pop(EXPERIMENT)
    complaint = _incomplete(config.federation.vantage, config.audit, arrays)
    if not complaint:
        if not arrays["log_odds"].ndim:
            raise directory.damaged(FILE, "its 'log_odds' is a single number")
        campaign = Batches(config, directory)
        campaign.check_transcript(FILE, mark, len(arrays["log_odds"]))
        planned = campaign.ranges()
        complaint = _misshapen(
            config.federation.vantage, config.canaries.count, config.participation, arrays, planned
        ) or _impossible(arrays)
    if complaint:
        raise directory.damaged(FILE, complaint)
    return arrays


def check_facts(
    directory: RunDirectory, facts: Mapping[str, Any], transcript: Arrays, rows: Sequence[LedgerRow]
) -> None:
    """Raise InputError if facts.json has other noise, records, trials or clients than its run."""
    config, sizes, challenge = directory.config, facts["client_sizes"], facts["challenge"]
    kind = planned_kind(config.training, config.participation, facts["noise_multiplier"])
    roles = {challenge["client"], challenge["adversary"]}
    agrees = (
        all(row.noise_multiplier == kind.noise_multiplier for row in rows)
        and (len(sizes), sum(sizes)) == (config.federation.clients, config.data.records)
        and (facts["dataset"], facts["precision"]) == (config.data.name, config.run.precision)
        and facts["planned_trials"] == len(transcript["worlds"])
        and len(roles) == 2
        and max(roles) < len(sizes)
    )
    if not agrees:
        raise directory.damaged("facts.json", "it contradicts another file of the run")


def _incomplete(vantage: Vantage, audit: AuditConfig, arrays: Arrays) -> str:
    """Return a complaint about an array that is missing or of another type; "": all are good."""
    from fedsim.game.observers import at_server  # noqa: PLC0415  (torch is slow to import)

    needed = [*NEEDED]
    if at_server.seat(audit.mode).follows and Vantage.PARTICIPANT in measured(
        vantage, audit.vantages
    ):
        ending = suffix(Vantage.PARTICIPANT, vantage)
        needed += [f"residual_{name}{ending}" for name in RESIDUALS]
    if any(name in arrays for name in (*LOSS_ATTACK, *LOSSES)):
        needed += LOSS_ATTACK
    if any(name in arrays for name in COUNTS):
        needed += COUNTS
    for name in needed:
        if name not in arrays:
            return f"it has no '{name}'"
    for name, array in arrays.items():
        kind = "b" if name in TRUTHS else "u" if name == "final_models" else "f"
        if array.dtype.kind != kind:
            return f"its '{name}' is of type {array.dtype}"
    return ""


def _misshapen(
    configured_vantage: Vantage,
    canary_count: int,
    participation: Participation,
    arrays: Arrays,
    planned: Sequence[range],
) -> str:
    """Return a complaint about an array with other trials or rounds than the log-odds, or ""."""
    shapes = {name: array.shape for name, array in arrays.items()}
    for name in ("log_odds", "accuracies"):
        if len(shapes[name]) != 2 or 0 in shapes[name]:
            return f"its '{name}' has the shape {list(shapes[name])}"
    (trials, rounds), (_, evaluated) = shapes["log_odds"], shapes["accuracies"]
    if trials not in {batch.stop for batch in planned}:
        return f"it has {trials} trials, but by config.toml no batch ends after trial {trials}"
    endings = {suffix(vantage, configured_vantage) for vantage in Vantage}
    of_rounds = ("log_odds", *LENGTHS, *SIGNED)
    wanted = {
        "worlds": (trials,),
        "true_positive_rate": (trials,),
        "false_positive_rate": (trials,),
        "challenge_is_member": (trials,),
        "poison_scores": (trials,),
        **{f"{name}{ending}": (trials, rounds) for name in of_rounds for ending in endings},
        "accuracies": (rounds + 1, min(evaluated, trials)),
        "losses": (rounds + 1, evaluated),
        **dict.fromkeys(OF_FINAL_MODELS, (evaluated,)),
        "confusions": (evaluated, *2 * shapes.get("confusions", ())[1:2]),
        "calibrations": (evaluated, *shapes.get("calibrations", ())[1:2], 3),
        "bayesian_distances": (evaluated, rounds, *shapes.get("bayesian_distances", ())[2:]),
        "canary_scores": (trials, canary_count),
        "canaries_included": (trials, canary_count),
        "epsilon_spent": (len(participation.accounts), len(Vantage), rounds),
        "challenge_loss": (trials,),
        "population_losses": (trials, *(shapes.get("population_losses", ())[1:2] or (1,))),
        "final_models": (trials, 32),
    }
    for name, shape in wanted.items():
        if name in shapes and shapes[name] != shape:
            return f"its '{name}' has the shape {list(shapes[name])}, not {list(shape)}"
    return ""


def _impossible(arrays: Arrays) -> str:
    """Return a complaint about an array with impossible numbers; "": all are good."""
    for name, array in arrays.items():
        kind = next((each for each in (*LENGTHS, *SIGNED, *LOSSES) if name.startswith(each)), name)
        if name in RATES and not ((array >= 0) & (array <= 1)).all():
            return f"its '{name}' has values that are not between 0 and 1"
        if name in COUNTS and not (np.isfinite(array) & (array >= 0)).all():
            return f"its '{name}' has values that are not counts"
        if kind in LENGTHS and (array < 0).any():
            return f"its '{name}' has negative values"
        if kind in (*LENGTHS, *SIGNED, *LOSSES) and np.isnan(array).any():
            return f"its '{name}' contains NaN"
        # Log-odds add up over the rounds, so they stay NaN once they are.
        ends_nan = name.startswith("log_odds") and np.isnan(array[:, :-1]) & ~np.isnan(array[:, 1:])
        if np.any(ends_nan):
            return f"its '{name}' contains a number after NaN"
    return ""
