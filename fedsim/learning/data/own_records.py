"""A client's own records: read on its machine, and turned into features by the public schema."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries import registry
from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.learning.data import schema as schemas
from fedsim.learning.data.columns import Problem
from fedsim.learning.data.loaders import originals
from fedsim.learning.data.loaders.dataset import (
    GREY_OR_COLOUR,
    PLAIN,
    CsvFormat,
    Dataset,
    Records,
    Source,
    TargetRange,
)
from fedsim.learning.data.schema import Schema

LOG = logging.getLogger("fedsim.records")

MOST_TEXT = 2**30
"""Largest file with one text a line, in bytes."""

Arrays = Mapping[str, npt.NDArray[Any]]

FEATURES, LABELS = "features", "labels"
"""Names of pictures and their labels among arrays."""


@dataclass(frozen=True, eq=False)
class Raw:
    """Records as a reader returns them: columns [N] by name, or pictures as `FEATURES`."""

    columns: Arrays
    labels: list[str] | None


@dataclass(frozen=True, eq=False)
class Inspection:
    """A client's records after the schema was applied, and the columns that it ignored."""

    records: Records
    problems: tuple[Problem, ...]
    total: int
    ignored: tuple[str, ...]

    @property
    def refused(self) -> tuple[Problem, ...]:
        """The problems that the client's owner has to mend."""
        return tuple(each for each in self.problems if each.refuses)

    @property
    def summary(self) -> str:
        kept = len(self.records.labels)
        sentence = f"{kept:,} records"
        if kept < self.total:
            reasons = "; ".join(str(each) for each in self.problems if each.drop)
            sentence = f"{kept:,} of {self.total:,} records; left out: {reasons}"
        changed = "; ".join(each.in_short for each in self.problems if each.changed)
        return f"{sentence}; used with another value: {changed}" if changed else sentence


def records(path: str, schema: Schema, labelled: bool = True, directory: str = "") -> Records:
    """Return the records of a file, a folder or a function, as features by the schema.

    labelled: whether records need labels; if not, labels are 0, and no record may be left out.
    directory: of texts, with their tokenizer.
    Raises InputError without records, or if the schema refuses records: all problems in one line.
    """
    inspection = _accepted(path, schema, labelled, directory)
    if not len(inspection.records.labels):
        problems = "; ".join(map(str, inspection.problems))
        left_out = f" that the schema keeps ({problems})" if inspection.total else ""
        raise InputError(f"'{path}' has no records{left_out}; give some")
    return inspection.records


def _accepted(path: str, schema: Schema, labelled: bool, directory: str) -> Inspection:
    inspection = inspect(path, schema, labelled, directory)
    wrong = inspection.refused
    if not labelled:
        wrong = tuple(each for each in inspection.problems if not each.changed)
    if wrong:
        raise InputError(
            f"'{path}' has records that the schema refuses: {'; '.join(map(str, wrong))}; "
            "correct them, or agree on a schema that says how to treat them (missing, other, "
            "outside, unlabelled; docs/how-to/own-records.md)"
        )
    if inspection.problems:
        LOG.warning("'%s': %s", path, inspection.summary)
    return inspection


def inspect(path: str, schema: Schema, labelled: bool = True, directory: str = "") -> Inspection:
    """Return the records of a file, a folder or a function, and all their problems.

    labelled: whether records need labels; if not, labels are 0.
    directory: of texts, with their tokenizer.
    Raises InputError if the records cannot be read, or lack columns or labels.
    """
    raw, where = _read(path, schema), f"'{path}'"
    problems: list[Problem] = []
    ignored: tuple[str, ...] = ()
    if schema.image is None:
        columns = {name: _as_text(values) for name, values in raw.columns.items()}
        if schema.text is None:
            features, problems = schema.table(columns, where)
            used = (schema.label, *schema.columns)
            ignored = tuple(name for name in columns if name not in used)
        else:
            texts = schema.texts(columns, where)
            from fedsim.learning.data import tokens  # noqa: PLC0415  (for texts alone)

            features = tokens.numbers(texts, schema.text.length, directory)
    elif FEATURES in raw.columns:
        features = schema.pixels(_channels_first(raw.columns[FEATURES], where), where)
    else:
        raise InputError(f"{where} holds a table, but the schema's records are pictures")
    labels = np.zeros(len(features), dtype=np.int64)
    if labelled and len(features) and schema.labelled:
        if raw.labels is None:
            raise InputError(f"{where} has no labels ('{_label(schema)}'); give each record one")
        if len(raw.labels) != len(features):
            raise InputError(
                f"{where} has {len(features)} records and {len(raw.labels)} labels; give each one"
            )
        labels, unlabelled = schema.numbers(raw.labels, _label(schema))
        problems += unlabelled
    kept = np.ones(len(features), dtype=bool)
    for problem in problems:
        kept &= ~problem.rows if problem.drop else True
    return Inspection(
        Records(features[kept], labels[kept]), tuple(problems), len(features), ignored
    )


def columns(path: str) -> dict[str, list[str]]:
    """Return the columns of a table as text, [N] by name. Raises InputError for another file."""
    return table(path)[0]


