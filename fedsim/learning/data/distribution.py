"""The records of D and the client of each: a client's own, or those of simulated clients."""

from collections.abc import Iterable

import numpy as np

from adversaries.arrays import Ints
from adversaries.errors import InputError
from fedsim.configuration.federation import CLIENT, OWN, TEXTS, DataConfig, FederationConfig
from fedsim.learning import data
from fedsim.learning.data import Dataset, Split, own_records


def held(
    source: DataConfig,
    federation: FederationConfig,
    weights: str,
    client: int | None = None,
    every_client: bool = False,
    rehearsed: bool = False,
) -> tuple[Split, Ints]:
    """Return D, the pool, the held-out records, and the client of each record, int64 [n].

    client: whose own records are read; None for a server.
    every_client: of all; a rehearsal may.
    """
    if source.name != OWN:
        from fedsim.learning.data import dealing  # noqa: PLC0415  (simulated clients)

        split = dealing.draw(source, dataset(source, weights))
        return split, dealing.divide(federation, source.seed, split)
    clients: Iterable[int] = () if client is None else (client,)
    if rehearsed or every_client:
        clients = range(federation.clients)
    split, client_of = _own(source, weights, tuple(clients))
    if rehearsed and len(client_of) != source.records:
        raise InputError(
            f"the clients have {len(client_of)} records together, but data.records is "
            f"{source.records}, which divides sums; rehearse with data.records = "
            f"{len(client_of)}"
        )
    return split, client_of


def dataset(source: DataConfig, weights: str) -> Dataset:
    """Return the dataset of a configuration; for clients' own records, its public part."""
    text, public = source.public_schema, source.public_root
    if source.name == OWN:
        return own_records.dataset(text, (), public, weights)
    if text:  # a table, read by its schema instead of by its records
        from fedsim.learning.data import table  # noqa: PLC0415  (simulated clients)

        return table.by_schema(text, source.root)
    return data.read(source, weights if source.name == TEXTS else "")


def _own(source: DataConfig, weights: str, clients: tuple[int, ...]) -> tuple[Split, Ints]:
    if len(clients) > 1 and not source.root:
        raise InputError(
            "data.root is empty, because each client has its records on its own machine, where "
            "fedsim deploy check reads them; on a machine that may read all records, set "
            f"data.root=FOLDER/client-{CLIENT}.csv"
        )
    paths = tuple(source.root.replace(CLIENT, str(client)) for client in clients)
    if len(clients) > 1 and len(set(paths)) < len(paths):
        raise InputError(
            f"data.root is '{source.root}', the same for all clients; put {CLIENT} in place of the "
            "client's number"
        )
    text, directory = source.public_schema, weights  # the tokenizer lies with the weights
    joined = own_records.dataset(text, paths, source.public_root, directory)
    sizes = [own_records.count(text, path, directory) for path in paths]
    own = sum(sizes)
    generator = np.random.Generator(np.random.Philox(key=source.seed))
    public = own + generator.permutation(len(joined.train) - own)
    split = Split(joined, np.arange(own), public[: source.held_out], public[source.held_out :])
    return split, np.repeat(np.asarray(clients, dtype=np.int64), sizes)
