"""The files of one run. They are private to their owner, and each is written atomically.

config.toml      the resolved configuration; `fedsim run` reads it again
events.jsonl     phases and rounds with their times, one JSON object for each
ledger.jsonl     a row for each round and its clients, written before the round leaves
batches/         the findings of each finished batch of trials (.npz), from which a run continues
facts.json       data of the report beside the configuration and the transcript
transcript.npz   world bits, log-odds, sensitivities, noise, for every trial and round; epsilons
report.json, report.html, figures/
lock             held by the process that writes the run
identity         random; differs between runs, even with the same configuration
"""

import fcntl
import json
import os
import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from adversaries.errors import InputError
from fedsim.common import private_files, reading
from fedsim.configuration import Config
from fedsim.configuration import files as configuration_files

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


def whole_events(path: Path, offset: int) -> Iterator[tuple[dict[str, Any], int]]:
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


IDENTITY, MOST_IDENTITY = "identity", 1024

LOOK = 0.2
"""Seconds between two looks at a lock that another process holds."""

SUMMARY = "summary.csv"
"""File of a choice among settings, in its directory. A run has none."""

CARD = "public/model_card.json"

LOCK, TRANSCRIPT = "lock", "transcript.npz"

LAST_FILE = "report.json"
"""The file that a run writes last. A run with this file has finished."""

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class RunDirectory:
    """One run's directory, by its absolute path."""

    path: Path

    @classmethod
    def create(cls, path: Path, config: Config) -> "RunDirectory":
        """Return a run's directory, created if missing. Raises InputError for another run."""
        directory = cls(path.absolute())
        try:
            if holds_run(path, config):
                if directory.config != config.placed_at(str(directory.path)):
                    if directory.finished:
                        raise InputError(
                            f"'{path}' holds a finished run with other limits; name a "
                            "new directory (run.out)"
                        )
                    with directory.lock():
                        text = configuration_files.dump(config.placed_at(""))
                        directory.write_text("config.toml", text)
                return directory
            # World bits and seeds reveal the target, so only the owner may read the directory. If
            # the directory existed before, its files are private.
            private_files.make_directory(directory.path)
            # config.toml makes the directory a run's. A kill before it leaves the path usable.
            directory.write_text("config.toml", configuration_files.dump(config.placed_at("")))
        except OSError as error:
            raise InputError(
                f"cannot write to '{path}': {error.strerror}; name another directory (run.out)"
            ) from None
        return directory

    @classmethod
    def open(cls, path: Path) -> "RunDirectory":
        """Return the directory of an earlier run. Raises InputError if it is not one."""
        if not (path / "config.toml").is_file():
            raise InputError(f"'{path}' is not a run directory: it has no config.toml")
        if (path / SUMMARY).is_file():
            raise InputError(
                f"'{path}' is no run, but a choice among settings; run the chosen one with "
                f"{path / 'config.toml'}"
            )
        return cls(path.absolute())

    @property
    def config(self) -> Config:
        """The resolved configuration of the run, with the directory's current path.

        Raises InputError if its file is damaged.
        """
        return _load(self.path / "config.toml").placed_at(str(self.path))

    @property
    def identity(self) -> str:
        with self.reading(IDENTITY):
            return reading.content(self.path / IDENTITY, MOST_IDENTITY).decode("ascii").strip()

    @contextmanager
    def lock(self, patience: float = 0) -> Iterator[None]:
        """Hold the run's lock, which a killed process releases.

        Raises InputError if another process still holds it after `patience` seconds.
        """
        with os.fdopen(private_files.opened_own(self.path / LOCK), "ab") as file:
            start = time.monotonic()
            while not _taken(file):
                if time.monotonic() - start >= patience:
                    raise InputError(
                        f"another process is running '{self.path}'; wait for its end or stop it, "
                        "or name a new directory (run.out)"
                    )
                time.sleep(LOOK)
            if not self.has(IDENTITY):
                self.write_text(IDENTITY, f"{secrets.token_hex(16)}\n")
            yield

    def write_text(self, name: str, text: str) -> None:
        private_files.write_private(self._place(name), text.encode())

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Write strict JSON atomically. Raises ValueError for NaN or infinity."""
        text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
        self.write_text(name, text + "\n")

    def read_json(self, name: str, needed: Iterable[str] = ()) -> dict[str, Any]:
        """Return a JSON file of this run. Raises InputError if it is missing or damaged."""
        with self.reading(name):
            value = reading.json_object(self.path / name)
            if missing := [key for key in needed if key not in value]:
                raise KeyError(missing[0])
        return value

    @contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """Turn errors of a damaged file within the block into an InputError."""
        with reading.damage(partial(self.damaged, name)):
            try:
                yield
            except FileNotFoundError:
                raise InputError(
                    f"'{self.path}' has no {name}: the run is not finished; continue it with "
                    f"{self.resumed_by}"
                ) from None
            except PermissionError:
                why = f"cannot read {name} in '{self.path}'; make it readable"
                raise InputError(why) from None

    def read_facts(self) -> dict[str, Any]:
        facts = self.read_json("facts.json")
        with self.reading("facts.json"):
            check_facts(RunFacts, facts)
        return facts

    def write_arrays(self, name: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Write named arrays atomically, as .npz. Raises ValueError for Python objects."""
        for key, array in arrays.items():
            if array.dtype.hasobject:
                raise ValueError(f"array '{key}' holds Python objects, which would be pickled")
        with private_files.replacing(self._place(name)) as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]  # allow_pickle's bool

    def read_arrays(self, name: str, only: Collection[str] | None = None) -> Arrays:
        """Return named arrays, `only` some if not None. Raises InputError for damage."""
        with self.reading(name):
            return reading.arrays(self.path / name, only)

    def damaged(self, name: str, why: str = "") -> InputError:
        """Return the error for a damaged file, with the remedy."""
        remedy = f"delete it (and {LAST_FILE}, if there is one) and continue with {self.resumed_by}"
        if name == LAST_FILE:
            remedy = f"delete it, and write it again with fedsim report {self.path}"
        return InputError(
            f"{name} in '{self.path}' is damaged{f' ({why})' if why else ''}; {remedy}"
        )

    def batch_file(self, first_trial: int) -> str:
        return f"batches/{first_trial:06d}.npz"

    def has(self, name: str) -> bool:
        return (self.path / name).is_file()

    @property
    def resumed_by(self) -> str:
        """The command that continues the run."""
        try:
            training = self.config.run.job == "training"
        except InputError:
            training = False
        return f"fedsim {'train' if training else 'run'} {self.path}"

    @property
    def finished(self) -> bool:
        """Whether the run has its last report: of a training, or of all planned trials."""
        if not self.has(LAST_FILE):
            return False
        if self.config.run.job == "training":
            return self.has(CARD)
        try:
            return bool(self.read_json(LAST_FILE)["details"]["trials"] == self.config.trials.count)
        except (KeyError, TypeError):
            raise self.damaged(LAST_FILE) from None

    def log_event(self, **event: Any) -> None:
        line = json.dumps({"time": time.time(), **event}) + "\n"
        with os.fdopen(private_files.opened_own(self.path / "events.jsonl"), "ab") as file:
            file.write(line.encode())

    def events(self, offset: int = 0) -> Iterator[tuple[dict[str, Any], int]]:
        """Yield whole events from a byte offset on, each with the offset behind it."""
        for event, behind in whole_events(self.path / "events.jsonl", offset):
            with self.reading("events.jsonl"):
                check_facts(Event, event)
            yield event, behind

    def events_size(self) -> int:
        """Return the offset behind the last event so far."""
        path = self.path / "events.jsonl"
        return path.stat().st_size if path.exists() else 0

    def _place(self, name: str) -> Path:
        """Return the path of a file to write, after creating its directory. Raises OSError."""
        place = self.path / name
        private_files.make_directory(place.parent)
        return place


