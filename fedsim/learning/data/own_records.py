"""A client's own records: read on its machine, and turned into features by the public schema."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries import registry
from adversaries.errors import InputError
from fedsim.learning.data import files
from fedsim.learning.data import schema as schemas
from fedsim.learning.data.columns import Mask, Problem
from fedsim.learning.data.dataset import Columns, Dataset, Records, TargetRange
from fedsim.learning.data.schema import Schema

LOG = logging.getLogger("fedsim.records")


@dataclass(frozen=True, eq=False)
class Inspection:
    """A client's records after the schema was applied.

    Attributes:
        kept: bool [N], which of the given records are kept.
    """

    records: Records
    problems: tuple[Problem, ...]
    kept: Mask

    @property
    def refused(self) -> tuple[Problem, ...]:
        """The problems that the client's owner has to mend."""
        return tuple(each for each in self.problems if each.refuses)

    @property
    def summary(self) -> str:
        kept, total = len(self.records), len(self.kept)
        sentence = f"{kept:,} records"
        if kept < total:
            reasons = "; ".join(str(each) for each in self.problems if each.drop)
            sentence = f"{kept:,} of {total:,} records; left out: {reasons}"
        changed = "; ".join(each.in_short for each in self.problems if each.changed)
        return f"{sentence}; used with another value: {changed}" if changed else sentence


def records(path: str, schema: Schema, labelled: bool = True, directory: str = "") -> Records:
    """Return the records of a file, a folder or a function, as features by the schema.

    labelled: whether records need labels; if not, labels are 0, and no record may be left out.
    directory: of texts, with their tokenizer.
    Raises InputError without records, or if the schema refuses records: all problems in one line.
    """
    inspection = accepted(inspect(path, schema, labelled, directory), f"'{path}'", labelled)
    if not len(inspection.records.labels):
        problems = "; ".join(map(str, inspection.problems))
        left_out = f" that the schema keeps ({problems})" if len(inspection.kept) else ""
        raise InputError(f"'{path}' has no records{left_out}; give some")
    return inspection.records


def accepted(inspection: Inspection, where: str, labelled: bool = True) -> Inspection:
    """Return an inspection unchanged, with a warning of values that the schema changed.

    Raises InputError if the schema refuses records: all problems in one line.
    """
    wrong = inspection.refused
    if not labelled:
        wrong = tuple(each for each in inspection.problems if not each.changed)
    if wrong:
        raise InputError(
            f"{where} has records that the schema refuses: {'; '.join(map(str, wrong))}; "
            "correct them, or agree on a schema that says how to treat them (missing, other, "
            "outside, unlabelled; docs/how-to/own-records.md)"
        )
    if inspection.problems:
        LOG.warning("%s: %s", where, inspection.summary)
    return inspection


def inspect(path: str, schema: Schema, labelled: bool = True, directory: str = "") -> Inspection:
    """Return the records of a file, a folder or a function, and all their problems.

    labelled: whether records need labels; if not, labels are 0.
    directory: of texts, with their tokenizer.
    Raises InputError if the records cannot be read, or lack columns or labels.
    """
    where = f"'{path}'"
    if schema.image is None:
        return of_columns(columns_of(path, schema), schema, where, labelled, directory)
    images, labels = _pictures(path, schema.image.shape)
    return _inspected(schema.pixels(images, where), [], labels, schema, where, labelled)


def of_columns(
    columns: Columns, schema: Schema, where: str, labelled: bool = True, directory: str = ""
) -> Inspection:
    """Return `inspect` of columns as text, [N] by name."""
    labels = columns.get(schema.label)
    if schema.text is None:
        return _inspected(*schema.table(columns, where), labels, schema, where, labelled)
    from fedsim.learning.data import tokens  # noqa: PLC0415  (for texts alone)

    features = tokens.numbers(schema.texts(columns, where), schema.text.length, directory)
    return _inspected(features, [], labels, schema, where, labelled)


