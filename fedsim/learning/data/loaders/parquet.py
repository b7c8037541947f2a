"""Parquet files."""

from pathlib import Path
from typing import Any

from adversaries.errors import InputError
from fedsim.common import installation, reading


def columns_of(path: Path) -> dict[str, list[Any]]:
    """Return the values of a Parquet file by column. Raises InputError if it is damaged."""
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
        return {name: columns[name].to_pylist() for name in columns.column_names}