def holds_run(path: Path, config: Config) -> bool:
    """Return whether a directory already holds this run. Raises InputError for other files.

    A training may be continued with more `federation.tolerated-dropouts`: a client left for good.
    Any run may be continued with a larger `privacy.stop-at`.
    """
    existing = path.absolute() / "config.toml"
    try:
        if existing.exists():
            old = _load(existing)
            may_grow = [("privacy", "stop_at")]
            if config.run.job == "training":
                may_grow.append(("federation", "tolerated_dropouts"))
            for table, name in may_grow:
                before, now = (getattr(getattr(each, table), name) for each in (old, config))
                grown = getattr(old, table).model_copy(update={name: max(before, now)})
                old = old.model_copy(update={table: grown})
            if old == config.placed_at(""):
                return True
            raise InputError(
                f"'{path}' holds a run with another configuration; name a new directory (run.out)"
            )
        if path.exists() and (not path.is_dir() or private_files.any_whole(path)):
            raise InputError(
                f"'{path}' exists and holds no fedsim run; name a new directory (run.out)"
            )
    except OSError as error:
        raise InputError(
            f"cannot read '{path}': {error.strerror}; name another directory (run.out)"
        ) from None
    return False


def _taken(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _load(path: Path) -> Config:
    try:
        return configuration_files.load(path)
    except InputError as error:
        raise InputError(
            f"cannot read the configuration of the run in '{path.parent}': {error}; restore "
            "config.toml from a copy, or name a new directory for another run"
        ) from None
