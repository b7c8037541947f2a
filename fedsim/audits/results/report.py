"""The report of a run as one typed value, which report.json holds.

An infinite number is "Infinity" in JSON. A number that was not measured, or does not apply, is None
and null. A report.json that does not have these types is damaged.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.json_schema import JsonSchemaValue

from fedsim.audits.results import measured, setting, theory
from fedsim.audits.results.measured import OneRun
from fedsim.audits.results.numbers import Real
from fedsim.audits.results.residuals import Residuals
from fedsim.audits.results.verdicts import Change, VantageVerdict
from fedsim.federation.runs.run_directory import RunDirectory


@dataclass(frozen=True)
class Report:
    """The report of a run."""

    __pydantic_config__: ClassVar = ConfigDict(
        strict=True, extra="forbid", use_attribute_docstrings=True
    )

    name: str
    """`run.name` of the configuration."""
    job: str
    """"experiment", or "rehearsal" of a training with the same configuration."""
    created: str
    """Time of creation, in UTC."""
    seed: int
    """Seed of batches and worlds, and of the noise unless noise_source says otherwise."""
    versions: Mapping[str, str]
    """Versions of the packages that played the run."""
    runtime: str
    """"in process", "Flower simulation" or "Flower deployment"."""
    device: str
    """Device of the server's models, as torch names it."""
    noise_source: str
    """"seed", or "system" for the operating system's entropy."""
    trust: str
    """Source of the noise: "local", "distributed" or "central"."""
    vantage: str
    """The configured vantage, at which `empirical` is measured."""
    unit: str
    """Unit of privacy: "record" or "client"."""
    neighbouring: str
    """How D' differs from D: "add-remove" or "replace"."""
    prior: Real
    """The adversary's belief in D before the first round."""
    trials: int
    """Number of audited trainings, T."""
    rounds: int
    """Rounds of each training, k."""
    clients: int
    """Number of clients, the adversary among them."""
    colluding: int
    """Number of clients that disclosed their noise to the adversary."""
    data: setting.Data
    """D, and how it was divided among clients."""
    model: setting.Model
    """The trained model."""
    precision: str
    """Floating-point format of forward and backward passes."""
    training: setting.Training
    """Settings of the training."""
    audit_mode: str
    """Adversary that computed the beliefs: "participant", "oracle", or one that the user wrote."""
    verdicts: list[VantageVerdict]
    """Verdict at every vantage, measured or by theory, the worst first."""
    lowering: list[Change]
    """What theory would allow with other settings, the run as it is first; empty where theory
    cannot tell."""
    challenge: setting.Challenge
    """The target."""
    mechanism: setting.Mechanism
    """The noise, and the sensitivity that scales it."""
    released: theory.Released | None
    """None where the noise comes from the seed."""
    bounds: theory.Bounds
    """Bounds at the configured vantage, for one training."""
    dropouts: setting.Dropouts | None
    """None where no client may be missing."""
    budget: theory.Budget
    """What the rounds spent, and the limit."""
    prediction: theory.Prediction
    """Prediction at the configured vantage."""
    empirical: measured.Empirical
    """Measurements at the configured vantage."""
    membership_inference: Mapping[str, measured.MembershipAttack]
    """Attacks by losses, by name."""
    membership_missing: str | None
    """Why configured attacks were not played; None if they were."""
    bayesian: theory.Bayesian | None
    """None where no distances of gradients were gathered."""
    one_run: OneRun | None
    """None where no canaries were planted."""
    utility: measured.Utility
    """Quality of the model on held-out records."""
    timing: setting.Timing
    """Times of all batches of trials together."""
    vantages: Mapping[str, measured.AtVantage]
    """Bounds and measurements by vantage, the configured one among them."""
    pac: theory.Pac
    """PAC privacy, in nats and probabilities, for any noise."""
    crafted: measured.Crafted | None
    """None where the target is one record of D."""
    residuals: Residuals | None
    """None where the adversary formed no residuals."""
    campaign: measured.Campaign
    """Number of trials, and why there are no more."""
    contradictions: Mapping[str, str]
    """Alarms: contradictions of theory, by the check that raised them."""
    alarms: int
    """Number of contradictions."""
    chance_alarms: int
    """Number of checks that an honest run could fail by chance, each rarely."""
    warnings: list[str]
    """Warnings to read before the numbers, alarms first."""
    trade_offs: Mapping[str, measured.TradeOff] = field(default_factory=dict)
    """Measured trade-off curves by vantage; empty for worlds that share their random numbers, for
    trials of one world, and in reports of earlier versions."""


@cache
def _adapter() -> TypeAdapter[Report]:
    return TypeAdapter(Report)


def encode(report: Report) -> dict[str, Any]:
    """Return a report as report.json has it. Raises ValueError for a number that is NaN."""
    encoded: dict[str, Any] = _adapter().dump_python(report, mode="json", warnings="error")
    return encoded


def decode(values: Mapping[str, Any]) -> Report:
    """Return the report that the values of report.json describe.

    Raises:
        ValueError: a key is missing, unknown or of another type; names the first one.
    """
    try:
        return _adapter().validate_json(json.dumps(values))
    except ValidationError as error:
        raise ValueError(_first(error)) from None


def read(directory: RunDirectory) -> Report:
    """Return report.json of a run.

    Raises:
        InputError: the file is missing or damaged.
    """
    values = directory.read_json("report.json")
    with directory.reading("report.json"):
        return decode(values)


def schema() -> JsonSchemaValue:
    """Return the JSON Schema of report.json."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_adapter().json_schema(),
    }


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    key = ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return f"it has no '{key}'"
    if first["type"] == "unexpected_keyword_argument":
        return f"it has '{key}', which no report has"
    return f"its '{key}' is {first['input']!r}"
