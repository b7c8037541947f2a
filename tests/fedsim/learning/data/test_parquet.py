"""A Parquet file must be a regular file."""

import os

import pytest

from adversaries.errors import InputError
from fedsim.learning.data import own_records, schema

SCHEMA = schema.parse('classes = ["0", "1"]\n[columns]\na = [0, 1]\n')


def test_a_pipe_is_no_table(tmp_path):
    os.mkfifo(tmp_path / "records.parquet")
    with pytest.raises(InputError, match="there is no table"):
        own_records.records(str(tmp_path / "records.parquet"), SCHEMA)
