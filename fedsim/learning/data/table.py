"""A public table as a dataset: its own values are the schema by which it becomes features."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.learning.data import csv_file
from fedsim.learning.data.columns import LARGEST, Column, NumberColumn, Values, is_missing
from fedsim.learning.data.dataset import PLAIN, CsvFormat, Dataset, Records, Source, numbered_labels

MOST_CATEGORIES = 1000
"""A text column with more values probably holds names or dates, which one-hot cannot describe."""


class _Numbers(NumberColumn):
    """A column as in the core paper, whose tables are normalised: features from 0 to 1."""

    lowest = 0.0


NUMBER = re.compile(
    r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?|[+-]?(?:inf(?:inity)?|nan)",
    re.IGNORECASE,
)
"""Plain numbers: leading zeros (007) belong to a name, and 1_0 is no number."""

WHOLE = re.compile(r"[+-]?([0-9]+)")

MOST_WHOLE = 2**53
"""Larger whole numbers are not exact in float64."""


def read(source: Source) -> Dataset:
    """Return the dataset of a file of separated values, whose first line names the columns.

    Raises InputError if the file is no table with such columns.
    """
    path = source.file
    columns, form = csv_file.read(path)
    if source.label not in columns:
        raise InputError(
            f"'{path}' has no column '{source.label}': set data.label to one of its first line "
            f"({', '.join(columns)}), or give the file a header as its first line"
        )
    for column in source.exclude:
        if column not in columns or column == source.label:
            raise InputError(
                f"data.exclude names '{column}', which is not a feature of '{path}'; its columns "
                f"are {', '.join(columns)}"
            )
    return encode(source, path, columns, form)


def encode(
    source: Source, path: Path, columns: Mapping[str, Sequence[str]], form: CsvFormat = PLAIN
) -> Dataset:
    """Return the dataset of columns of text [N] by name, one of which is the label.

    A numeric column becomes one feature from 0 to 1, a text column one for each value, in order.
    Rows with a missing value are left out and counted.
    Raises InputError for columns with one value only, or with too many: all in one line.
    """
    missing = {name: is_missing(values) for name, values in columns.items()}
    whole = ~np.logical_or.reduce(list(missing.values()))
    if not whole.any():
        raise InputError(f"every row of '{path}' has a missing value; give complete rows")
    kept = {name: np.asarray(of, dtype=np.str_)[whole] for name, of in columns.items()}
    label = source.label
    labels, classes = numbered_labels(typed(kept.pop(label)), path, label, source.target)
    used = [name for name in kept if name not in source.exclude]
    if not used:
        raise InputError(f"'{path}' has no feature columns besides '{label}'; give some")
    schema = _derived({name: kept[name] for name in used}, path, source.exclude)
    blocks = [column.read(name, kept[name].tolist())[0] for name, column in schema.items()]
    position = {name: place for place, name in enumerate(kept)}
    text = (name for name in kept if name not in schema and typed(kept[name]).dtype.kind == "U")
    return Dataset(
        source.name,
        Records(np.concatenate(blocks, axis=1), labels),
        None,
        classes,
        "tabular",
        attributes=tuple(each for name in schema for each in schema[name].features(name)),
        columns=kept,
        column_of=np.repeat([position[name] for name in schema], [b.shape[1] for b in blocks]),
        categorical=frozenset([*(n for n in schema if isinstance(schema[n], Values)), *text]),
        dropped=int((~whole).sum()),
        target=source.target,
        form=form,
        gaps={name: int(rows.sum()) for name, rows in missing.items() if rows.any()},
    )


def typed(values: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return a column [N] as int64 up to 2^53, as float64, or as text."""
    text = np.asarray(values, dtype=np.str_)
    different = set(text.tolist())
    whole = [match[1] for value in different if (match := WHOLE.fullmatch(value))]
    # Check the length first: Python refuses to read thousands of digits.
    too_long = any(len(d) > len(str(MOST_WHOLE)) or int(d) > MOST_WHOLE for d in whole)
    if too_long or not all(NUMBER.fullmatch(value) for value in different):
        return text
    return text.astype(np.int64 if len(whole) == len(different) else np.float64)


def _derived(
    columns: Mapping[str, npt.NDArray[np.str_]], path: Path, excluded: Sequence[str]
) -> dict[str, Column]:
    """Return the schema of columns [N] without missing values, by name."""
    schema: dict[str, Column] = {}
    unfit: dict[str, str] = {}
    for name, text in columns.items():
        values = typed(text)
        different = np.unique(values)
        if len(different) == 1:
            unfit[name] = f"has only one value, {different[0]!s}"
        elif values.dtype.kind != "U" and np.abs(different).max() <= LARGEST:
            schema[name] = _Numbers(range=[float(different[0]), float(different[-1])])
        elif values.dtype.kind != "U":
            unfit[name] = f"has an infinite value, or a number beyond {LARGEST:g}"
        elif len(different) <= MOST_CATEGORIES:
            schema[name] = Values(values=different.tolist())
        else:
            unfit[name] = (
                f"has {len(different):,} different values, more than {MOST_CATEGORIES:,}, that "
                "are not all plain numbers up to 2^53"
            )
    if unfit:
        reasons = "; ".join(f"column '{column}' {reason}" for column, reason in unfit.items())
        raise InputError(
            f"'{path}' has columns that cannot be features: {reasons}. Leave them out with "
            f'data.exclude = "{",".join([*excluded, *unfit])}", or correct their values'
        )
    return schema
