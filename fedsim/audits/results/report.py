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
from pydantic_core import SchemaValidator, core_schema

from adversaries.errors import InputError
from fedsim.audits.results import measured, theory
from fedsim.audits.results.measured import OneRunResult
from fedsim.audits.results.numbers import Real
from fedsim.audits.results.rows import Attack, RunRow
from fedsim.audits.results.theory import Residuals
from fedsim.common.tables import Scalar
from fedsim.federation.runs.run_directory import RunDirectory


@dataclass(frozen=True)
class DataFacts:
    """The data, and which client holds what."""

    name: str
    records: int
    """Number of records in D."""
    held_out: int
    """Records on which the model was evaluated."""
    client_sizes: list[int]
    mean_label_skew: Real | None
    """How far the clients' label mixes are from D's."""


@dataclass(frozen=True)
class ChallengeFacts:
    """The difference between D and D'."""

    record: int | None
    """Position of the target in D; None where it is not one record."""
    replacement: int | str | None
    """What D' has in its place: a position in the pool, or words; None for nothing."""
    client: int
    choice: str
    """How the target was chosen: "max" or "min" of the dissimilarity, or "given"."""
    measure: str
    """Dissimilarity by which the target was chosen."""
    kind: str
    """"record" for a record of D; otherwise how the target was crafted."""
    label: int | None
    """Label of a crafted record."""
    records: int
    """Number of records in which D and D' differ."""


@dataclass(frozen=True)
class RoundingCost:
    """Cost of sending integers, under distributed trust."""

    secure_aggregation: str
    """"simulated", in the clear, or "secagg+"."""
    note: str
    """How the messages were summed, in words that follow "they were"."""
    step: Real
    """Step g of the grid."""
    bits: int
    limit: Real
    """Largest coordinate that is sent."""
    sensitivity: Real
    """Sensitivity of a sum of rounded messages, to which the noise is scaled."""
    relative_growth: Real
    """Relative growth of the sensitivity, and of the noise, due to rounding."""
    total_variation: Real
    """Total variation distance of all rounds from the accounted Gaussian mechanism; 0 where that is
    below what a double can hold."""


@dataclass(frozen=True)
class MechanismFacts:
    """The mechanism, as configured and as accounted for."""

    noise_multiplier: Real
    """Nominal: standard deviation of all noise over the sensitivity."""
    effective_noise_multiplier: Real | None
    """Multiplier of the noise that the configured vantage faces; None where rounds differ."""
    clipping: bool
    """Whether C is enforced."""
    sensitivity: str
    """Sensitivity that scales the noise: "global", or "local" for the target's own."""
    steps: int
    """Noisy steps that are accounted for."""
    mu: Real
    """Mu of Gaussian privacy, if no step were sampled."""
    local_steps: int
    """Steps that each client takes on its own in a round."""
    sampling_rate: Real
    """Probability that a record takes part in a step; 1 for always."""
    joining_rate: Real
    """Probability that a client joins, where records are the unit and its coin is public."""
    rounding: RoundingCost | None
    """None where messages are not rounded."""
    dp_guarantee: bool
    """Whether everything released has a finite epsilon, by noise that no observer can remove."""
    dp_note: str
    """What was released, or why there is no guarantee."""


@dataclass(frozen=True)
class Dropouts:
    """Rounds with missing clients."""

    tolerated: int
    """Number of clients that may be missing from a round."""
    rounds_with_missing_clients: int
    """Over all batches of trials and attempts; rounds that the seed repeats count once."""
    fewest_shares: int
    """Smallest number of clients whose noise was in a round."""
    effective_noise_multiplier: tuple[Real, Real]
    """Smallest and largest multiplier that the configured vantage faced in a round."""


@dataclass(frozen=True)
class Timing:
    """Wall-clock times, in seconds."""

    federation: Real
    """From the first round of the trials to the last."""
    clients_computing: Real
    """Part of that time spent waiting for clients."""
    total: Real