def _inspected(
    features: npt.NDArray[Any],
    problems: list[Problem],
    raw_labels: Sequence[str] | None,
    schema: Schema,
    where: str,
    labelled: bool,
) -> Inspection:
    labels = np.zeros(len(features), dtype=np.int64)
    if labelled and len(features) and schema.labelled:
        name = schema.label if schema.image is None else "labels"
        if raw_labels is None or len(raw_labels) != len(features):
            many = "no" if raw_labels is None else f"{len(features)} records and {len(raw_labels)}"
            raise InputError(f"{where} has {many} labels ('{name}'); give each record one")
        labels, unlabelled = schema.numbers(raw_labels, name)
        problems = [*problems, *unlabelled]
    kept = np.ones(len(features), dtype=bool)
    for problem in problems:
        kept &= ~problem.rows if problem.drop else True
    return Inspection(Records(features[kept], labels[kept]), tuple(problems), kept)


def dataset(text: str, paths: tuple[str, ...], public: str, directory: str = "") -> Dataset:
    """Return the records of some clients followed by the public ones, "" for none.

    A client may have no records: it answers as any other, so that one record more tells nothing.
    """
    schema = schemas.parse(text)
    parts = [_cached(path, text, directory) for path in (*paths, public) if path]
    if public and not len(parts[-1].labels):
        records(public, schema, directory=directory)  # which says what is missing
    empty = Records(np.zeros((0, *schema.shape), dtype=np.float32), np.zeros(0, dtype=np.int64))
    joined = Records(
        np.concatenate([empty.features, *(part.features for part in parts)]),
        np.concatenate([empty.labels, *(part.labels for part in parts)]),
    )
    return Dataset(
        "own",
        joined,
        None,
        max(1, len(schema.classes)),
        "tabular" if schema.image is None else "image",
        attributes=schema.features,
        target=None if schema.target is None else TargetRange(*schema.target),
    )


def count(text: str, path: str, directory: str = "") -> int:
    """Return the number of a client's records, which must not leave the client."""
    return len(_cached(path, text, directory))


@lru_cache(maxsize=64)
def _cached(path: str, text: str, directory: str) -> Records:
    # A client's process is called once for each message.
    schema = schemas.parse(text)
    return accepted(inspect(path, schema, directory=directory), f"'{path}'").records


def columns_of(path: str, schema: Schema) -> Columns:
    """Return the columns of a file, or a function, as text, [N] by name; else InputError."""
    if registry.is_code(path):
        return files.as_columns(_called(path))
    if Path(path).expanduser().is_dir():
        raise InputError(f"'{path}' is a folder, but the schema's records are a table: give a file")
    return files.read(path, schema.file.form)[0]


def _pictures(path: str, shape: Sequence[int]) -> tuple[npt.NDArray[Any], Sequence[str] | None]:
    """Return pictures as numbers [N, C, H, W], and their labels as text, [N]."""
    from fedsim.learning.data import arrays  # noqa: PLC0415  (pictures only)

    place = Path(path).expanduser()
    if place.is_dir():
        from fedsim.learning.data import pictures  # noqa: PLC0415  (a format's alone)

        return pictures.folder(place, 0, shape[1:])[:2]
    if not registry.is_code(path) and not (place.is_file() and place.suffix == ".npz"):
        raise InputError(
            f"there are no pictures at '{path}'; give an .npz file, or a folder with a subfolder "
            "for each class"
        )
    given = _called(path) if registry.is_code(path) else arrays.arrays(place)
    images, labels = given.get(arrays.FEATURES), given.get(arrays.LABELS)
    if images is None or images.dtype.kind not in "buif" or images.ndim not in (3, 4):
        raise InputError(
            f"'{path}' has no array '{arrays.FEATURES}' of numbers [N, H, W], [N, C, H, W] or "
            f"[N, H, W, C]; save pictures with numpy.savez(file, {arrays.FEATURES}=..., "
            f"{arrays.LABELS}=...)"
        )
    named = None if labels is None else files.as_text(arrays.numbered(labels).tolist())
    return arrays.channels_first(images), named


def _called(path: str) -> Mapping[str, npt.NDArray[Any]]:
    """Return the arrays of a client's own function."""
    returned: Mapping[str, Any] = registry.lookup({}, path, "data-path")()
    return {name: np.asarray(array) for name, array in returned.items()}
