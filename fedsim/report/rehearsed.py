"""What the rehearsal of a training found, for the card of the model that was then trained."""

from pathlib import Path

from pydantic import TypeAdapter

from adversaries.errors import InputError
from fedsim.audits.results import report as results
from fedsim.audits.results.model_card import Rehearsal
from fedsim.config import Config, Scalar, to_run_config
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
"""Keys of the tables below that neither noise nor rounds depend on."""


def findings(config: Config, rehearsal: Path) -> Rehearsal:
    """Return what the rehearsal of a training found.

    Raises:
        InputError: it is of no rehearsal, is not finished, or is of another training.
    """
    played = RunDirectory.open(rehearsal)
    if played.config.run.job != "rehearsal":
        raise InputError(f"'{rehearsal}' is no rehearsal; make one with fedsim rehearse")
    theirs = _settings(played.config)
    for key, value in _settings(config).items():
        if theirs[key] != value:
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


def attach(directory: RunDirectory, found: Rehearsal) -> None:
    """Put what a rehearsal found where the card of a training takes it from.

    Raises:
        InputError: the training has its card already.
    """
    if directory.has(CARD):
        raise InputError(
            f"'{directory.path}' is finished, and its card stays as it was written; name the "
            "rehearsal when the training begins"
        )
    directory.write_json(FILE, TypeAdapter(Rehearsal).dump_python(found, mode="json"))


def read(directory: RunDirectory) -> Rehearsal | None:
    """Return what was put there; None where no rehearsal was named."""
    if not directory.has(FILE):
        return None
    values = directory.read_json(FILE)
    with directory.reading(FILE):
        return TypeAdapter(Rehearsal).validate_python(values)


def _settings(config: Config) -> dict[str, Scalar]:
    tables = ("training.", "model.", "privacy.", "federation.")
    return {
        key: value
        for key, value in to_run_config(config).items()
        if key.startswith(tables) and key not in OWN_OF_EACH
    }
