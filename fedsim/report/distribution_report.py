"""Data distribution of a configuration's federation: as JSON, and on the terminal."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import RenderableType

from adversaries.arrays import Ints
from fedsim.config.federation import FederationConfig
from fedsim.config.objects import Experiment
from fedsim.learning.data import Records, Split, distribution
from fedsim.learning.data.cautions import cautions
from fedsim.learning.data.distribution import DataDistribution
from fedsim.report.document import blocks as doc
from fedsim.report.document import terminal

SHOWN_CLIENTS = 20
TOP = 3
COUNTED_CLASSES = 10
LARGEST = "most records"
BAR = 12


@dataclass(frozen=True, eq=False)
class DistributionReport:
    """The records of a federation.

    Attributes:
        cautions: sentences about columns of the data that need a second look.
        client_of: client of each record of D, int64 [n].
        keys: key of each record of D, [n], which the partition does not split; None without one.
        seed: of the data.
    """

    name: str
    federation: FederationConfig
    split: Split
    cautions: list[str]
    held: DataDistribution
    client_of: Ints
    keys: npt.NDArray[Any] | None
    seed: int

    @property
    def key_values(self) -> int | None:
        return None if self.keys is None else len(np.unique(self.keys))

    @property
    def dirichlet_alpha(self) -> float | None:
        """The concentration; None for a partition without one."""
        drawn = self.federation.partition in ("dirichlet", "quantity")
        return self.federation.dirichlet_alpha if drawn else None

    @property
    def test_records(self) -> int:
        test = self.split.dataset.test
        return 0 if test is None else len(test)

    def largest_keys(self, client: int) -> tuple[int, dict[str, int]]:
        """Return the number of a client's keys, and the records of its `TOP` largest ones."""
        assert self.keys is not None
        values, records = np.unique(self.keys[self.client_of == client], return_counts=True)
        largest = np.argsort(-records, kind="stable")[:TOP]
        return len(values), {str(values[i]): int(records[i]) for i in largest}

    def as_json(self) -> dict[str, Any]:
        dataset, held = self.split.dataset, self.held
        return {
            "kind": "distribution",
            "name": self.name,
            "dataset": {
                "name": dataset.name,
                "kind": dataset.kind,
                "records": len(dataset.train),
                "test_records": self.test_records,
                "shape": list(dataset.train.features.shape[1:]),
                "classes": dataset.classes,
                "columns": list(distribution.columns_of(dataset)),
                "cautions": self.cautions,
            },
            "parts": {
                name: {"records": len(part), "labels": self.labels(part).tolist()}
                for name, part in (
                    ("members", self.split.members_records),
                    ("held_out", self.split.held_out_records),
                    ("pool", self.split.pool_records),
                )
            },
            "partition": {
                "scheme": self.federation.partition,
                "key": self.federation.partition_key or None,
                "key_values": self.key_values,
                "dirichlet_alpha": self.dirichlet_alpha,
                "seed": self.seed,
            },
            "sizes": {
                "min": int(held.sizes.min()),
                "median": float(np.median(held.sizes)),
                "max": int(held.sizes.max()),
            },
            "label_skew": held.mean(held.label_skew),
            "chance_skew": held.mean(held.chance_skew),
            "clients": [self._client(client) for client in range(len(held.counts))],
        }

    def labels(self, part: Records) -> Ints:
        """Return the number of records of each label, int64 [classes]."""
        return np.bincount(part.labels, minlength=self.split.dataset.classes)

    def _client(self, client: int) -> dict[str, Any]:
        held = self.held
        row = {
            "client": client,
            "records": int(held.sizes[client]),
            "share": float(held.sizes[client] / held.sizes.sum()),
            "labels": held.counts[client].tolist(),
            "classes": int(held.classes[client]),
            "effective_classes": float(held.effective_classes[client]),
            "label_skew": float(held.label_skew[client]),
            "chance_skew": float(held.chance_skew[client]),
        }
        if self.keys is not None:
            row["key_values"], row["largest_key_values"] = self.largest_keys(client)
        return row


def assemble(experiment: Experiment) -> DistributionReport:
    data, federation = experiment.data, experiment.game.scheme.federation
    split, client_of = distribution.held(
        data,
        federation,
        experiment.game.model.weights,
        every_client=True,
        rehearsed=experiment.run.job == "rehearsal",
    )
    return DistributionReport(
        experiment.run.name,
        federation,
        split,
        cautions(split.dataset),
        distribution.hold(split, client_of, federation.clients),
        client_of,
        distribution.keys(federation, split),
        data.seed,
    )


