"""The report of a study of dataset sensitivity: JSON, what the terminal shows, and a page.

It words what `fedsim.sensitivity_study` found, and shows the pairs themselves: images side by side,
or the attributes in which records differ.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

import fedsim
from fedsim import audit_page, figures, record_display, report_directory
from fedsim.report_figures import inline
from fedsim.report_values import DASH, number, percent, plain
from fedsim.sensitivity_study import CHOICES, LABEL, Candidate, Study
from fedsim.strict_json import strict_json

Report = Mapping[str, Any]

QUANTILES = (0.05, 0.5, 0.95)
"""Of the trials' local sensitivities in a step."""


def assemble(study: Study) -> dict[str, Any]:
    """Return the report as strict JSON values; positions index D and the pool, from 0."""
    config, truth = study.config, study.truth
    first = study.chosen
    report = {
        "kind": "dataset sensitivity",
        "label": LABEL,
        "name": config.run.name,
        "data": config.data.name,
        "records": len(study.known.split.members),
        "pool": len(study.known.split.pool),
        "model": config.model.name,
        "neighbouring": config.privacy.neighbouring.value,
        "noise_scaled_to": f"{config.privacy.sensitivity} sensitivity",
        "clipping_norm": config.training.clipping_norm,
        "global_sensitivity": truth.bound,
        "dissimilarity": first.pair.measure,
        "choice": first.choice,
        "trials": len(first.course),
        "steps": first.course.shape[1],
        "seed": config.run.seed,
        "confidence": config.audit.confidence,
        "pairs_in_all": truth.pairs,
        "reach": study.reach,
        "largest": truth.largest[0].sensitivity,
        "quantiles": {f"{share:g}": truth.quantile(share) for share in (0.5, 0.9, 0.99, 0.999)},
        "pairs": [_candidate(study, candidate) for candidate in study.candidates],
        "measures": _measures(study),
        "compared": dict(zip(("records", "replacements"), study.compared, strict=True)),
        "comparison": None if study.comparison is None else _lead(asdict(study.comparison)),
        "seconds": dict(study.seconds),
        "peak_memory_bytes": study.peak_memory,
        "versions": {"fedsim": fedsim.__version__},
    }
    finite: dict[str, Any] = strict_json(report)
    return finite


def _candidate(study: Study, candidate: Candidate) -> dict[str, Any]:
    pair, split, course = candidate.pair, study.known.split, candidate.course
    replaced = pair.replacement
    low, middle, high = np.quantile(course, QUANTILES, axis=0).tolist()
    return {
        "choice": candidate.choice,
        "place": candidate.place,
        "record": pair.record,
        "replacement": replaced,
        "dataset_record": int(split.members[pair.record]),
        "dataset_replacement": None if replaced is None else int(split.pool[replaced]),
        "label": int(split.members_records.labels[pair.record]),
        "replacement_label": (
            None if replaced is None else int(split.pool_records.labels[replaced])
        ),
        "owner": candidate.owner,
        "distance": pair.distance,
        "initial": candidate.initial.sensitivity,
        "rank": candidate.initial.rank,
        "percentile": study.truth.percentile(candidate.initial),
        "mean": float(course.mean()),
        "rms": float(np.sqrt(np.square(course).mean())),
        "largest": float(course.max()),
        "by_step": {"low": low, "median": middle, "high": high},
    }


def _measures(study: Study) -> dict[str, dict[str, Any]]:
    found = {} if study.comparison is None else study.comparison.correlations
    rows = {name: asdict(found[name]) for name in sorted(found, key=lambda name: -found[name].rho)}
    return rows | {name: {"refusal": reason} for name, reason in study.refusals.items()}


def _lead(comparison: dict[str, Any]) -> dict[str, Any]:
    del comparison["correlations"]
    return comparison


def write(study: Study, report: Report, directory: Path) -> Path:
    """Write report.html and report.json into a directory; return the page. Raises OSError."""
    return report_directory.write_report(directory, report, render_html(study, report))


