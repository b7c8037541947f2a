"""The first configuration that `fedsim init` writes: a commented file."""

import textwrap
from collections.abc import Mapping
from decimal import ROUND_DOWN, Decimal
from pathlib import Path

from adversaries.errors import InputError
from fedsim import configuration
from fedsim.configuration import Scalar, documentation
from fedsim.configuration.federation import OWN, TABLES
from fedsim.configuration.jobs import overlaid
from fedsim.configuration.needs import as_toml
from fedsim.learning.data import BUNDLED, Dataset, distribution
from fedsim.learning.data import schema as schemas
from fedsim.privacy.mechanism import Neighbouring

MOST_HELD_OUT = 4000
"""Most held-out records. So many measure the accuracy within two points at 99 %."""

WIDTH = 98
"""Width of a comment, in characters."""


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
            f"'{data}' does not exist; give the path of a table or a folder, or "
            f"{' or '.join(BUNDLED)}"
        )
    root = str(path.absolute())
    if not path.is_dir():
        if path.suffix not in TABLES:
            raise InputError(f"'{data}' is no table; give a file that ends in {', '.join(TABLES)}")
        return "npz" if path.suffix == ".npz" else "csv", root
    if any(path.glob("*-ubyte*")):
        return "idx", root
    if (path / "dataset_info.json").exists() or any(path.rglob("*.parquet")):
        return "hf", root
    return "images", root


def with_schema(overrides: Mapping[str, Scalar], schema: str) -> dict[str, Scalar]:
    """Return overrides with the text of a table's schema, and the task that its label needs."""
    task = {"model.task": "regression"} if schemas.parse(schema).target else {}
    label = {key: value for key, value in overrides.items() if key != "data.label"}
    return {"data.public-schema": schema, **task, **label}


def values(data: str, also: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return the values of the configuration, by dotted key.

    Args:
        data: name of a bundled data set, or path of the user's data.
        also: values by dotted key that replace the usual ones.

    Raises:
        InputError: a value is impossible, or the data cannot be read.
    """
    name, root = recognised(data)
    values: dict[str, Scalar] = {"data.name": name}
    if root:
        values["data.root"] = root
    values |= _sizes(data, values | dict(also))
    values |= {
        "model.name": _model(values | dict(also)),
        "training.clipping-norm": 1.0,
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
    return values


def _model(values: Mapping[str, Scalar]) -> str:
    """Return the model to begin with. On tables, noise costs a linear model least."""
    config = configuration.from_run_config(values)
    dataset = distribution.dataset(config.data, config.model.weights)
    return "linear" if dataset.kind == "tabular" else "mlp"


def text(values: Mapping[str, Scalar], path: Path) -> str:
    """Return the text of the file, in which each key has its meaning above it."""
    lines = [
        f"# How identifiable is one person in these data? Run it: fedsim run {path}",
        "# Every other key, with its default: fedsim config",
    ]
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
