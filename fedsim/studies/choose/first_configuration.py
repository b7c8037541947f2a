"""The first configuration that `fedsim init` writes: a commented file, from a few answers."""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_DOWN, Decimal
from pathlib import Path

from adversaries.errors import InputError
from fedsim import configuration
from fedsim.configuration import Scalar, documentation
from fedsim.configuration.federation import OWN
from fedsim.configuration.jobs import overlaid
from fedsim.configuration.needs import as_toml
from fedsim.learning.data import BUNDLED, Dataset, csv_file, distribution
from fedsim.learning.data import schema as schemas
from fedsim.privacy import delta
from fedsim.privacy.mechanism import Neighbouring
from fedsim.privacy.trust import Trust

MOST_HELD_OUT = 4000
"""Most held-out records. So many measure the accuracy within two points at 99 %."""

WIDTH = 98
"""Width of a comment, in characters."""


@dataclass(frozen=True)
class InitAnswers:
    """The user's answers.

    Attributes:
        data: name of a bundled data set, or path of the user's data.
        clients: number of clients, at least 2.
        max_belief: limit on the adversary's belief, in (0.5, 1).
        local_steps: noisy local steps of a client in each round; 1 unless trust is local.
        rehearse: number of records of the trials, to save time; None for all records.
    """

    data: str = "digits"
    clients: int = 3
    trust: str = Trust.CENTRAL.value
    max_belief: float = 0.9
    rounds: int = 30
    local_steps: int = 1
    rehearse: int | None = None


def recognised(data: str) -> tuple[str, str]:
    """Return data.name and data.root for a data set's name or path.

    Raises:
        InputError: the data do not exist, or their format is unknown.
    """
    path = Path(data).expanduser()
    if data in BUNDLED and not path.exists():
        return data, ""
    if not path.exists():
        raise InputError(
            f"'{data}' does not exist; give the path of a .csv file, an .npz file or a folder, or "
            f"{' or '.join(BUNDLED)}"
        )
    root = str(path.absolute())
    if not path.is_dir():
        name = {".csv": "csv", ".tsv": "csv", ".npz": "npz"}.get(path.suffix.lower())
        if name is None:
            raise InputError(f"'{data}' is neither .csv nor .npz; fedsim data lists the formats")
        return name, root
    if any(path.glob("*-ubyte*")):
        return "idx", root
    if (path / "dataset_info.json").exists() or any(path.rglob("*.parquet")):
        return "hf", root
    return "images", root


def columns(data: str, label: str) -> list[str]:
    """Return the columns among which the user must name the label; [] if that is clear.

    It is unclear in a CSV whose first line has no `label`. The result then has the fields of the
    first line, and the names c0, c1, ... that apply if this line is not a header.
    """
    name, root = recognised(data)
    if name != "csv":
        return []
    first = csv_file.read(Path(root))[0][0]
    numbered = [f"c{number}" for number in range(len(first))]
    return [] if label in first + numbered else first + numbered


def has_header(data: str, label: str) -> bool:
    """Return whether the first line of a CSV file names the column of the labels."""
    return label in csv_file.read(Path(recognised(data)[1]))[0][0]


def with_schema(overrides: Mapping[str, Scalar], schema: str) -> dict[str, Scalar]:
    """Return overrides with the text of a table's schema, and the task that its label needs."""
    task = {"model.task": "regression"} if schemas.parse(schema).target else {}
    label = {key: value for key, value in overrides.items() if key != "data.label"}
    return {"data.public-schema": schema, **task, **label}


