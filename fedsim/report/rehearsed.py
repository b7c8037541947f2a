"""The results of a training's rehearsal, for the card of the model that was then trained."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import TypeAdapter

from adversaries.errors import InputError
from fedsim.audits.results import report as results
from fedsim.audits.results.model_card import Rehearsal
from fedsim.config import Scalar, to_run_config
from fedsim.federation.runs.run_directory import CARD, RunDirectory

FILE = "rehearsal.json"

OWN_OF_EACH = (
    "privacy.noise-source",
    "federation.partition",
    "federation.partition-key",
    "federation.partition-options",
    "federation.dirichlet-alpha",
    "federation.adversary",
    "federation.auditor-sees",
    "federation.timeout",
)

TABLES = ("training.", "model.", "privacy.", "federation.")


def findings(values: Mapping[str, Scalar], rehearsal: Path) -> Rehearsal:
    played = RunDirectory.open(rehearsal)
    if played.config.run.job != "rehearsal":
        raise InputError(f"'{rehearsal}' is not a rehearsal; make one with fedsim rehearse")
    theirs = to_run_config(played.config)
    for key, value in values.items():
        if key.startswith(TABLES) and key not in OWN_OF_EACH and theirs[key] != value:
            raise InputError(
                f"'{rehearsal}' rehearsed another training: its {key} is {theirs[key]!r}, and here "
                f"it is {value!r}; rehearse the same file, with the same --set"
            )
    report = results.read(played)
    measured, bounds = report.empirical, report.bounds
    return Rehearsal(
        name=report.name,
        data=report.data.name,
        records=report.data.records,
        trials=report.trials,
        vantage=report.vantage,
        confidence=measured.confidence,
        advantage=measured.advantage,
        advantage_interval=measured.advantage_interval,
        rho_alpha=bounds.rho_alpha,
        delta_prime=measured.delta_prime,
        rho_beta=bounds.rho_beta,
    )


def attach(directory: RunDirectory, rehearsal: Rehearsal) -> None:
    if directory.has(CARD):
        raise InputError(
            f"'{directory.path}' is finished, and its card does not change any more; give "
            "--rehearsal when the training begins"
        )
    directory.write_json(FILE, TypeAdapter(Rehearsal).dump_python(rehearsal, mode="json"))


def read(directory: RunDirectory) -> Rehearsal | None:
    if not directory.has(FILE):
        return None
    values = directory.read_json(FILE)
    with directory.reading(FILE):
        return TypeAdapter(Rehearsal).validate_python(values)
