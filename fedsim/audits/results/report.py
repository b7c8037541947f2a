"""The report of a run as one value, and report.json, which is that value written down.

A number that is infinite is infinite here, and "Infinity" in JSON; what was not measured, or does
not apply, is None and null. What is not as the types say is damage.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
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
    """What a run's report holds."""

    __pydantic_config__: ClassVar = ConfigDict(
        strict=True, extra="forbid", use_attribute_docstrings=True
    )

    name: str
    """`run.name` of the configuration."""
    job: str
    """"experiment", or "rehearsal" of the training of the same file."""
    created: str
    """When, in UTC."""
    seed: int
    """Of which batches, worlds and, unless noise_source says otherwise, the noise are drawn."""
    versions: Mapping[str, str]
    """Of the packages that played it."""
    runtime: str
    """"in process", "Flower simulation" or "Flower deployment"."""
    device: str
    """On which the server's models were, as torch names it."""
    noise_source: str
    """"seed", or "system" for the operating system's entropy."""
    trust: str
    """Who adds the noise: "local", "distributed" or "central"."""
    vantage: str
    """The configured one, of which `empirical` is."""
    unit: str
    """Whom the guarantee is for: "record" or "client"."""
    neighbouring: str
    """How D' differs from D: "add-remove" or "replace"."""
    prior: Real
    """The adversary's belief in D before it has seen anything."""
    trials: int
    """Trainings of the federation that were audited, T."""
    rounds: int
    """In each."""
    clients: int
    """The adversary among them."""
    colluding: int
    """How many of them disclosed their noise to the adversary."""
    data: setting.Data
    """What D is and how it was divided."""
    model: setting.Model
    """What was trained."""
    precision: str
    """The floating-point format of forward and backward passes."""
    training: setting.Training
    """How it was trained."""
    audit_mode: str
    """Who computed the beliefs: "participant", "oracle", or a seat of a user's own."""
    verdicts: list[VantageVerdict]
    """Of every vantage, measured or stated by theory, the worst first."""
    lowering: list[Change]
    """What theory would allow with other settings, the run as it is first; empty where theory has
    no say."""
    challenge: setting.Challenge
    """The target."""
    mechanism: setting.Mechanism
    """The noise and what it was scaled to."""
    released: theory.Released | None
    """None where the noise is the seed's."""
    bounds: theory.Bounds
    """At the configured vantage, of one training."""
    dropouts: setting.Dropouts | None
    """None where no client may be missing."""
    budget: theory.Budget
    """What the rounds spent, against its limit."""
    prediction: theory.Prediction
    """At the configured vantage."""
    empirical: measured.Empirical
    """At the configured vantage."""
    membership_inference: Mapping[str, measured.MembershipAttack]
    """Attacks by losses, by name."""
    membership_missing: str | None
    """Why attacks that were asked for were not played."""
    bayesian: theory.Bayesian | None
    """None where no distances of gradients were gathered."""
    one_run: OneRun | None
    """None where no canaries were planted."""
    utility: measured.Utility
    """On records that nobody trained on."""
    timing: setting.Timing
    """Of all batches of trials together."""
    vantages: Mapping[str, measured.AtVantage]
    """By vantage, the configured one among them."""
    pac: theory.Pac
    """In nats and probabilities, whatever the noise."""
    crafted: measured.Crafted | None
    """None where the target is one record of D."""
    residuals: Residuals | None
    """None where the adversary formed none."""
    campaign: measured.Campaign
    """How many trials there are and why."""
    contradictions: Mapping[str, str]
    """What contradicts theory, by the check that found it."""
    alarms: int
    """How many contradictions there are."""
    chance_alarms: int
    """How many checks an honest run fails by chance, each rarely."""
    warnings: list[str]
    """What every reader must know before the numbers, alarms first."""


@cache
def _adapter() -> TypeAdapter[Report]:
    return TypeAdapter(Report)


def encode(report: Report) -> dict[str, Any]:
    """Return a report as report.json has it. Raises ValueError for a number that is NaN."""
    encoded: dict[str, Any] = _adapter().dump_python(report, mode="json", warnings="error")
    return encoded


def decode(values: Mapping[str, Any]) -> Report:
    """Return the report of which report.json has these values.

    Raises ValueError, which names the first key that is missing, unknown or of another kind.
    """
    try:
        return _adapter().validate_json(json.dumps(values))
    except ValidationError as error:
        raise ValueError(_first(error)) from None


def read(directory: RunDirectory) -> Report:
    """Return report.json of a run.

    Raises:
        InputError: there is none, or it is damaged.
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
