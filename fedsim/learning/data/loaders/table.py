"""Tables of text: rows into columns, columns into features between 0 and 1."""

import csv
import io
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.learning.data.loaders.dataset import Dataset, Records, TargetRange, numbered_labels

MISSING = ("", "?", "na", "nan")
"""Texts that mean a missing value, in any case."""

MOST_CATEGORIES = 1000
"""A text column with more values probably holds names or dates, which one-hot cannot describe."""

NUMBER = re.compile(
    r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?|[+-]?(?:inf(?:inity)?|nan)",
    re.IGNORECASE,
)
"""Plain numbers: leading zeros (007) belong to a name, and 1_0 is no number."""

WHOLE = re.compile(r"[+-]?([0-9]+)")

MOST_WHOLE = 2**53
"""Larger whole numbers are not exact in float64."""


def rows(text: str, path: Path) -> list[list[str]]:
    """Return the rows of comma-separated text, stripped and without blank rows.

    Raises InputError if a row is longer or shorter than the first, or a value is too long for a
    table.
    """
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True, strict=True)
    table: list[list[str]] = []
    widest = 0
    try:
        for row in reader:
            values = [value.strip() for value in row]
            if values in ([], [""]):
                continue
            if table and len(row) != len(table[0]):
                raise InputError(
                    f"line {reader.line_num} of '{path}' has {len(row)} values, but the first has "
                    f"{len(table[0])}; correct that line"
                )
            table.append(values)
            widest = max(widest, *map(len, values))
    except csv.Error as error:
        raise InputError(
            f"line {reader.line_num} of '{path}' is not comma-separated values ({error}); "
            "correct that line"
        ) from None
    # NumPy stores a column of text with the width of its widest value.
    if 4 * widest * len(table) > reading.most_unpacked(len(text)):
        raise InputError(
            f"'{path}' has a value of {widest} characters, too long for a table of {len(table)} "
            "rows; shorten it, or leave its column out of the file"
        )
    return table


def columns_of(
    names: Iterable[str], rows: list[list[str]], path: Path
) -> tuple[dict[str, npt.NDArray[Any]], int]:
    """Return the columns of text [N] by name, and the number of rows with missing values.

    Those rows are left out. Raises InputError if every row has one.
    """
    whole = [row for row in rows if not any(value.lower() in MISSING for value in row)]
    if not whole:
        raise InputError(f"every row of '{path}' has a missing value; give complete rows")
    values = zip(*whole, strict=True)
    columns = {
        name: np.asarray(column, dtype=np.str_) for name, column in zip(names, values, strict=True)
    }
    return columns, len(rows) - len(whole)


def typed(values: Iterable[str]) -> npt.NDArray[Any]:
    """Return a column [N] as int64 up to 2^53, as float64, or as text."""
    text = np.asarray(list(values), dtype=np.str_)
    different = set(text.tolist())
    whole = [match[1] for value in different if (match := WHOLE.fullmatch(value))]
    # Check the length first: Python refuses to read thousands of digits.
    too_long = any(len(d) > len(str(MOST_WHOLE)) or int(d) > MOST_WHOLE for d in whole)
    if too_long or not all(NUMBER.fullmatch(value) for value in different):
        return text
    return text.astype(np.int64 if len(whole) == len(different) else np.float64)


def encode(
    name: str,
    path: Path,
    columns: Mapping[str, npt.NDArray[Any]],
    label: str,
    exclude: Collection[str],
    dropped: int,
    target: TargetRange | None = None,
) -> Dataset:
    """Return the dataset of columns of text [N] by name, one of which is the label.

    A numeric column becomes one feature from 0 to 1, a text column one for each value, in order.
    Raises InputError for a column with one value only, or with too many.
    """
    labels, classes = numbered_labels(typed(columns[label]), path, label, target)
    kept = {name: values for name, values in columns.items() if name != label}
    blocks: list[npt.NDArray[Any]] = []
    attributes: list[str] = []
    column_of: list[int] = []
    categorical: set[str] = set()
    for position, (column, text) in enumerate(kept.items()):
        values = typed(text)
        if values.dtype.kind == "U":
            categorical.add(column)
        if column in exclude:
            continue
        block, names = _features(column, values, path)
        blocks.append(block)
        attributes += names
        column_of += [position] * len(names)
    if not blocks:
        raise InputError(f"'{path}' has no feature columns besides '{label}'; give some")
    return Dataset(
        name,
        Records(np.concatenate(blocks, axis=1), labels),
        None,
        classes,
        "tabular",
        attributes=tuple(attributes),
        columns=kept,
        column_of=np.asarray(column_of, dtype=np.int64),
        categorical=frozenset(categorical),
        dropped=dropped,
        target=target,
    )


def _features(
    column: str, values: npt.NDArray[Any], path: Path
) -> tuple[npt.NDArray[np.float32], list[str]]:
    leave_out = f'leave it out with data.exclude = "{column}"'
    categories = np.unique(values)
    if len(categories) == 1:
        raise InputError(
            f"column '{column}' of '{path}' has only one value, {categories[0]!s}; {leave_out}"
        )
    if values.dtype.kind != "U":
        numbers = values.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = (numbers - numbers.min()) / (numbers.max() - numbers.min())
        if not np.isfinite(scaled).all():
            raise InputError(
                f"column '{column}' of '{path}' has an infinite value, or too large a range; "
                f"correct its values, or {leave_out}"
            )
        return scaled[:, None].astype(np.float32), [column]
    if len(categories) > MOST_CATEGORIES:
        raise InputError(
            f"column '{column}' of '{path}' has {len(categories)} different values, more than "
            f"{MOST_CATEGORIES}, that are not all plain numbers up to 2^53; {leave_out}"
        )
    hot = (values[:, None] == categories).astype(np.float32)
    return hot, [f"{column}={category}" for category in categories]
