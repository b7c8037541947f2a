"""Data distribution of a configuration's federation: as JSON, and on the terminal."""

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


VERDICT = (
    "{clients} clients hold {sizes} records each (median {median:g}). To have the label mix of D, "
    "on average {skew:.1%} of a client's records would need another label. With a random partition "
    "into the same sizes, {chance:.1%} would."
)
EXPLAINED = (
    "Skew: total variation distance between the labels of a client and of D. By chance: expected "
    "skew of a random partition into the same sizes. Effective: number of equally frequent labels "
    "with the same diversity."
)


def _verdict(report: DistributionReport) -> str:
    held, key = report.held, report.federation.partition_key
    least, most = held.sizes.min(), held.sizes.max()
    text = VERDICT.format(
        clients=len(held.sizes),
        sizes=f"{least}" if least == most else f"{least} to {most}",
        median=np.median(held.sizes),
        skew=held.mean(held.label_skew),
        chance=held.mean(held.chance_skew),
    )
    if key:
        text += f" All records with the same value of '{key}' are at one client "
        text += f"({report.key_values} values in D)."
    return text


def summary(report: DistributionReport) -> RenderableType:
    facts, prose, _, explained = blocks(report)
    table = terminal.table(_clients(report, SHOWN_CLIENTS), dense=True)
    more = len(report.held.sizes) - SHOWN_CLIENTS
    left_out = [doc.Prose(f"Clients not shown: {more}. --json lists them all.")] * (more > 0)
    return terminal.shown(facts, table, *left_out, prose, explained)


def blocks(report: DistributionReport) -> list[doc.Block]:
    """Return the facts, the verdict, and a table of all clients."""
    facts, verdict = doc.Listing(_facts(report)), doc.Prose(_verdict(report))
    return [facts, verdict, _clients(report, None), doc.Prose(EXPLAINED, small=True)]


def _facts(report: DistributionReport) -> list[tuple[str, str]]:
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


def _clients(report: DistributionReport, most: int | None) -> doc.Table:
    held, key = report.held, report.federation.partition_key
    counted = report.split.dataset.classes <= COUNTED_CLASSES
    headings = ["client", "records", "share", "skew", "by chance", "classes", "effective"]
    headings.append("records by label" if counted else "most of")
    headings += [f"largest values of '{key}'"] if key else []
    rows = []
    for client, labels in enumerate(held.counts[:most]):
        frequent = [label for label in np.argsort(-labels, kind="stable")[:TOP] if labels[label]]
        cells = [
            str(client),
            str(held.sizes[client]),
            f"{held.sizes[client] / held.sizes.sum():.1%}",
            f"{held.label_skew[client]:.2f}",
            f"{held.chance_skew[client]:.2f}",
            str(held.classes[client]),
            f"{held.effective_classes[client]:.1f}",
            " ".join(map(str, labels)) if counted else ", ".join(map(str, frequent)),
        ]
        if key:
            several, largest = report.largest_keys(client)
            shown = ", ".join(f"{value}: {n}" for value, n in largest.items())
            cells.append(f"{several} values; {shown}")
        rows.append(cells)
    return doc.tabulated(headings, rows)
