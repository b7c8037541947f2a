"""Files that a user names: where they are, and the columns of a table as text."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.configuration import federation
from fedsim.learning.data.dataset import PLAIN, Columns, CsvFormat

TABLES = (*federation.TABLES, ".txt")
ENDINGS = ", ".join(TABLES)

MOST_TEXT = 2**30
"""Largest file with one text a line, in bytes."""


def read(path: str, agreed: CsvFormat | None = None) -> tuple[Columns, CsvFormat]:
    """Return the columns of a table as text, [N] by name, and the format of a CSV file.

    agreed: the format of all clients' CSV files; None to find it.
    Raises InputError for another file.
    """
    place = Path(path).expanduser()
    if not place.is_file() or place.suffix not in TABLES:
        raise InputError(f"there is no table '{path}'; give a file that ends in {ENDINGS}")
    if place.suffix in (".csv", ".tsv", ".gz"):
        from fedsim.learning.data import csv_file  # noqa: PLC0415  (CSV files only)

        return csv_file.read(place, agreed)
    if place.suffix == ".npz":
        from fedsim.learning.data import arrays  # noqa: PLC0415  (arrays only)

        return as_columns(arrays.arrays(place)), PLAIN
    return (_parquet if place.suffix == ".parquet" else _lines)(place), PLAIN


def as_columns(arrays: Mapping[str, npt.NDArray[Any]]) -> Columns:
    """Return arrays [N] by name as text."""
    return {name: as_text(values.tolist()) for name, values in arrays.items()}


def as_text(values: Iterable[object]) -> list[str]:
    """Return values as text; a whole number is written the same for every type."""
    return [_written(value) for value in values]


def _written(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    return str(value).strip()


def _parquet(path: Path) -> Columns:
    try:
        from pyarrow import parquet  # noqa: PLC0415  (an extra)
    except ImportError:
        from fedsim.common import installation  # noqa: PLC0415

        command = installation.command("parquet")
        raise InputError(f"'{path}' is Parquet, which pyarrow reads: {command}") from None

    def refusal(reason: str) -> InputError:
        return InputError(
            f"'{path}' is damaged, no Parquet file, or too large ({reason}); save it again, in "
            "parts or as .npz"
        )

    with reading.damage(refusal):
        columns = parquet.ParquetFile(path).read()
        return {name: as_text(columns[name].to_pylist()) for name in columns.column_names}


def _lines(path: Path) -> Columns:
    try:
        lines = reading.content(path, MOST_TEXT).decode().splitlines()
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read '{path}': {error}; give a text file in UTF-8") from None
    return {"text": [line for line in lines if line.strip()]}