@dataclass(frozen=True)
class Report:
    """The report of a run."""

    __pydantic_config__: ClassVar = ConfigDict(
        strict=True, extra="forbid", use_attribute_docstrings=True
    )

    config: Mapping[str, Scalar]
    """The configuration by dotted keys, without those of the server's machine."""
    name: str
    job: str
    """"experiment", or "rehearsal" of a training with the same configuration."""
    created: str
    seed: int
    """Seed of batches and worlds, and of the noise unless noise_source says otherwise."""
    versions: Mapping[str, str]
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
    trials: int
    rounds: int
    clients: int
    colluding: int
    """Number of clients that disclosed their noise to the adversary."""
    data: DataFacts
    parameters: int
    """Number of the network's parameters."""
    precision: str
    """Floating-point format of forward and backward passes."""
    rows: Mapping[str, RunRow]
    """A row for each observer, by its name, the worst first."""
    challenge: ChallengeFacts
    mechanism: MechanismFacts
    released: theory.ReleasedTogether | None
    """None where the noise comes from the seed."""
    bounds: theory.RunBounds
    """What else theory says about the configured vantage."""
    dropouts: Dropouts | None
    """None where no client may be missing."""
    budget: theory.Budget
    """What the rounds spent, and the limit."""
    prediction: theory.PredictionResult
    empirical: measured.Empirical
    """Further measurements at the configured vantage."""
    membership_inference: Mapping[str, measured.MembershipAttack]
    """Attacks by losses, by name."""
    membership_missing: str | None
    """Why configured attacks were not played; None if they were."""
    one_run: OneRunResult | None
    """None where no canaries were planted."""
    utility: measured.Utility
    timing: Timing
    crafted: measured.CraftedResult | None
    """None where the target is one record of D."""
    residuals: Residuals | None
    """None where the adversary formed no residuals."""
    contradictions: Mapping[str, str]
    """Alarms: contradictions of theory, by the check that raised them."""
    alarms: int
    chance_alarms: int
    """Number of checks that an honest run could fail by chance, each rarely."""
    warnings: list[str]
    """Warnings to read before the numbers, alarms first."""
    trade_offs: Mapping[str, measured.TradeOff] = field(default_factory=dict)
    """Measured trade-off curves by vantage; empty for trials of one world."""

    @property
    def here(self) -> RunRow:
        """The row of the configured vantage."""
        return self.rows[self.vantage]

    @property
    def attack(self) -> Attack:
        """The attack at the configured vantage, which every run plays."""
        attack = self.here.attack
        if attack is None:
            raise ValueError("the configured vantage has no measurement")
        return attack

    @property
    def accounted(self) -> theory.Accounted:
        """Bounds at the configured vantage, by the configured accountant."""
        limit = self.here.limit
        exact = theory.Accounted(limit.epsilon, limit.rho_beta, limit.exceeded)
        return self.bounds.accounted or exact

    @property
    def spent(self) -> float:
        """Epsilon that privacy.stop-at limits: of everything released, where noise is secret."""
        if self.released is not None:
            return self.released.epsilon
        return self.budget.epsilon[self.vantage]


@cache
def _adapter() -> TypeAdapter[Report]:
    return TypeAdapter(Report)


def encode(report: Report) -> dict[str, Any]:
    """Return a report as report.json has it. Raises ValueError for a number that is NaN."""
    encoded: dict[str, Any] = _adapter().dump_python(report, mode="json", warnings="error")
    return encoded


def decode(values: Mapping[str, Any]) -> Report:
    """Return the report of the values of report.json. Raises ValueError for other types."""
    try:
        # Errors of Python's values share them; each error of JSON has a copy of its object.
        _reader().validate_python(values, strict=False)
        report: Report = _reader().validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        raise ValueError(_first(error)) from None
    return report


FAIL_FAST = ["list", "tuple"]
"""Types of schemas that may end at the first wrong entry; of objects, in newer pydantic only."""
if "fail_fast" in core_schema.DictSchema.__annotations__:
    FAIL_FAST.append("dict")


@cache
def _reader() -> SchemaValidator:
    """Return a reader that ends at the first wrong entry of a list or an object of any keys."""
    schema = _adapter().core_schema
    pending: list[Any] = [schema]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            if part.get("type") in FAIL_FAST:
                part["fail_fast"] = True
            pending += part.values()
        elif isinstance(part, list):
            pending += part
    return SchemaValidator(schema)


def read(directory: RunDirectory) -> Report:
    """Return report.json of a run.

    Raises InputError if it is damaged, or the report of something else, such as a training.
    """
    values = directory.read_json("report.json")
    if (kind := values.get("kind")) is not None:
        raise InputError(
            f"'{directory.path}' has the report of a {kind}, which played no trials; name the "
            "directory of an experiment's run"
        )
    with directory.reading("report.json"):
        return decode(values)


def schema() -> JsonSchemaValue:
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_adapter().json_schema()}


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    key = ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return f"it has no '{key}'"
    if first["type"] == "unexpected_keyword_argument":
        return f"it has '{key}', which no report has"
    return f"its '{key}' is {first['input']!r:.200}"
