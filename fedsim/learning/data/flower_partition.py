"""Partitioners of Flower Datasets (`flwr-datasets`)."""

import inspect
import io
import warnings
from contextlib import redirect_stderr

import numpy as np

from adversaries.arrays import Ints
from adversaries.errors import InputError
from fedsim.common import installation
from fedsim.learning.data.dataset import Division

BY, POSITION = "by", "position"
"""Columns of the table that Flower divides: the key, and the position of each record in D."""


def divide(made_by: str, division: Division, generator: np.random.Generator) -> Ints:
    """Return the client of each record by one of Flower's partitioners, int64 [n].

    It divides by the key if one is named, else by the labels. The number of clients, alpha and the
    seed are the experiment's; other arguments are the division's options, with Flower's names.

    made_by: the name of Flower's class.
    Raises InputError if flwr-datasets is not installed, or if the partitioner refuses its options
    or the records, or leaves a record without a client.
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
    known = {
        "num_partitions": division.clients,
        "partition_by": BY,
        "alpha": division.alpha,
        "min_partition_size": 1,
        "seed": int(generator.integers(2**31)),
    }
    takes = inspect.signature(made).parameters
    options = {name.replace("-", "_"): value for name, value in division.options.items()}
    free = [name for name in takes if name == "min_partition_size" or name not in known]
    named = ", ".join(free).replace("_", "-") or "none"
    if unknown := sorted(set(options) - set(free)):
        raise InputError(
            f"federation.partition names '{unknown[0].replace('_', '-')}', but {scheme}, whose "
            f"options are {named}"
        )
    arguments = {name: value for name, value in known.items() if name in takes} | options
    by = division.labels if division.keys is None else division.keys
    table = {BY: by.tolist(), POSITION: np.arange(len(by)).tolist()}
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            partitioner = made(**arguments)
            partitioner.dataset = Dataset.from_dict(table)
            count = partitioner.num_partitions
            parts = [partitioner.load_partition(client)[POSITION] for client in range(count)]
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise InputError(
            f"{scheme}, which refuses these records: {' '.join(str(error).split())}; its options "
            f"in federation.partition are {named}"
        ) from None
    if count != division.clients:
        raise InputError(
            f"{scheme}, which makes {count} clients of these records, but federation.clients is "
            f"{division.clients}; set federation.clients={count}"
        )
    client_of = np.full(len(by), -1, dtype=np.int64)
    for client, part in enumerate(parts):
        client_of[part] = client
    if (left := int((client_of < 0).sum())) > 0:
        raise InputError(
            f"{scheme}, which leaves {left} records of D without a client; change the options in "
            "federation.partition, or the number of clients"
        )
    return client_of