def verdict(report: Report) -> str:
    """Return in a few sentences how good the choice was, and which dissimilarity predicts best."""
    chosen = report["pairs"][0]
    who = "pair" if report["neighbouring"] == "replace" else "record"
    sentences = [
        f"The challenge ({who} {CHOICES[chosen['choice']]}, {report['dissimilarity']}) has "
        f"{percent(report['reach'])} of the largest local sensitivity that any {who} has at the "
        f"first model: {number(chosen['initial'])} of {number(report['largest'])}, rank "
        f"{chosen['rank']:,} of {report['pairs_in_all']:,}.",
        f"Over {report['trials']} trainings of {report['steps']} steps its root mean square was "
        f"{number(chosen['rms'])}, of the {number(report['global_sensitivity'])} that clipping "
        "allows.",
    ]
    return " ".join([*sentences, _predicts_best(report)])


def _predicts_best(report: Report) -> str:
    comparison = report["comparison"]
    if comparison is None:
        return "No dissimilarity could be compared with local sensitivity."
    best, second = comparison["best"], comparison["runner_up"]
    row = report["measures"][best]
    sentence = (
        f"Of the dissimilarities, {best} orders {_compared(report)} most like their local "
        f"sensitivity does: rank correlation {number(row['rho'])} "
        f"({number(row['low'])} to {number(row['high'])} at {percent(report['confidence'])} "
        "confidence)"
    )
    if second is None:
        return f"{sentence}."
    led = "a lead" if comparison["lead_low"] > 0 else "which may be chance, a lead"
    return (
        f"{sentence}, {led} of {number(comparison['lead'])} over {second} "
        f"({number(comparison['lead_low'])} to {number(comparison['lead_high'])})."
    )


def _compared(report: Report) -> str:
    records, replacements = report["compared"]["records"], report["compared"]["replacements"]
    return f"{records} records" + ("" if replacements is None else f" × {replacements} others")


HEADINGS = (
    "",
    "record",
    "label",
    "replaced by",
    "label",
    "owner",
    "distance",
    "LS at θ0",
    "rank",
    "RMS LS",
)


def rows(report: Report) -> list[tuple[str, ...]]:
    """Return the pairs as texts, in the order of HEADINGS."""
    return [
        (
            _name(row),
            str(row["record"]),
            str(row["label"]),
            DASH if row["replacement"] is None else str(row["replacement"]),
            DASH if row["replacement"] is None else str(row["replacement_label"]),
            str(row["owner"]),
            number(row["distance"]),
            number(row["initial"]),
            f"{row['rank']:,}",
            number(row["rms"]),
        )
        for row in report["pairs"]
    ]


def _name(row: Report) -> str:
    """Word how a pair came in, such as "most dissimilar 2"."""
    if row["choice"] == "owner":
        return f"most dissimilar of owner {row['place']}"
    several = row["choice"] in ("max", "min")
    return f"{CHOICES[row['choice']]} {row['place']}" if several else CHOICES[row["choice"]]


def _correlation(row: Report) -> tuple[str, str]:
    if "refusal" in row:
        return DASH, row["refusal"]
    return number(row["rho"]), f"{number(row['low'])} to {number(row['high'])}"


def summary(report: Report) -> RenderableType:
    """Return what the terminal shows."""
    pairs = Table(title="Pairs, and the local sensitivity (LS) they have", title_justify="left")
    for i, heading in enumerate(HEADINGS):
        pairs.add_column(heading, justify="right" if i else "left")
    for row in rows(report):
        pairs.add_row(*row)
    measures = Table(
        title=f"Rank correlation with LS at θ0, of {_compared(report)}", title_justify="left"
    )
    for heading in ("dissimilarity", "ρ", f"{percent(report['confidence'])} interval"):
        measures.add_column(heading)
    for name, measure in report["measures"].items():
        measures.add_row(name, *_correlation(measure))
    return Group(Text(verdict(report)), pairs, measures, Text(LABEL))


def render_html(study: Study, report: Report) -> str:
    """Return the report as one HTML page that needs no other file, script or network."""
    is_image = study.known.split.dataset.kind == "image"
    return audit_page.render(
        PAGE,
        report=report,
        verdict=verdict(report),
        headings=HEADINGS,
        rows=rows(report),
        measures=[(name, *_correlation(row)) for name, row in report["measures"].items()],
        compared=_compared(report),
        pictures=_pictures(study) if is_image else [],
        attributes=[] if is_image else _attributes(study, report),
        courses=_courses(study, report),
        settings=_settings(report),
        confidence=percent(report["confidence"]),
        against="Typical of D" if report["neighbouring"] == "add-remove" else "Replacement",
        seconds=[(name, f"{value:.1f} s") for name, value in report["seconds"].items()],
    )


