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
from fedsim.learning.data.loaders.dataset import Dataset, Records, numbered_labels
from fedsim.learning.data.loaders.targets import Target

MISSING = ("", "?", "na", "nan")
"""What stands for a missing value, in whichever case."""

MOST_CATEGORIES = 1000
"""More are taken for names or dates, which one-hot columns do not tell anything of."""

NUMBER = re.compile(
    r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?|[+-]?(?:inf(?:inity)?|nan)",
    re.IGNORECASE,
)
"""What is plainly a number: leading zeros (007) are those of a name, and 1_0 is none."""

WHOLE = re.compile(r"[+-]?([0-9]+)")

MOST_WHOLE = 2**53
"""Beyond it, different whole numbers are the same in float64."""


def rows(text: str, path: Path) -> list[list[str]]:
    """Return the rows of comma-separated text, without blank ones; values are stripped.

    Raises InputError if a row has more or fewer values than the first, or a value is too long for a
    table.
    """
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True, strict=True)
    found: list[list[str]] = []
    widest = 0
    try:
        for row in reader:
            values = [value.strip() for value in row]
            if values in ([], [""]):
                continue
            if found and len(row) != len(found[0]):
                raise InputError(
                    f"line {reader.line_num} of '{path}' has {len(row)} values, but the first has "
                    f"{len(found[0])}; mend that line"
                )
            found.append(values)
            widest = max(widest, *map(len, values))
    except csv.Error as error:
        raise InputError(
            f"line {reader.line_num} of '{path}' is not comma-separated values ({error}); "
            "mend that line"
        ) from None
    # Columns of text are as wide as their widest value.
    if 4 * widest * len(found) > reading.most_unpacked(len(text)):
        raise InputError(
            f"'{path}' has a value of {widest} characters, too long for a table of {len(found)} "
            "rows; shorten it, or leave its column out of the file"
        )
    return found


def columns_of(
    names: Iterable[str], rows: list[list[str]], path: Path
) -> tuple[dict[str, npt.NDArray[Any]], int]:
    """Return the columns of text [N] by name, and how many rows had missing values.

    Those rows are left out. Raises InputError if no row is without.
    """
    whole = [row for row in rows if not any(value.lower() in MISSING for value in row)]
    if not whole:
        raise InputError(f"no row of '{path}' is without missing values; give whole ones")
    values = zip(*whole, strict=True)
    columns = {
        name: np.asarray(column, dtype=np.str_) for name, column in zip(names, values, strict=True)
    }
    return columns, len(rows) - len(whole)


def typed(values: Iterable[str]) -> npt.NDArray[Any]:
    """Return a column [N] as int64 if all its values are such, else as float64, else as text.

    Text where a value is not plainly a number, or is a whole one beyond 2^53: it may be a name, and
    as numbers different names could be one.
    """
    text = np.asarray(list(values), dtype=np.str_)
    different = set(text.tolist())
    whole = [match[1] for value in different if (match := WHOLE.fullmatch(value))]
    # The length first: Python refuses to read thousands of digits.
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
    target: Target | None = None,
) -> Dataset:
    """Return a dataset of columns of text, one of which is the label.

    The dataset's columns are that text, so that a natural key stays what it is. A numeric column
    becomes one feature, from 0 at its least to 1 at its largest value; one of text becomes a
    feature for each value, in order, 1 where the record has it.

    columns: [N] by name.
    Raises InputError if a column says nothing, or too much.
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
        categorical=frozenset(categorical),
        dropped=dropped,
        target=target,
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
            f"column '{column}' of '{path}' has {len(categories)} different values, more than "
            f"{MOST_CATEGORIES}, that are not all plain numbers up to 2^53; {leave_out}"
        )
    hot = (values[:, None] == categories).astype(np.float32)
    return hot, [f"{column}={category}" for category in categories]
