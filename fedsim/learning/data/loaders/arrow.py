"""Arrow's files, such as Parquet, which may expand a few bytes into any number of values."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from adversaries.errors import InputError
from fedsim.common import installation, reading


@contextmanager
def limited(files: Sequence[Path]) -> Iterator[None]:
    """Limit the memory for reading Arrow's files and making objects of them inside of the block.

    Raises:
        ArrowException, MemoryError, OSError: a file is damaged, or takes more memory.
        ValueError: a file is not a regular file.
    """
    import pyarrow  # noqa: PLC0415  (an extra)

    size = 0
    for file in files:
        with reading.opened(file):
            size += file.stat().st_size
    usual = pyarrow.default_memory_pool()
    # Arrow's own pool reserves a gigabyte of addresses at once.
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
    try:
        with reading.memory(size):
            yield
    finally:
        pyarrow.set_memory_pool(usual)


def parquet_columns(path: Path) -> dict[str, list[Any]]:
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

    with reading.damage(refusal), limited([path]):
        table = parquet.ParquetFile(path, pre_buffer=False)
        columns = table.read(use_threads=False)
        return {name: columns[name].to_pylist() for name in columns.column_names}