def _pictures(study: Study) -> list[tuple[str, Markup]]:
    """Return a figure of the pairs of each choice, with its caption."""
    drawn = []
    for choice in dict.fromkeys(candidate.choice for candidate in study.candidates):
        candidates = study.of(choice)
        pairs = [record_display.images(study.known.split, one.pair) for one in candidates]
        titles = [
            f"owner {one.owner}" if choice == "owner" else f"{one.pair.record}, owner {one.owner}"
            for one in candidates
        ]
        replaced = (
            " Above the record of D, below what replaces it." if pairs[0][1] is not None else ""
        )
        caption = f"{CHOICES[choice].capitalize()}.{replaced}"
        drawn.append((caption, inline(figures.record_pairs(titles, pairs), choice, caption)))
    return drawn


def _courses(study: Study, report: Report) -> list[tuple[str, Markup]]:
    return []


def _attributes(study: Study, report: Report) -> list[tuple[str, record_display.Differences]]:
    """Return in what the records of each pair differ, with the pair's name."""
    return [
        (_name(row), record_display.differences(study.known.split, candidate.pair))
        for row, candidate in zip(report["pairs"], study.candidates, strict=True)
        if candidate.choice != "owner"
    ]


def _settings(report: Report) -> list[tuple[str, str]]:
    keys = ("data", "records", "pool", "model", "neighbouring", "noise_scaled_to", "clipping_norm")
    keys += ("dissimilarity", "choice", "trials", "steps", "seed")
    rows = [(key.replace("_", " "), plain(report[key])) for key in keys]
    return [*rows, ("peak memory", f"{report['peak_memory_bytes'] / 2**20:.0f} MiB")]


PAGE = """\
{% extends "frame" %}
{% from "parts" import settings as listed, drawn %}
{% block title %}Dataset sensitivity of {{ report.name }}{% endblock %}
{% block kind %}Dataset sensitivity{% endblock %}
{% block heading %}{{ report.name }}{% endblock %}
{% block body %}
<section class="verdict"><p>{{ verdict }}</p></section>
<div class="label"><strong>A measurement.</strong> {{ report.label }}</div>

<h2>The pairs</h2>
<div class="table"><table>
<thead><tr>{% for heading in headings %}<th scope="col">{{ heading }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in rows %}
<tr><th scope="row">{{ row[0] }}</th>
{% for value in row[1:] %}<td class="limit">{{ value }}</td>{% endfor %}</tr>
{% endfor %}
</tbody></table></div>
<p class="meta">LS: local sensitivity, in the first step of the first training (θ0) and as root mean
square over {{ report.trials }} trainings of {{ report.steps }} steps. The rank is among all
{{ "{:,}".format(report.pairs_in_all) }}, 1 for the largest LS at θ0.</p>
{{ drawn(pictures) }}
{% for name, found in attributes %}
<h3>{{ name[0] | upper }}{{ name[1:] }}</h3>
<div class="table"><table class="attributes">
<thead><tr><th scope="col">Attribute</th><th scope="col">Record</th>
<th scope="col">{{ against }}</th></tr></thead>
<tbody>
{% for attribute in found.attributes %}
<tr><th scope="row">{{ attribute.name }}</th><td>{{ attribute.value }}</td>
<td>{{ attribute.other }}</td></tr>
{% endfor %}
</tbody></table></div>
<p class="meta">{{ found.attributes | length }} of {{ found.differing }} attributes that differ,
those that differ most.</p>
{% endfor %}

<h2>Which dissimilarity predicts local sensitivity</h2>
<div class="table"><table>
<thead><tr><th scope="col">Dissimilarity</th><th scope="col">Rank correlation</th>
<th scope="col">{{ confidence }} interval, or why there is none</th></tr></thead>
<tbody>
{% for name, rho, interval in measures %}
<tr><th scope="row">{{ name }}</th><td class="value">{{ rho }}</td><td>{{ interval }}</td></tr>
{% endfor %}
</tbody></table></div>
<p class="meta">Spearman's ρ with local sensitivity at θ0, of {{ compared }}. Intervals are
bootstrapped over records{% if report.compared.replacements %} and over replacements, because pairs
share them{% endif %}; each has its confidence by itself.</p>

<h2>Local sensitivity during training</h2>
{{ drawn(courses) }}

<h2>What was studied</h2>
{{ listed(settings) }}
<h3>Where the time went</h3>
{{ listed(seconds) }}
{% endblock %}
"""
