"""Data distribution of a configuration's federation: as JSON, and the same on the terminal."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from adversaries.arrays import Ints
from fedsim.configuration import Config
from fedsim.learning.data import Records, Split, dealing, distribution
from fedsim.learning.data.dealing import DataDistribution
from fedsim.reports.document import blocks as doc

SHOWN_CLIENTS = 20
TOP = 3
COUNTED_CLASSES = 10
Report = Mapping[str, Any]
"""The records of a federation, as --json has them."""


def assemble(config: Config) -> dict[str, Any]:
    """Return the records of an experiment by part, client and label."""
    federation, seed = config.federation, config.data.seed
    split, client_of = distribution.held(
        config.data,
        federation,
        config.model.weights,
        every_client=True,
        rehearsed=config.run.job == "rehearsal",
    )
    held = dealing.hold(split, client_of, federation.clients)
    keys, dataset = dealing.keys(federation, split), split.dataset
    drawn = federation.partition in ("dirichlet", "quantity")
    return {
        "kind": "distribution",
        "name": config.run.name,
        "dataset": {
            "name": dataset.name,
            "kind": dataset.kind,
            "records": len(dataset.train),
            "test_records": 0 if dataset.test is None else len(dataset.test),
            "shape": list(dataset.train.features.shape[1:]),
            "classes": dataset.classes,
            "columns": list(dealing.columns_of(dataset)),
        },
        "parts": {
            "members": _part(split, split.members_records),
            "held_out": _part(split, split.held_out_records),
            "pool": _part(split, split.pool_records),
        },
        "partition": {
            "scheme": federation.partition,
            "key": federation.partition_key or None,
            "key_values": None if keys is None else len(np.unique(keys)),
            "dirichlet_alpha": federation.dirichlet_alpha if drawn else None,
            "seed": seed,
        },
        "sizes": {
            "min": int(held.sizes.min()),
            "median": float(np.median(held.sizes)),
            "max": int(held.sizes.max()),
        },
        "label_skew": held.mean_skew,
        "clients": list(_clients(held, client_of, keys)),
    }


def _part(split: Split, part: Records) -> dict[str, Any]:
    labels = np.bincount(part.labels, minlength=split.dataset.classes)
    return {"records": len(part), "labels": labels.tolist()}


def _clients(
    held: DataDistribution, client_of: Ints, keys: npt.NDArray[Any] | None
) -> Iterator[dict[str, Any]]:
    """Yield the records of each client, with its largest values of the partition's key."""
    for client, labels in enumerate(held.counts):
        row = {
            "client": client,
            "records": int(held.sizes[client]),
            "share": float(held.sizes[client] / held.sizes.sum()),
            "labels": labels.tolist(),
            "classes": int(held.classes[client]),
            "label_skew": float(held.label_skew[client]),
        }
        if keys is not None:
            values, records = np.unique(keys[client_of == client], return_counts=True)
            largest = np.argsort(-records, kind="stable")[:TOP]
            row["key_values"] = len(values)
            row["largest_key_values"] = {str(values[i]): int(records[i]) for i in largest}
        yield row


VERDICT = (
    "{clients} clients hold {sizes} records each (median {median:g}). To have the label mix "
    "of D, on average {skew:.1%} of a client's records would need another label. Skew: total "
    "variation distance between the labels of a client and of D."
)
BY_KEY = "All records with the same value of '{key}' are at one client ({key_values} values in D)."
LEFT_OUT = "Clients not shown: {}. --json lists them all."


def blocks(report: Report) -> list[doc.Block]:
    """Return the facts, a table of the first clients, and what it says."""
    clients, partition = report["clients"], report["partition"]
    least, most, median = (report["sizes"][name] for name in ("min", "max", "median"))
    sizes = f"{least}" if least == most else f"{least} to {most}"
    skew = report["label_skew"]
    verdict = VERDICT.format(clients=len(clients), sizes=sizes, median=median, skew=skew)
    told = [verdict, *([BY_KEY.format(**partition)] if partition["key"] else [])]
    if len(clients) > SHOWN_CLIENTS:
        told.append(LEFT_OUT.format(len(clients) - SHOWN_CLIENTS))
    return [doc.Listing(_facts(report)), _table(report), *map(doc.Prose, told)]


def _facts(report: Report) -> list[tuple[str, str]]:
    dataset, parts, partition = report["dataset"], report["parts"], report["partition"]
    alpha = partition["dirichlet_alpha"]
    return [
        ("data", f"{dataset['name']} ({dataset['kind']})"),
        ("records", f"{dataset['records']}, and {dataset['test_records']} for tests"),
        ("features", f"{'x'.join(map(str, dataset['shape']))}, {dataset['classes']} classes"),
        ("columns", dealing.named(dataset["columns"])),
        ("D, trained on", _spread(parts["members"]["labels"])),
        ("held out", _spread(parts["held_out"]["labels"])),
        ("pool", _spread(parts["pool"]["labels"])),
        ("partition", f"{partition['scheme']}, seed {partition['seed']}"),
        *([] if alpha is None else [("concentration", f"{alpha:g}")]),
    ]


def _spread(labels: list[int]) -> str:
    records = sum(labels)
    if not records:
        return "0"
    rarest, commonest = min(labels) / records, max(labels) / records
    return f"{records}; each label has {rarest:.1%} to {commonest:.1%} of them"


def _table(report: Report) -> doc.Table:
    key, counted = report["partition"]["key"], report["dataset"]["classes"] <= COUNTED_CLASSES
    headings = ["client", "records", "share", "skew", "classes"]
    headings.append("records by label" if counted else "most of")
    headings += [f"largest values of '{key}'"] if key else []
    rows = []
    for one in report["clients"][:SHOWN_CLIENTS]:
        labels = np.array(one["labels"])
        frequent = [label for label in np.argsort(-labels, kind="stable")[:TOP] if labels[label]]
        cells = [
            *(str(one["client"]), str(one["records"]), f"{one['share']:.1%}"),
            *(f"{one['label_skew']:.2f}", str(one["classes"])),
            " ".join(map(str, labels)) if counted else ", ".join(map(str, frequent)),
        ]
        if key:
            largest = ", ".join(f"{name}: {n}" for name, n in one["largest_key_values"].items())
            cells.append(f"{one['key_values']} values; {largest}")
        rows.append(cells)
    return doc.tabulated(headings, rows)
