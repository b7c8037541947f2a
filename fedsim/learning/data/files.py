"""One reader of tables: the columns of a CSV, Parquet, NumPy or text file, as text."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from adversaries.errors import InputError
from fedsim.common import installation, reading
from fedsim.learning.data import arrays, csv_file, table
from fedsim.learning.data.csv_file import PLAIN, CsvFormat

TABLES = (".csv", ".parquet", ".npz", ".txt")
ENDINGS = ", ".join(TABLES)

MOST_TEXT = 2**30
"""Largest file with one text a line, in bytes."""

Columns = Mapping[str, Sequence[str]]


def read(path: str, agreed: CsvFormat | None = None) -> tuple[Columns, CsvFormat]:
    """Return the columns of a table as text, [N] by name, and the format of a CSV file.

    agreed: the format of all clients' CSV files; None to find it.
    Raises InputError for another file.
    """
    place = Path(path).expanduser()
    if not place.is_file() or place.suffix not in TABLES:
        raise InputError(f"there is no table '{path}'; give a file that ends in {ENDINGS}")
    if place.suffix == ".csv":
        (names, *rows), form = csv_file.read(place, agreed)
        table.check_names(names, place)
        return table.columns_of(names, rows), form
    if place.suffix == ".npz":
        found = arrays.arrays(place)
        return {name: as_text(values.tolist()) for name, values in found.items()}, PLAIN
    return (_parquet if place.suffix == ".parquet" else _lines)(place), PLAIN


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
