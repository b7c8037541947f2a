"""Partitioners of Flower Datasets (`flwr-datasets`)."""

import inspect
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from typing import Any

import numpy as np

from adversaries.arrays import Ints
from adversaries.errors import InputError
from fedsim.common import installation
from fedsim.learning.data.splitting import Division

BY, POSITION = "by", "position"
"""Columns of the table that Flower divides: the key, and the position of each record in D."""


def divide(made_by: str, division: Division, generator: np.random.Generator) -> Ints:
    """Return the client of each record by one of Flower's partitioners, int64 [n].

    It divides by the key if one is named, else by the labels. The number of clients, alpha and the
    seed are the experiment's; other arguments are the division's options, with Flower's names.

    made_by: the name of Flower's class.
    Raises InputError if flwr-datasets is not installed, if an option does not exist, or if the
    partitioner refuses or leaves a record without a client.
    """
    scheme = f"federation.partition names Flower's {made_by}"
    try:
        from datasets import Dataset  # noqa: PLC0415
        from flwr_datasets import partitioner as flower  # noqa: PLC0415
    except ImportError as error:
        raise InputError(
            f"{scheme}, which needs flwr-datasets: {installation.command('hf')} ({error})"
        ) from None
    made = getattr(flower, made_by)
    arguments = _arguments(scheme, made, division, generator)
    by = division.labels if division.keys is None else division.keys
    table = {BY: by.tolist(), POSITION: np.arange(len(by)).tolist()}
    try:
        with _quiet():
            partitioner = made(**arguments)
            partitioner.dataset = Dataset.from_dict(table)
            count = partitioner.num_partitions
            parts = [partitioner.load_partition(client)[POSITION] for client in range(count)]
    except (ValueError, TypeError, KeyError, IndexError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{scheme}, which refuses these records: {reason}") from None
    if count != division.clients:
        raise InputError(
            f"{scheme}, which makes {count} clients of these records, but federation.clients is "
            f"{division.clients}; set it to {count}"
        )
    client_of = np.full(len(by), -1, dtype=np.int64)
    for client, positions in enumerate(parts):
        client_of[positions] = client
    if left := int((client_of < 0).sum()):
        raise InputError(
            f"{scheme}, which leaves {left} of the {len(by)} records of D without a client; change "
            "the options in federation.partition, or the number of clients"
        )
    return client_of


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def _arguments(
    scheme: str, made: Any, division: Division, generator: np.random.Generator
) -> dict[str, Any]:
    parameters = inspect.signature(made).parameters
    own = {
        "num_partitions": division.clients,
        "partition_by": BY,
        "alpha": division.alpha,
        "min_partition_size": 1,
        "seed": int(generator.integers(2**31)),
    }
    chosen = {name.replace("-", "_"): value for name, value in division.options.items()}
    free = [name for name in parameters if name not in {*own} - {"min_partition_size"}]
    if unknown := sorted(set(chosen) - set(free)):
        known = ", ".join(name.replace("_", "-") for name in free) or "none"
        raise InputError(
            f"federation.partition names '{unknown[0].replace('_', '-')}', but {scheme}, "
            f"whose options are {known}"
        )
    arguments = {name: value for name, value in (own | chosen).items() if name in parameters}
    missing = [
        name.replace("_", "-")
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty and name not in arguments
    ]
    if missing:
        raise InputError(
            f"{scheme}, which needs {missing[0]}: add it to "
            f'federation.partition, as ", {missing[0]}=2", or another number'
        )
    return arguments
