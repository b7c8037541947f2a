"""Tables of text: rows into columns, columns into features between 0 and 1."""

import csv
import io
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.data.dataset import Dataset, Records
from fedsim.data.usable import class_numbers
from fedsim.errors import InputError

MISSING = ("", "?", "na", "nan")
"""What stands for a missing value, in whichever case."""

MOST_CATEGORIES = 1000
"""More are taken for names or dates, which one-hot columns do not tell anything of."""


def rows(text: str, path: Path) -> list[list[str]]:
    """Return the rows of comma-separated text, without blank ones; values are stripped.

    Raises InputError where a row has more or fewer values than the first.
    """
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True, strict=True)
    found: list[list[str]] = []
    try:
        for row in reader:
            if not row:
                continue
            if found and len(row) != len(found[0]):
                raise InputError(
                    f"line {reader.line_num} of '{path}' has {len(row)} values, but the first has "
                    f"{len(found[0])}; mend that line"
                )
            found.append([value.strip() for value in row])
    except csv.Error as error:
        raise InputError(
            f"line {reader.line_num} of '{path}' is not comma-separated values ({error}); "
            "mend that line"
        ) from None
    return found


def complete(table: list[list[str]]) -> list[list[str]]:
    """Return the rows in which no value is missing."""
    return [row for row in table if not any(value.lower() in MISSING for value in row)]


def typed(values: Iterable[str]) -> npt.NDArray[Any]:
    """Return a column [N] as int64 if all its values are such, else as float64, else as text."""
    text = np.asarray(list(values), dtype=np.str_)
    for kind in (np.int64, np.float64):
        try:
            return text.astype(kind)
        except (ValueError, OverflowError):
            continue
    return text


def encode(
    name: str,
    path: Path,
    columns: Mapping[str, npt.NDArray[Any]],
    label: str,
    exclude: Collection[str],
    dropped: int,
) -> Dataset:
    """Return a dataset of the columns [N] by name, one of which is the label.

    A numeric column becomes one feature, from 0 at its least to 1 at its largest value; one of text
    becomes a feature for each value, in order, 1 where the record has it. Raises InputError for a
    column that says nothing, or too much.
    """
    labels, classes = class_numbers(columns[label], path, label)
    kept = {name: values for name, values in columns.items() if name != label}
    blocks: list[npt.NDArray[Any]] = []
    attributes: list[str] = []
    column_of: list[int] = []
    for position, (column, values) in enumerate(kept.items()):
        if column in exclude:
            continue
        block, names = _features(column, values, path)
        blocks.append(block)
        attributes += names
        column_of += [position] * len(names)
    if not blocks:
        raise InputError(f"'{path}' has no columns besides '{label}' that are features; give some")
    return Dataset(
        name,
        Records(np.concatenate(blocks, axis=1), labels),
        None,
        classes,
        "tabular",
        attributes=tuple(attributes),
        columns=kept,
        column_of=np.asarray(column_of, dtype=np.int64),
        categorical=frozenset(name for name, values in kept.items() if values.dtype.kind == "U"),
        dropped=dropped,
    )


def _features(
    column: str, values: npt.NDArray[Any], path: Path
) -> tuple[npt.NDArray[np.float32], list[str]]:
    """Return the features [N, f] of a column, and their names."""
    leave_out = f'leave it out with data.exclude = "{column}"'
    categories = np.unique(values)
    if len(categories) == 1:
        raise InputError(
            f"column '{column}' of '{path}' has one value only, {categories[0]!s}; {leave_out}"
        )
    if values.dtype.kind != "U":
        numbers = values.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = (numbers - numbers.min()) / (numbers.max() - numbers.min())
        if not np.isfinite(scaled).all():
            raise InputError(
                f"column '{column}' of '{path}' has an infinite value, or too large a range; mend "
                f"its values, or {leave_out}"
            )
        return scaled[:, None].astype(np.float32), [column]
    if len(categories) > MOST_CATEGORIES:
        raise InputError(
            f"column '{column}' of '{path}' has {len(categories)} different values that are no "
            f"numbers, more than {MOST_CATEGORIES}; {leave_out}"
        )
    hot = (values[:, None] == categories).astype(np.float32)
    return hot, [f"{column}={category}" for category in categories]