def _verdict(report: DistributionReport) -> str:
    held, key = report.held, report.federation.partition_key
    least, most = held.sizes.min(), held.sizes.max()
    sizes = f"{least}" if least == most else f"{least} to {most}"
    by_key = (
        f" All records with the same value of '{key}' are at one client "
        f"({report.key_values} values in D)."
        if key
        else ""
    )
    return (
        f"{len(held.sizes)} clients hold {sizes} records each "
        f"(median {np.median(held.sizes):g}). To have the label mix of D, on average "
        f"{held.mean(held.label_skew):.1%} of a client's records would need another label. With a "
        f"random partition into the same sizes, {held.mean(held.chance_skew):.1%} would.{by_key}"
    )


def summary(report: DistributionReport) -> RenderableType:
    (title, headings, body), *others = _tables(report)
    sizes = report.held.sizes
    barred = [
        [*cells, "█" * max(1, round(BAR * size / sizes.max()))]
        for cells, size in zip(body, sizes, strict=True)
    ]
    tables = [
        terminal.table(doc.tabulated(headings, cells[:SHOWN_CLIENTS]), title, dense=True)
        for title, headings, cells in [(title, [*headings, ""], barred), *others]
    ]
    more = len(body) - SHOWN_CLIENTS
    left_out = [doc.Prose(f"Clients not shown: {more}. --json lists them all.")] * (more > 0)
    return terminal.shown(
        doc.Listing(_rows(report)),
        *tables,
        *left_out,
        doc.Prose(_verdict(report)),
        doc.Prose(EXPLAINED, small=True),
    )


def blocks(report: DistributionReport) -> list[doc.Block]:
    return [doc.Listing(_rows(report)), doc.Prose(_verdict(report)), *_explained_tables(report)]


def _explained_tables(report: DistributionReport) -> Iterator[doc.Block]:
    for title, headings, body in _tables(report):
        yield doc.Heading(title[0].upper() + title[1:])
        yield doc.tabulated(headings, body)
    yield doc.Prose(EXPLAINED)


def _skews(held: DataDistribution, client: int) -> list[str]:
    return [f"{held.label_skew[client]:.2f}", f"{held.chance_skew[client]:.2f}"]


EXPLAINED = (
    "Skew: total variation distance between the labels of a client and of D. By chance: expected "
    "skew of a random partition into the same sizes. Effective: number of equally frequent labels "
    "with the same diversity."
)


def _rows(report: DistributionReport) -> list[tuple[str, str]]:
    dataset, federation, split = report.split.dataset, report.federation, report.split
    test = f", and {report.test_records} for tests" if report.test_records else ""
    shape = "x".join(map(str, dataset.train.features.shape[1:]))
    scheme = federation.partition
    if report.dirichlet_alpha is not None:
        scheme += f", concentration {report.dirichlet_alpha:g}"
    if federation.partition_key:
        scheme += f" '{federation.partition_key}', {report.key_values} values in D"
    return [
        ("data", f"{dataset.name} ({dataset.kind})"),
        ("records", f"{len(dataset.train)}{test}"),
        ("features", f"{shape}, {dataset.classes} classes"),
        ("columns", distribution.named(distribution.columns_of(dataset))),
        *(("check this", caution) for caution in report.cautions),
        ("D, trained on", _part(report.labels(split.members_records))),
        ("held out", _part(report.labels(split.held_out_records))),
        ("pool", _part(report.labels(split.pool_records))),
        ("partition", f"{scheme}, seed {report.seed}"),
    ]


def _part(labels: Ints) -> str:
    records = labels.sum()
    if not records:
        return "0"
    rarest, commonest = labels.min() / records, labels.max() / records
    return f"{records}; each label has {rarest:.1%} to {commonest:.1%} of them"


def _tables(report: DistributionReport) -> list[tuple[str, list[str], list[list[str]]]]:
    classes, key, held = report.split.dataset.classes, report.federation.partition_key, report.held
    counted = classes <= COUNTED_CLASSES
    headings = ["client", "records", "share", "skew", "by chance", "classes", "effective"]
    rows: list[list[str]] = []
    counts: list[list[str]] = []
    values: list[list[str]] = []
    for client, labels in enumerate(held.counts):
        name, most = str(client), np.argsort(-labels, kind="stable")[:TOP]
        rows.append(
            [
                name,
                str(held.sizes[client]),
                f"{held.sizes[client] / held.sizes.sum():.1%}",
                *_skews(held, client),
                str(held.classes[client]),
                f"{held.effective_classes[client]:.1f}",
                *([] if counted else [", ".join(str(label) for label in most if labels[label])]),
            ]
        )
        counts.append([name, *map(str, labels)])
        if key:
            several, largest = report.largest_keys(client)
            shown = [f"{value}: {n}" for value, n in largest.items()]
            shown += ["…"] * (several > len(largest))
            values.append([name, str(several), ", ".join(shown)])
    tables = [("data distribution", headings if counted else [*headings, "most of"], rows)]
    if counted:
        tables.append(("records by label", ["client", *map(str, range(classes))], counts))
    if key:
        tables.append((f"values of '{key}'", ["client", "values", LARGEST], values))
    return tables
