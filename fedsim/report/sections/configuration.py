"""The settings of a run."""

from dataclasses import fields
from statistics import median
from typing import Any

from fedsim.audits.results.report import Report
from fedsim.report.document.blocks import Block, Heading, Listing
from fedsim.report.document.wording import setting
from fedsim.report.sections.facts import is_client, takes_local_steps
from fedsim.report.sections.section import Section

Settings = dict[str, Any]
"""Values by how they are named."""

LISTED = 50
"""Clients whose sizes are named one by one."""

OPTIMIZER_KEYS: dict[str, set[str]] = {
    "sgd": {"momentum"},
    "adam": {"beta1", "beta2", "adam_epsilon"},
    "normalized": set(),
}


def _settings(report: Report) -> dict[str, Settings]:
    """Return the settings by the headings below which they stand."""
    return {
        "Federation": {
            "Clients": report.clients,
            "Clients colluding with the adversary": report.colluding,
            "Rounds": report.rounds,
            "Trials": report.trials,
            "Trust": report.trust,
            "Vantage": report.vantage,
            "Unit of privacy": report.unit,
            "Neighbouring": report.neighbouring,
            "Runtime": report.runtime,
            "Device": report.device,
        },
        "Data and model": _data(report),
        "Challenge": _challenge(report),
        "Mechanism": _mechanism(report),
        "Training": _training(report),
        "Randomness and versions": {
            "Seed": report.seed,
            "Noise from": report.noise_source,
            **report.versions,
        },
        "Seconds": {
            "federation": report.timing.federation,
            "clients_computing": report.timing.clients_computing,
            "total": report.timing.total,
        },
    }


def _data(report: Report) -> Settings:
    data, model = report.data, report.model
    return {
        "Dataset": data.name,
        "Records": data.records,
        "Held out": data.held_out,
        "Partition": data.partition,
        **({"Never split": data.partition_key} if data.partition_key else {}),
        "Records per client": _sizes(data.client_sizes),
        **({"Label skew": data.label_skew} if data.label_skew else {}),
        "Model": model.name,
        "Parameters": model.parameters,
        "Frozen": model.frozen,
        "Frozen parameters": model.frozen_parameters,
        "Batch norm": model.batch_norm,
        "Precision": report.precision,
        "Layers through torch.func": model.gradient_fallbacks,
    }


def _sizes(sizes: list[int]) -> list[int] | str:
    """Return the clients' numbers of records, in short where there are many."""
    if len(sizes) <= LISTED:
        return sizes
    return f"{min(sizes)} to {max(sizes)}, median {median(sizes):g}"


def _challenge(report: Report) -> Settings:
    challenge = report.challenge
    return {
        "Record": challenge.record,
        "Target records": challenge.records,
        "Replacement": challenge.replacement,
        "Client": challenge.client,
        "Adversary": challenge.adversary,
        "Dissimilarity": challenge.measure,
        "Distance": challenge.distance,
    }


def _mechanism(report: Report) -> Settings:
    mechanism, rounding, dropouts = report.mechanism, report.mechanism.rounding, report.dropouts
    found: Settings = {
        "Noise multiplier": mechanism.noise_multiplier,
        "Effective noise multiplier": mechanism.effective_noise_multiplier,
        "Clipping norm C": mechanism.clipping_norm,
        "Clipping": mechanism.clipping,
        "Sensitivity": mechanism.sensitivity,
        "Noise": mechanism.noise,
        "Noisy steps accounted": mechanism.steps,
        "Local steps in a round": mechanism.local_steps,
        "Sampling rate": mechanism.sampling_rate,
        "Rate of clients that join": mechanism.joining_rate,
    }
    if rounding is not None:
        found |= {
            "Secure aggregation": rounding.note,
            "Grid step g": rounding.step,
            "Sensitivity more by rounding, relative": rounding.relative_growth,
            "Total variation by rounding, at most": rounding.total_variation,
        }
    if dropouts is not None:
        found |= {
            "Missing clients tolerated": dropouts.tolerated,
            "Rounds with missing clients": dropouts.rounds_with_missing_clients,
            "Fewest shares of noise": dropouts.fewest_shares,
            "Effective noise multiplier, from and to": dropouts.effective_noise_multiplier,
        }
    return found | {"DP guarantee": mechanism.dp_guarantee, "Note": mechanism.dp_note}


def _training(report: Report) -> Settings:
    """Return the training's settings, without those that had no effect or stand elsewhere."""
    training, idle = report.training, {"learning_rate"}
    for name, keys in OPTIMIZER_KEYS.items():
        idle |= keys if name != training.optimizer else set()
    idle |= {"decay_every", "decay_factor"} if training.schedule != "step" else set()
    if not is_client(report):
        idle |= {"local_epochs", "local_batches", "local_momentum", "proximal_term", "batch_size"}
        idle |= set() if takes_local_steps(report) else {"local_learning_rate"}
    return {
        "Learning rate": report.mechanism.learning_rate,
        **{
            field.name.replace("_", " ").capitalize(): getattr(training, field.name)
            for field in fields(training)
            if field.name not in idle
        },
        "Audit mode": report.audit_mode,
    }


def _words(report: Report) -> list[Block]:
    blocks: list[Block] = []
    for title, settings in _settings(report).items():
        rows = [(name, setting(value)) for name, value in settings.items()]
        blocks += [Heading(title), Listing(rows, several=True)]
    return blocks


SECTION = Section("Configuration", _words, specialist=True)
