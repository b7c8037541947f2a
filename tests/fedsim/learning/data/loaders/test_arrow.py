"""A small file of Arrow's takes little memory, whatever it says that it holds."""

import os
import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from adversaries.errors import InputError
from fedsim.common import reading
from fedsim.learning import data
from fedsim.learning.data import own_records, schema

pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

SCHEMA = schema.parse('classes = ["0", "1"]\n[columns]\na = [0, 1]\n')

ROWS = 3000


def _long_texts(path: Path) -> None:
    """Write one text of a megabyte, 3000 times: 552 bytes in all."""
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(ROWS, np.int32)), ["x" * 10**6])
    table = pa.table({"a": texts, "label": np.arange(ROWS) % 2})
    parquet.write_table(table, path, compression="zstd", store_schema=False)


def _own(folder: Path) -> object:
    _long_texts(folder / "records.parquet")
    return own_records.records(str(folder / "records.parquet"), SCHEMA)


def _folder_of_parquet(folder: Path) -> object:
    pytest.importorskip("datasets", reason="hf needs datasets")
    _long_texts(folder / "train.parquet")
    return data.load("hf", str(folder))


def _saved_to_disk(folder: Path) -> object:
    """Write a data set whose file holds a compressed constant: ten million zeros in 20 kB."""
    datasets = pytest.importorskip("datasets", reason="hf needs datasets")
    datasets.Dataset.from_dict({"a": [0.0], "label": [1]}).save_to_disk(folder / "saved")
    (file,) = (folder / "saved").glob("*.arrow")
    zeros = pa.array(np.zeros(10**7))
    table = pa.table({"a": zeros, "label": zeros.cast(pa.int64())})
    with (
        file.open("wb") as sink,
        pa.ipc.new_stream(
            sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
        ) as stream,
    ):
        stream.write_table(table)
    return data.load("hf", str(folder / "saved"))


@pytest.mark.parametrize(
    "read", [_own, _folder_of_parquet, pytest.param(_saved_to_disk, marks=pytest.mark.slow)]
)
def test_a_small_file_does_not_fill_the_memory(
    read: Callable[[Path], object], tmp_path: Path
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match="fit into memory"):
        read(tmp_path)
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert grown < 2 * reading.UNPACKED
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY


def test_a_pipe_is_no_table(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "records.parquet")
    with pytest.raises(InputError, match="there is no file"):
        own_records.records(str(tmp_path / "records.parquet"), SCHEMA)
