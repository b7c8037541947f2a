"""A table as a dataset, read by a public schema: a given one, or one that the table proposes."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.configuration.federation import DataConfig
from fedsim.learning.data import files, own_records, schema_proposal, separated
from fedsim.learning.data import schema as schemas
from fedsim.learning.data.columns import Column, NumberColumn, Values
from fedsim.learning.data.dataset import (
    PLAIN,
    Columns,
    CsvFormat,
    Dataset,
    Records,
    TargetRange,
    parsed,
    place,
)
from fedsim.learning.data.schema import Schema

LOG = logging.getLogger("fedsim.records")


def read(source: DataConfig) -> Dataset:
    """Return the dataset of a file of a table, as `proposed`."""
    columns, form = files.read(str(place(source, is_file=True)))
    return proposed(source, columns, form)


def proposed(source: DataConfig, columns: Columns, form: CsvFormat = PLAIN) -> Dataset:
    """Return the dataset of columns of text [N] by name, read by the schema that they propose.

    Labels are classes, unless the source has a target. A warning says what the schema leaves out.
    Raises InputError if no column can be a feature, or the labels are no classes.
    """
    target, where = parsed(source.target), f"'{source.root}'"
    labels = schema_proposal.classes_of(columns.get(source.label, ())) if target is None else target
    text, notes = schema_proposal.of_columns(
        columns, source.label, where, form, separated(source.exclude), labels
    )
    if notes:
        LOG.warning("%s has no schema and was read by a proposed one: %s", where, "; ".join(notes))
    return _of_schema(source.name, schemas.parse(text), columns, where)


@lru_cache(maxsize=4)
def by_schema(text: str, path: str) -> Dataset:
    """Return the dataset of a table, read by a public schema instead of by its records.

    Raises InputError if the file has not the schema's columns, or the schema refuses records.
    """
    schema = schemas.parse(text)
    if not schema.columns:
        return replace(own_records.dataset(text, (path,), ""), name="csv")
    return _of_schema("csv", schema, own_records.columns_of(path, schema), f"'{path}'")


def _of_schema(name: str, schema: Schema, columns: Columns, where: str) -> Dataset:
    found = own_records.accepted(own_records.of_columns(columns, schema, where), where)
    originals: dict[str, npt.NDArray[Any]] = {
        column: np.asarray(values, dtype=np.str_)[found.kept]
        for column, values in columns.items()
        if column != schema.label
    }
    features = dict(zip(schema.features, found.records.features.T, strict=True))
    numbers = {
        column: kind.values(features[column])
        for column, kind in schema.columns.items()
        if isinstance(kind, NumberColumn)
    }
    target = None if schema.target is None else TargetRange(*schema.target)
    classes = max(1, len(schema.classes))
    dataset = of(name, found.records, classes, schema.columns, originals | numbers, target)
    return replace(dataset, keys={column: originals[column] for column in numbers})


def of(
    name: str,
    records: Records,
    classes: int,
    schema: Mapping[str, Column],
    columns: Mapping[str, npt.NDArray[Any]],
    target: TargetRange | None = None,
) -> Dataset:
    """Return the dataset of records [N] and the columns that they come from, [N] by name.

    A column of numbers holds what the schema made of them: clipped, or filled in.
    """
    names = {column: schema[column].features(column) for column in schema}
    place = {column: number for number, column in enumerate(columns)}
    return Dataset(
        name,
        records,
        None,
        classes,
        "tabular",
        attributes=tuple(feature for features in names.values() for feature in features),
        columns=columns,
        column_of=np.repeat([place[column] for column in names], list(map(len, names.values()))),
        categorical=frozenset(each for each in schema if isinstance(schema[each], Values)),
        target=target,
    )
