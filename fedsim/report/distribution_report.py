"""Data distribution of a configuration's federation: as JSON, on the terminal, and as a page."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import RenderableType

from fedsim.common import report_directory
from fedsim.config.objects import Experiment
from fedsim.learning.data import Split, distribution
from fedsim.learning.data.distribution import DataDistribution, cautions
from fedsim.report.document import blocks as doc
from fedsim.report.document import first_screen, terminal
from fedsim.report.document.first_screen import settled

Report = Mapping[str, Any]
SHOWN_CLIENTS = 20
TOP = 3
COUNTED_CLASSES = 10
LARGEST = "most records"
BAR = 12


def assemble(experiment: Experiment) -> dict[str, Any]:
    data, federation = experiment.data, experiment.game.scheme.federation
    split, client_of = distribution.held(
        data,
        federation,
        experiment.game.model.weights,
        every_client=True,
        rehearsed=experiment.run.job == "rehearsal",
    )
    dataset = split.dataset
    held = distribution.hold(split, client_of, federation.clients)
    keys = distribution.keys(federation, split)
    return {
        "kind": "distribution",
        "name": experiment.run.name,
        "dataset": {
            "name": dataset.name,
            "kind": dataset.kind,
            "records": len(dataset.train),
            "test_records": 0 if dataset.test is None else len(dataset.test),
            "shape": list(dataset.train.features.shape[1:]),
            "classes": dataset.classes,
            "columns": list(distribution.columns_of(dataset)),
            "cautions": cautions(dataset),
        },
        "parts": _parts(split),
        "partition": {
            "scheme": federation.partition,
            "key": federation.partition_key or None,
            "key_values": None if keys is None else len(np.unique(keys)),
            "dirichlet_alpha": federation.dirichlet_alpha
            if federation.partition in ("dirichlet", "quantity")
            else None,
            "seed": data.seed,
        },
        "sizes": {
            "min": int(held.sizes.min()),
            "median": float(np.median(held.sizes)),
            "max": int(held.sizes.max()),
        },
        "label_skew": held.mean(held.label_skew),
        "chance_skew": held.mean(held.chance_skew),
        "clients": _clients(held, client_of, keys),
    }


def write(report: Report, directory: Path) -> Path:
    return report_directory.write_report(directory, report, render_html(report))


def _verdict(report: Report) -> str:
    sizes, partition = report["sizes"], report["partition"]
    by_key = (
        f" No value of '{partition['key']}' ({partition['key_values']} in D) is split."
        if partition["key"]
        else ""
    )
    return (
        f"{len(report['clients'])} clients hold {sizes['min']} to {sizes['max']} records "
        f"(median {sizes['median']:g}). On average, {report['label_skew']:.1%} of a client's "
        "records would need another label to have the label mix of D. With a random partition into "
        f"the same sizes, {report['chance_skew']:.1%} would.{by_key}"
    )


def summary(report: Report) -> RenderableType:
    (title, headings, body), *others = _tables(report)
    most = report["sizes"]["max"]
    barred = [
        [*cells, "█" * max(1, round(BAR * client["records"] / most))]
        for cells, client in zip(body, report["clients"], strict=True)
    ]
    tables = [
        terminal.table(doc.tabulated(headings, cells[:SHOWN_CLIENTS]), title, dense=True)
        for title, headings, cells in [(title, [*headings, ""], barred), *others]
    ]
    more = len(body) - SHOWN_CLIENTS
    left_out = [doc.Prose(f"and {more} more clients: --json and --out have them all")] * (more > 0)
    return terminal.shown(
        doc.Listing(_rows(report)),
        *tables,
        *left_out,
        doc.Prose(_verdict(report)),
        doc.Prose(EXPLAINED, small=True),
    )


def blocks(report: Report) -> list[doc.Block]:
    return [doc.Listing(_rows(report)), doc.Prose(_verdict(report)), *_explained_tables(report)]


def _explained_tables(report: Report) -> Iterator[doc.Block]:
    for title, headings, body in _tables(report):
        yield doc.Heading(title[0].upper() + title[1:])
        yield doc.tabulated(headings, body)
    yield doc.Prose(EXPLAINED)


def render_html(report: Report) -> str:
    from fedsim.report.document.html import render  # noqa: PLC0415  (matplotlib is slow to import)
    from fedsim.report.figures import training_figures  # noqa: PLC0415

    counts = np.array([client["labels"] for client in report["clients"]])
    caption = "Records of every client, by label."
    return render(
        doc.Document(
            title=f"Data distribution: {report['name']}",
            kind="Data distribution",
            heading=report["name"],
            first=_first(report),
            blocks=[
                doc.Figure("distribution", training_figures.distribution(counts), "", caption),
                *_explained_tables(report),
                doc.Heading("The data"),
                doc.Listing(_rows(report), several=True),
            ],
        )
    )


MOST = 5


def _first(report: Report) -> doc.FirstScreen:
    dataset, clients = report["dataset"], report["clients"]
    largest = sorted(clients, key=lambda one: -int(one["records"]))[:MOST]
    rows = [[f"client {one['client']}", str(one["records"]), *_skews(one)] for one in largest]
    steps = ["Read the tables of clients below, then run fedsim run with the same file."]
    return doc.FirstScreen(
        answer=[_verdict(report)],
        table=doc.tabulated(("Most records", "Records", "Skew", "By chance"), rows),
        checks=_checks(report),
        steps=[*(f"{each[:1].upper()}{each[1:]}." for each in dataset["cautions"]), *steps],
        sign_off=first_screen.sign_off(
            data=f"{dataset['name']}, {dataset['records']} records",
            date=first_screen.today(),
            limits="This page describes the data. No model was trained, and no attack was run.",
        ),
    )


def _skews(client: Report) -> list[str]:
    return [f"{client['label_skew']:.2f}", f"{client['chance_skew']:.2f}"]


def _checks(report: Report) -> list[doc.Check]:
    clients, cautions = report["clients"], report["dataset"]["cautions"]
    return [
        settled(
            not cautions,
            "No column of the data needs a second look.",
            "Columns of the data need a second look: see the next steps.",
        ),
        settled(
            report["sizes"]["min"] > 0, "Every client has records.", "A client has no records."
        ),
        settled(
            all(one["classes"] > 1 for one in clients) or report["dataset"]["classes"] < 2,
            "Every client has records of two classes or more.",
            "A client has records of one class alone.",
        ),
        settled(
            report["parts"]["held_out"]["records"] > 0,
            "Records are held out to measure the model on.",
            "No records are held out to measure the model on.",
        ),
    ]


EXPLAINED = (
    "Skew: total variation distance between the labels of a client and of D. By chance: expected "
    "skew of a random partition into the same sizes. Effective: number of equally frequent labels "
    "with the same diversity."
)


def _parts(split: Split) -> dict[str, Any]:
    parts = {
        "members": split.members_records,
        "held_out": split.held_out_records,
        "pool": split.pool_records,
    }
    classes = split.dataset.classes
    return {
        name: {"records": len(each), "labels": np.bincount(each.labels, minlength=classes).tolist()}
        for name, each in parts.items()
    }


def _clients(
    held: DataDistribution, client_of: distribution.Ints, keys: npt.NDArray[Any] | None
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for client, counts in enumerate(held.counts):
        row = {
            "client": client,
            "records": int(held.sizes[client]),
            "share": float(held.sizes[client] / held.sizes.sum()),
            "labels": counts.tolist(),
            "classes": int(held.classes[client]),
            "effective_classes": float(held.effective_classes[client]),
            "label_skew": float(held.label_skew[client]),
            "chance_skew": float(held.chance_skew[client]),
        }
        if keys is not None:
            values, records = np.unique(keys[client_of == client], return_counts=True)
            largest = np.argsort(-records, kind="stable")[:TOP]
            row["key_values"] = len(values)
            row["largest_key_values"] = {str(values[i]): int(records[i]) for i in largest}
        rows.append(row)
    return rows


def _rows(report: Report) -> list[tuple[str, str]]:
    dataset, parts, partition = report["dataset"], report["parts"], report["partition"]
    test = f", and {dataset['test_records']} for tests" if dataset["test_records"] else ""
    shape = "x".join(map(str, dataset["shape"]))
    scheme = partition["scheme"]
    if partition["dirichlet_alpha"] is not None:
        scheme += f", concentration {partition['dirichlet_alpha']:g}"
    if partition["key"]:
        scheme += f" '{partition['key']}', {partition['key_values']} values in D"
    return [
        ("data", f"{dataset['name']} ({dataset['kind']})"),
        ("records", f"{dataset['records']}{test}"),
        ("features", f"{shape}, {dataset['classes']} classes"),
        ("columns", distribution.named(dataset["columns"])),
        *(("check this", caution) for caution in dataset["cautions"]),
        ("D, trained on", _part(parts["members"])),
        ("held out", _part(parts["held_out"])),
        ("pool", _part(parts["pool"])),
        ("partition", f"{scheme}, seed {partition['seed']}"),
    ]


def _part(part: Report) -> str:
    labels = np.array(part["labels"])
    if not part["records"]:
        return "0"
    rarest, commonest = labels.min() / labels.sum(), labels.max() / labels.sum()
    return f"{part['records']}; a label is {rarest:.1%} to {commonest:.1%} of them"


def _tables(report: Report) -> list[tuple[str, list[str], list[list[str]]]]:
    classes, key = report["dataset"]["classes"], report["partition"]["key"]
    counted = classes <= COUNTED_CLASSES
    headings = ["client", "records", "share", "skew", "by chance", "classes", "effective"]
    rows: list[list[str]] = []
    counts: list[list[str]] = []
    values: list[list[str]] = []
    for client in report["clients"]:
        name, labels = str(client["client"]), client["labels"]
        most = np.argsort(-np.array(labels), kind="stable")[:TOP]
        rows.append(
            [
                name,
                str(client["records"]),
                f"{client['share']:.1%}",
                *_skews(client),
                str(client["classes"]),
                f"{client['effective_classes']:.1f}",
                *([] if counted else [", ".join(str(label) for label in most if labels[label])]),
            ]
        )
        counts.append([name, *map(str, labels)])
        if key:
            largest = client["largest_key_values"]
            shown = [f"{value}: {n}" for value, n in largest.items()]
            shown += ["…"] * (client["key_values"] > len(largest))
            values.append([name, str(client["key_values"]), ", ".join(shown)])
    tables = [("data distribution", headings if counted else [*headings, "most of"], rows)]
    if counted:
        tables.append(("records by label", ["client", *map(str, range(classes))], counts))
    if key:
        tables.append((f"values of '{key}'", ["client", "values", LARGEST], values))
    return tables