def values(answers: InitAnswers, also: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return the values of the configuration, by dotted key.

    Args:
        also: values by dotted key that replace the usual ones.

    Raises:
        InputError: an answer is impossible, or the data cannot be read.
    """
    if not 0.5 < answers.max_belief < 1:
        raise InputError(
            f"the belief is {answers.max_belief:g}; give a number above 0.5 (a guess) and below 1 "
            "(certainty), such as 0.9"
        )
    name, root = recognised(answers.data)
    values: dict[str, Scalar] = {"data.name": name}
    if root:
        values["data.root"] = root
    values |= _sizes(answers.data, values | dict(also))
    clipping_norm = float(also.get("training.clipping-norm", 1.0))
    values |= {
        "federation.clients": answers.clients,
        "federation.trust": answers.trust,
        "model.name": _model(values | dict(also)),
        "training.rounds": answers.rounds,
        **({"training.local-steps": answers.local_steps} if answers.local_steps > 1 else {}),
        "training.clipping-norm": clipping_norm,
        "privacy.rho-beta": answers.max_belief,
        "trials.count": 400,
    }
    values = overlaid(values, also)
    config = configuration.from_run_config(values)
    # Refuses too few records for the clients.
    distribution.held(config.data, config.federation, config.model.weights)
    # Two digits, rounded down: delta may not exceed that of the rule.
    exact = Decimal(repr(config.privacy.delta))
    rounded = exact.quantize(Decimal(1).scaleb(exact.adjusted() - 1), rounding=ROUND_DOWN)
    values.setdefault("privacy.delta", float(rounded))
    if answers.rehearse is not None:
        records = config.data.records
        if not answers.clients <= answers.rehearse < records:
            raise InputError(
                f"--rehearse is {answers.rehearse}; give a number below the {records} records and "
                f"at least the {answers.clients} clients"
            )
        # Delta, rounds and sampling rate stay those of all records, and so does epsilon.
        values["data.records"] = answers.rehearse
    return values


def _model(values: Mapping[str, Scalar]) -> str:
    """Return the model to begin with. On tables, noise costs a linear model least."""
    config = configuration.from_run_config(values)
    dataset = distribution.dataset(config.data, config.model.weights)
    return "linear" if dataset.kind == "tabular" else "mlp"


def rehearsal(values: Mapping[str, Scalar], records: int) -> str:
    """Return what a rehearsal on fewer records shows, and what it does not.

    Args:
        values: by dotted key, with the rehearsal's number of records.
        records: number of all records.
    """
    few = int(values["data.records"])
    return (
        f"A rehearsal on {few} of {records} records. The noise multiplier, epsilon, delta = "
        f"{values['privacy.delta']:g} and the bounds are those of a training on all {records}. By "
        f"the same rule, a training on {few} alone would have delta = {delta.of_records(few):.2g}. "
        f"Its models are less accurate than with all records, since the noise is divided by {few} "
        f"instead of {records}."
    )


def text(values: Mapping[str, Scalar], path: Path, note: str = "") -> str:
    """Return the text of the file, in which each key has its meaning above it."""
    lines = [
        f"# How identifiable is one person in these data? Run it: fedsim run {path}",
        "# Every other key, with its default: fedsim config",
    ]
    lines += textwrap.wrap(note, WIDTH, initial_indent="# ", subsequent_indent="# ")
    keys = [key for key in documentation.every_key() if key in values]
    for table in configuration.Config.model_fields:
        own = [key for key in keys if key.startswith(f"{table}.")]
        if own:
            lines += ["", f"[{table}]"]
        for key in own:
            name = key.partition(".")[2]
            comment = f"{name}: {documentation.key(key).meaning}"
            lines += textwrap.wrap(comment, WIDTH, initial_indent="# ", subsequent_indent="# ")
            lines.append(f"{name} = {as_toml(values[key])}")
    return "\n".join(lines) + "\n"


def _sizes(data: str, values: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return the numbers of records of D and held out, taken from `values` or chosen to fit.

    By default the test records or a fifth of all are held out, at most `MOST_HELD_OUT`. The pool
    gets a tenth if neighbours replace a record, else nothing. D gets the rest. Raises InputError.
    """
    config = configuration.from_run_config(values)
    dataset = distribution.dataset(config.data, config.model.weights)
    available, pool = len(dataset.train), config.data.pool
    records, held_out = config.data.records, config.data.held_out
    if config.privacy.neighbouring is Neighbouring.REPLACE and "data.pool" not in values:
        pool = max(1, available // 10)
    if "data.held-out" not in values:
        left = available - pool - (records if "data.records" in values else 0)
        # At least one; if D takes all records, that is one too many and refused below.
        most = max(1, min(available // 5, left)) if dataset.test is None else len(dataset.test)
        held_out = min(MOST_HELD_OUT, most)
    if "data.records" not in values:
        records = max(0, available - pool - (held_out if dataset.test is None else 0))
    if config.data.name != OWN:  # there, clients hold records that this process does not see
        _check_sizes(data, dataset, records, held_out, pool)
    return {"data.records": records, "data.held-out": held_out}


def _check_sizes(data: str, dataset: Dataset, records: int, held_out: int, pool: int) -> None:
    available = len(dataset.train)
    aside = held_out if dataset.test is None else 0
    few = records < 2 or held_out < 1 or records + aside + pool > available
    if few or (dataset.test is not None and held_out > len(dataset.test)):
        tests = "" if dataset.test is None else f" and {len(dataset.test)} test records"
        raise InputError(
            f"'{data}' has {available} records{tests}, too few for data.records = {records} (2 or "
            f"more), data.held-out = {held_out} and data.pool = {pool}; lower one, as KEY=VALUE"
        )
