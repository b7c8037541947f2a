"""The schemas of a run's JSON files: facts.json and events.jsonl. Other keys are ignored."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedsim.common import reading

Number = Annotated[float, Field(allow_inf_nan=False)]
Length = Annotated[float, Field(allow_inf_nan=False, ge=0)]
Count = Annotated[int, Field(ge=0)]


class FactsPart(BaseModel):
    model_config = ConfigDict(strict=True)


class ChosenChallenge(FactsPart):
    record: Count | None
    replacement: Count | None
    client: Count
    adversary: Count
    measure: str
    distance: Number | None
    kind: str
    label: Count | None


class AttributeFacts(FactsPart):
    name: str
    value: str
    other: str
    share: Annotated[float, Field(ge=0, le=1)]


class TargetFacts(FactsPart):
    """Part of facts.json: a target record of public data, from `record_display.shown`."""

    label: Count
    pixels: list[list[Count]] | list[list[list[Count]]] | None = None
    attributes: list[AttributeFacts] | None = None


class TimingFacts(FactsPart):
    """Part of facts.json, in seconds."""

    federation: Length
    total: Length


class RunFacts(FactsPart):
    """facts.json: data of the report beside the configuration and the transcript."""

    created: str
    runtime: str
    device: str
    versions: dict[str, str]
    challenge: ChosenChallenge
    client_sizes: list[Count]
    mean_label_skew: Number | None
    dataset: str
    held_out: Count
    majority: Annotated[float, Field(ge=0, le=1)]
    baseline_loss: Length | None = None
    of_class: list[Count] = []
    target: TargetFacts | None = None
    data_sha256: str = ""
    parameters: Count
    frozen_parameters: Count
    gradient_fallbacks: dict[str, str]
    precision: str
    noise_multiplier: Length
    timing: TimingFacts
    planned_trials: Count
    batches: Count


class Event(FactsPart):
    """A line of events.jsonl. Its keys tell its kind."""

    time: Number
    phase: str = ""
    round: Count = 0
    rounds: Annotated[int, Field(ge=1)] = 1
    trials: Annotated[list[Count], Field(min_length=2, max_length=2)] = [0, 0]
    accuracy: Number | None = None
    majority: Number | None = None
    baseline_loss: Number | None = None
    task: str = "classification"
    loss: float | None = None  # NaN of a model that diverged
    of_class: list[Count] = []
    balanced_accuracy: Number | None = None
    area_under_curve: Number | None = None
    recalls: list[Number | None] = []
    precisions: list[Number | None] = []
    epsilon: Number | None = None
    advantage: Number | None = None
    advantage_interval: Annotated[list[Number], Field(min_length=2, max_length=2)] = [0, 0]
    belief: Number | None = None
    busy: list[Count] = []
    seconds: Number = 0.0


def check_facts(schema: type[FactsPart], value: Mapping[str, Any]) -> None:
    """Raise ValueError for the first key of a JSON object that is missing or has another type."""
    try:
        schema.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        if first["type"] == "missing":
            raise ValueError(f"it has no '{key}'") from None
        raise ValueError(f"its '{key}' is {first['input']!r}") from None


def events(path: Path, offset: int) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the whole lines of events.jsonl from a byte offset on, with the offset behind each."""
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            try:
                event = json.loads(line)  # accepts NaN, the loss of a diverged model
            except reading.DAMAGE:  # torn by a kill, and glued to the event after it
                continue
            yield event, offset
