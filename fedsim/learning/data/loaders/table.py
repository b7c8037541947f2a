"""Tables of text: rows into columns, columns into features between 0 and 1."""

import csv
import io
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.learning.data.loaders.csv_format import with_point
from fedsim.learning.data.loaders.dataset import (
    PLAIN,
    CsvFormat,
    Dataset,
    Records,
    TargetRange,
    numbered_labels,
)

MISSING = ("", "?", "na", "nan")
"""Texts that mean a missing value, in any case."""

MOST_CATEGORIES = 1000
"""A text column with more values probably holds names or dates, which one-hot cannot describe."""

FEWEST_NAMES = 10
"""A column of fewer rows may differ in every row by chance."""

NUMBER = re.compile(
    r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?|[+-]?(?:inf(?:inity)?|nan)",
    re.IGNORECASE,
)
"""Plain numbers: leading zeros (007) belong to a name, and 1_0 is no number."""

WHOLE = re.compile(r"[+-]?([0-9]+)")

MOST_WHOLE = 2**53
"""Larger whole numbers are not exact in float64."""


def rows(text: str, path: Path, form: CsvFormat = PLAIN) -> list[list[str]]:
    """Return the rows of separated values, stripped and without blank rows.

    Raises InputError if a row is longer or shorter than the first, or a value is too long for a
    table.
    """
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=form.separator,
        skipinitialspace=True,
        strict=True,
    )
    table: list[list[str]] = []
    widest = 0
    try:
        for row in reader:
            values = [value.strip() for value in row]
            if form.decimal == ",":
                values = list(map(with_point, values))
            if values in ([], [""]):
                continue
            if table and len(row) != len(table[0]):
                raise InputError(
                    f"line {reader.line_num} of '{path}' has {len(row)} values separated by "
                    f"{form.separator!r}, but the first has {len(table[0])}; correct that line"
                )
            table.append(values)
            widest = max(widest, *map(len, values))
    except (csv.Error, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"line {reader.line_num} of '{path}' is not values separated by {form.separator!r} "
            f"({error}); correct that line"
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
    Raises InputError for columns with one value only, or with too many: all in one line.
    """
    labels, classes = numbered_labels(typed(columns[label]), path, label, target)
    kept = {name: values for name, values in columns.items() if name != label}
    blocks: list[npt.NDArray[Any]] = []
    attributes: list[str] = []
    column_of: list[int] = []
    categorical: set[str] = set()
    types = {column: typed(text) for column, text in kept.items()}
    used = {column: values for column, values in types.items() if column not in exclude}
    if unfit := unusable(used):
        reasons = "; ".join(f"column '{column}' {reason}" for column, reason in unfit.items())
        leave_out = ",".join([*exclude, *unfit])
        raise InputError(
            f"'{path}' has columns that cannot be features: {reasons}. "
            f'Leave them out with data.exclude = "{leave_out}", or correct their values'
        )
    for position, (column, values) in enumerate(types.items()):
        if values.dtype.kind == "U":
            categorical.add(column)
        if column in exclude:
            continue
        block, names = _features(column, values)
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


def gaps(names: Sequence[str], rows: list[list[str]]) -> dict[str, int]:
    """Return the number of missing values in each column that has some."""
    counts = {
        name: sum(value.lower() in MISSING for value in column)
        for name, column in zip(names, zip(*rows, strict=True), strict=True)
    }
    return {name: count for name, count in counts.items() if count}


def unusable(columns: Mapping[str, npt.NDArray[Any]]) -> dict[str, str]:
    """Return why columns [N] cannot be features, by the name of each such column."""
    reasons = {}
    for name, values in columns.items():
        different = np.unique(values)
        if len(different) == 1:
            reasons[name] = f"has only one value, {different[0]!s}"
        elif values.dtype.kind == "U" and len(different) > MOST_CATEGORIES:
            reasons[name] = (
                f"has {len(different):,} different values, more than {MOST_CATEGORIES:,}, that "
                "are not all plain numbers up to 2^53"
            )
        elif values.dtype.kind != "U" and not np.isfinite(_scaled(values)).all():
            reasons[name] = "has an infinite value, or too large a range"
    return reasons


def is_identifier(name: str, values: Collection[str], numeric: bool) -> bool:
    """Return whether a column differs in every row, and is text or has "id" in its name."""
    words = name.lower().replace("_", " ").replace("-", " ").split()
    unique = len(set(values)) == len(values) > FEWEST_NAMES
    return unique and ("id" in words or not numeric)


def _scaled(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    numbers = values.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray((numbers - numbers.min()) / (numbers.max() - numbers.min()))


def _features(column: str, values: npt.NDArray[Any]) -> tuple[npt.NDArray[np.float32], list[str]]:
    if values.dtype.kind != "U":
        return _scaled(values)[:, None].astype(np.float32), [column]
    categories = np.unique(values)
    hot = (values[:, None] == categories).astype(np.float32)
    return hot, [f"{column}={category}" for category in categories]
