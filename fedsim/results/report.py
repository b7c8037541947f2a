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

from fedsim.results import measured, setting, theory
from fedsim.results.numbers import Real


@dataclass(frozen=True)
class Report:
    """What a run's report holds."""

    __pydantic_config__: ClassVar = ConfigDict(
        strict=True, extra="forbid", use_attribute_docstrings=True
    )

    name: str
    created: str
    """When, in UTC."""
    seed: int
    versions: Mapping[str, str]
    """Of the packages that played it."""
    runtime: str
    device: str
    noise_source: str
    trust: str
    vantage: str
    """The configured one, of which `empirical` is."""
    unit: str
    """Whom the guarantee is for: "record" or "client"."""
    neighbouring: str
    prior: Real
    """The adversary's belief in D before it has seen anything."""
    trials: int
    rounds: int
    """In each."""
    clients: int
    colluding: int
    """How many of them disclosed their noise to the adversary."""
    data: setting.Data
    model: setting.Model
    precision: str
    training: setting.Training
    audit_mode: str
    challenge: setting.Challenge
    mechanism: setting.Mechanism
    released: theory.Released | None
    """None where the noise is the seed's."""
    bounds: theory.Bounds
    dropouts: setting.Dropouts | None
    """None where no client may be missing."""
    budget: theory.Budget
    prediction: theory.Prediction
    empirical: measured.Empirical
    membership_inference: Mapping[str, measured.MembershipAttack]
    """Attacks by losses, by name."""
    membership_missing: str | None
    """Why attacks that were asked for were not played."""
    bayesian: theory.Bayesian | None
    one_run: measured.OneRun | None
    """None where no canaries were planted."""
    utility: measured.Utility
    timing: setting.Timing
    vantages: Mapping[str, measured.AtVantage]
    pac: theory.Pac
    crafted: measured.Crafted | None
    """None where the target is one record of D."""
    residuals: measured.Residuals | None
    """None where the adversary formed none."""
    campaign: measured.Campaign
    alarms: Mapping[str, str]
    """What contradicts theory, by the check that found it."""
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