def table(path: str) -> tuple[dict[str, list[str]], CsvFormat]:
    """Return the columns of a table as text, [N] by name, and the format of a CSV file.

    Raises InputError for another file.
    """
    place = Path(path).expanduser()
    if not place.is_file() or place.suffix not in FILES:
        raise InputError(f"there is no table '{path}'; give a file that ends in {_endings()}")
    arrays, form = _csv(place) if place.suffix == ".csv" else (FILES[place.suffix](place), PLAIN)
    return {name: _as_text(values) for name, values in arrays.items()}, form


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
    return _accepted(path, schemas.parse(text), True, directory).records


def _read(path: str, schema: Schema) -> Raw:
    if registry.is_code(path):
        return _of_arrays(registry.lookup({}, path, "data-path")(), schema, f"'{path}'")
    place = Path(path).expanduser()
    if place.is_dir():
        from fedsim.learning.data.loaders import idx  # noqa: PLC0415  (a format's alone)

        is_idx = originals.present(_source(place), idx.TRAIN[:1], (".", "raw"))
        return _idx(place) if is_idx else _pictures(place, schema)
    if not place.is_file():
        raise InputError(f"there is no file or folder '{path}'; give its records' path")
    if place.suffix not in FILES:
        raise InputError(
            f"'{path}' has no known format; give {_endings()}, or a folder of pictures"
        )
    if place.suffix == ".npz":
        return _of_arrays(FILES[place.suffix](place), schema, f"'{path}'")
    if schema.image is not None:
        raise InputError(f"'{path}' holds a table, but the schema's records are pictures")
    if place.suffix == ".csv":
        return _table(_csv(place, schema.file.form)[0], schema)
    return _table(FILES[place.suffix](place), schema)


def _csv(path: Path, agreed: CsvFormat | None = None) -> tuple[Arrays, CsvFormat]:
    from fedsim.learning.data.loaders import csv_file  # noqa: PLC0415  (a format's alone)

    (names, *rows), form = csv_file.read(path, agreed)
    csv_file.check_names(names, path)
    return {name: np.asarray([row[at] for row in rows]) for at, name in enumerate(names)}, form


def _parquet(path: Path) -> Arrays:
    from fedsim.learning.data.loaders import parquet  # noqa: PLC0415  (a format's alone)

    columns = parquet.columns_of(path)
    return {name: np.asarray(values, object) for name, values in columns.items()}


def _lines(path: Path) -> Arrays:
    try:
        lines = reading.content(path, MOST_TEXT).decode().splitlines()
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read '{path}': {error}; give a text file in UTF-8") from None
    return {"text": np.asarray([line for line in lines if line.strip()], object)}


def _npz(path: Path) -> Arrays:
    from fedsim.learning.data.loaders import npz  # noqa: PLC0415  (a format's alone)

    return npz.arrays(path)


def _of_arrays(arrays: Arrays, schema: Schema, where: str) -> Raw:
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    if schema.image is None:
        return _table(arrays, schema)
    if FEATURES not in arrays:
        raise InputError(
            f"{where} has no array '{FEATURES}', it has {', '.join(arrays) or 'none'}; save "
            f"pictures with numpy.savez(file, {FEATURES}=..., {LABELS}=...)"
        )
    from fedsim.learning.data.loaders import npz  # noqa: PLC0415  (a format's alone)

    labels = arrays.get(LABELS)
    return Raw(
        {FEATURES: arrays[FEATURES]}, None if labels is None else _as_text(npz.numbered(labels))
    )


def _table(columns: Arrays, schema: Schema) -> Raw:
    labels = columns.get(schema.label)
    return Raw(columns, None if labels is None else _as_text(labels))


def _idx(path: Path) -> Raw:
    from fedsim.learning.data.loaders import idx  # noqa: PLC0415  (a format's alone)

    images, labels = originals.find(_source(path), idx.TRAIN, (".", "raw"))
    pixels = idx.read_idx(images, dimensions=3)[:, None]
    return Raw({FEATURES: pixels}, _as_text(idx.read_idx(labels, dimensions=1)))


def _pictures(path: Path, schema: Schema) -> Raw:
    if schema.image is None:
        raise InputError(f"'{path}' is a folder, but the schema's records are a table: give a file")
    from fedsim.learning.data.loaders import image_folder  # noqa: PLC0415  (a format's alone)

    _, height, width = schema.image.shape
    pixels, labels, _ = image_folder.pictures(path, 0, empty=True, only=(height, width))
    return Raw({FEATURES: pixels}, labels)


FILES: Mapping[str, Callable[[Path], Arrays]] = {
    ".csv": lambda path: _csv(path)[0],
    ".parquet": _parquet,
    ".npz": _npz,
    ".txt": _lines,
}
"""Readers of files, by the ending of their names."""


def _endings() -> str:
    return ", ".join(FILES)


def _source(path: Path) -> Source:
    return Source("own", str(path))


def _label(schema: Schema) -> str:
    return schema.label if schema.image is None else LABELS


def _as_text(values: npt.NDArray[Any]) -> list[str]:
    """Return a column as text; a whole number is written the same for every type."""
    return [_written(value) for value in values.tolist()]


def _written(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    return str(value).strip()


def _channels_first(images: npt.NDArray[Any], where: str) -> npt.NDArray[Any]:
    if images.dtype.kind not in "buif" or images.ndim not in (3, 4):
        raise InputError(
            f"{where} has {FEATURES} of {images.dtype} {images.shape}; give numbers [N, H, W], "
            "[N, C, H, W] or [N, H, W, C]"
        )
    if images.ndim == 3:
        return images[:, None]
    if images.shape[1] not in GREY_OR_COLOUR:
        return np.moveaxis(images, -1, 1)
    return images
