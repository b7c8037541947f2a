"""The report of a transcript: a page, a table on the terminal, and report.json beside them.

It words what `fedsim.audits.recorded.audit` found; it computes nothing.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedsim.audits.judgement.verdict import stated
from fedsim.audits.recorded.transcript_release import worst
from fedsim.audits.results import verdict_states as states
from fedsim.audits.results.verdict_states import StateWords
from fedsim.common import report_directory
from fedsim.common.strict_json import report_json
from fedsim.report.figures import belief_figures, training_figures
from fedsim.report.pages import audit_page
from fedsim.report.pages.pictures import inline
from fedsim.report.pages.wording import DASH, number, percent, plain, would_have_seen

Report = Mapping[str, Any]

COLOURS = {"alarm": "bold red", "caution": "yellow", "note": "dim"}


def write(report: Report, directory: Path) -> Path:
    """Write report.html and report.json into a directory; return the path of the page.

    Args:
        report: as `audit.audit` returns it.
        directory: made if it is not there.

    Raises:
        InputError: the directory is a link.
        OSError: it cannot be written.
    """
    return report_directory.write_report(directory, report_json(report), render_html(report))


def state(report: Report) -> StateWords:
    """Return how what was measured stands to what is claimed of the noise.

    Args:
        report: as `audit.audit` returns it.
    """
    release = report["release"]
    if any(one["severity"] == "alarm" for one in report["findings"]):
        return states.CONTRADICTS
    if release is None:
        return states.NOT_MEASURED if report["canary"] is None else states.CANNOT_TELL
    if release["noise"] == "none":
        return states.NO_PROTECTION
    if not release["clipped"]:
        return states.NO_GUARANTEE
    told = release["noise"] in ("as claimed", "more")
    return states.NOT_CONTRADICTED if told else states.CANNOT_TELL


def verdict(report: Report) -> str:
    """Return the answer in one sentence or two."""
    release, canary, delta = report["release"], report["canary"], report["delta"]
    said = [f"{state(report).text}.", *stated(report)]
    if release is not None and release["noise"] == "none":
        said.append(
            "No noise is added to the updates as they were sent: of these epsilon is infinite, and "
            f"certain of every client is {release['towards']}. Noise that clients add before is "
            "not seen from here."
        )
    elif release is not None and "steps" in release:
        said.append(_of_steps(release, delta))
    elif release is not None:
        client = worst(release)
        said.append(
            f"Of node {client['node']}, the least protected client, {release['towards']}, learnt "
            f"epsilon {number(client['epsilon']['point'])} at delta {delta:g} in "
            f"{client['rounds']} rounds, and believes with "
            f"{_belief(client['belief'][-1], release)} that it took part."
        )
    if canary is not None:
        low, high = (number(canary["mu"][end]) for end in ("low", "high"))
        said.append(
            f"Canaries measured mu {low} to {high} of one round, towards {canary['towards']}."
        )
    if state(report) is states.NOT_CONTRADICTED:
        said.append(would_have_seen(release["seen_below"]))
    if release is None and canary is None:
        said.append("Nothing could be measured from this vantage point.")
    return " ".join(said)


def _of_steps(release: Report, delta: float) -> str:
    """Return what a training loop's steps gave of a record."""
    how = "with batches as declared" if release["amplified"] else "without amplification"
    return (
        f"Of a {release['unit']}, {release['towards']}, learns epsilon "
        f"{number(release['epsilon']['point'])} at delta {delta:g} at most in "
        f"{release['steps']} steps, {how}."
    )


def _client_rows(report: Report) -> list[list[str]]:
    """Return the table of clients: node, rounds, weight, epsilon, its ends, belief, rho_beta."""
    release = report["release"]
    if release is None:
        return []
    return [
        [
            str(client["node"]),
            str(client["rounds"]),
            number(client["largest_weight"]),
            number(client["epsilon"]["point"]),
            f"{number(client['epsilon']['low'])} to {number(client['epsilon']['high'])}",
            _belief(client["belief"][-1], release),
            _belief(client["rho_beta"], None if client["unbounded"] else release),
        ]
        for client in release["clients"]
    ]


def _belief(value: float, release: Report | None) -> str:
    """Word a belief, which rounds to certainty but is none as long as there is noise."""
    if value == 1 and release is not None and release["noise"] != "none":
        return ">99.9%"
    return percent(value)


CLIENT_HEADINGS = ["node", "rounds", "weight", "ε", "interval", "belief", "ρβ"]


def _noise_rows(report: Report) -> list[tuple[str, str]]:
    """Return what was measured of the noise, name by name."""
    release = report["release"]
    if release is None:
        return []
    rows = [("noise", release["noise"]), ("parameters", plain(release["parameters"]))]
    if ends := release["noise_multiplier"]:
        rows.append(("noise multiplier, configured", number(release["claimed_noise_multiplier"])))
        rows.append(("noise multiplier, measured", number(ends["point"])))
        rows.append(("its interval", f"{number(ends['low'])} to {number(ends['high'])}"))
    if "steps" in release:
        rows += _step_rows(release)
    if "weighting" in release:
        rows.append(
            ("weights of the mean", f"{release['weighting']} ({release['weighting_basis']})")
        )
    if release["empirical"]:
        scores = release["empirical"]
        rows.append(
            (
                "one release, clients found",
                f"{scores['true_positives']} of {scores['members']}; false alarms "
                f"{scores['false_positives']} of {scores['bystanders']}",
            )
        )
        for name, bound in scores["lower_bounds"].items():
            title = f"one release, ε at least ({name.replace('_', '-')})"
            rows.append((title, DASH if bound["reason"] else number(bound["epsilon"])))
    return rows


def _step_rows(release: Report) -> list[tuple[str, str]]:
    """Return what was measured of a training loop, name by name."""
    ends, sampling, told = release["epsilon"], release["sampling"], release["accountants"]
    rows = [
        ("steps", plain(release["steps"])),
        ("ε of all steps", number(ends["point"])),
        ("its interval ", f"{number(ends['low'])} to {number(ends['high'])}"),
    ]
    if sampling is not None:
        shown = f"{sampling['rate']:.4g}, declared {sampling['declared']:.4g}"
        rows.append(("sampling rate", shown))
        rows.append(("variance of batch sizes", f"{sampling['dispersion']:.3g} × Poisson's"))
        rows.append(("sizes as declared, p", number(sampling["p_value"])))
    if told is not None:
        rows.append(("engines", plain(told["engines"])))
        rows.append(("ε by the accountant's last word", number(told["last_word"])))
        rows.append(("ε by all that accountants were told", number(told["all_steps"])))
        rows.append(("the same, at the noise measured", number(told["at_measured_noise"])))
    return rows


def _canary_rows(report: Report) -> list[tuple[str, str]]:
    """Return what canaries measured, name by name."""
    canary = report["canary"]
    if canary is None:
        return []
    rows = [("rounds scored", f"{canary['rounds']}, {canary['loud']} of them loud")]
    if canary["reason"]:
        rows.append(("no estimate", canary["reason"]))
    for title, name in (
        ("μ of one round", "mu"),
        ("ε of one round", "epsilon_one_round"),
        ("ε of all rounds", "epsilon_all_rounds"),
    ):
        point, low, high = (canary[name][end] for end in ("point", "low", "high"))
        shown = DASH if canary["reason"] else number(point)
        rows.append((title, f"{shown} ({number(low)} to {number(high)})"))
    rows.append(("rank test, p", number(canary["p_value"])))
    proven = number(canary["epsilon_proven_one_round"])
    guessed = f"{canary['right_guesses']} of {canary['guesses']} coins guessed"
    rows.append(("ε of one round, proven", f"at least {proven}: {guessed}"))
    return rows


def summary(report: Report) -> RenderableType:
    """Return what the terminal shows."""
    parts: list[RenderableType] = [Text(verdict(report))]
    level = percent(report["confidence"])
    if rows := _client_rows(report):
        table = Table(title=f"epsilon at delta {report['delta']:g}", title_justify="left")
        for heading in CLIENT_HEADINGS:
            table.add_column(heading, justify="right")
        for row in rows:
            table.add_row(*row)
        parts.append(table)
    if measured := [*_noise_rows(report), *_canary_rows(report)]:
        table = Table(show_header=False, caption=f"intervals and bounds at {level}")
        for name, value in measured:
            table.add_row(name, value)
        parts.append(table)
    for finding in report["findings"]:
        parts.append(Text(_sentence(finding), COLOURS[finding["severity"]]))
    return Group(*parts)


def _sentence(finding: Report) -> str:
    """Return a finding as a line."""
    rounds = finding["rounds"]
    shown = ", ".join(map(str, rounds[:8])) + (", ..." if len(rounds) > 8 else "")
    where = f" (round {shown})" if rounds else ""
    return f"{finding['severity'].capitalize()}: {finding['why']}{where}."


def render_html(report: Report) -> str:
    """Return the report as one HTML page that needs no other file, script or network.

    Args:
        report: as `audit.audit` returns it.
    """
    release, canary = report["release"] or {}, report["canary"] or {}
    return audit_page.render(
        PAGE,
        report=report,
        seen="steps. The unit of privacy is a " + release["unit"]
        if "steps" in release
        else "rounds. The unit of privacy is a client's update",
        verdict=verdict(report),
        findings=[(one["severity"], _sentence(one)) for one in report["findings"]],
        alarming=any(one["severity"] == "alarm" for one in report["findings"]),
        headings=CLIENT_HEADINGS,
        clients=_client_rows(report),
        noise=_noise_rows(report),
        canary=_canary_rows(report),
        figures=_figures(report),
        assumptions=[*release.get("assumptions", []), *canary.get("assumptions", [])],
        mechanism=[(name, plain(value)) for name, value in report["mechanism"].items()],
        facts=[(name, plain(value)) for name, value in report["facts"].items()],
        confidence=percent(report["confidence"]),
    )


def _figures(report: Report) -> list[tuple[str, Any]]:
    drawn = []
    release, canary = report["release"], report["canary"]
    if release is not None:
        rounds = np.array(release["round_numbers"])
        beliefs = {f"node {one['node']}": np.array(one["belief"]) for one in release["clients"]}
        caption = "How sure the adversary is that a client took part, who knows all other updates."
        if beliefs:
            drawn.append((caption, belief_figures.client_beliefs(rounds, beliefs)))
        ends = [[one[end] for one in release["left_over_interval"]] for end in ("low", "high")]
        claims = release["claimed_std"]
        claimed = None if None in claims else np.array(claims, float)
        measured = np.array(release["left_over_std"])
        spread = np.array(ends, float)
        spread[np.isinf(spread)] = np.nan
        caption = "What is left over of the aggregate when all known updates are subtracted."
        drawn.append((caption, training_figures.realised_noise(rounds, measured, spread, claimed)))
    if canary is not None:
        rounds, belief = np.array(canary["round_numbers"]), np.array(canary["belief"])
        right = np.where(canary["coins"], belief, 1 - belief)
        caption = "Belief in the side that the coin really showed, judged by earlier rounds alone."
        drawn.append((caption, belief_figures.client_beliefs(rounds, {"the canary": right})))
    return [
        (caption, inline(figure, f"figure-{place}", caption))
        for place, (caption, figure) in enumerate(drawn)
    ]


PAGE = """\
{% extends "frame" %}
{% from "parts" import settings, drawn, tabulated %}
{% block title %}{{ report.facts.app or "Flower app" }} – audit of a transcript{% endblock %}
{% block kind %}Audit of a transcript{% endblock %}
{% block heading %}{{ report.facts.app or "A Flower app" }}{% endblock %}
{% block meta %}
<p class="meta">Vantage: {{ report.facts.vantage }}; {{ report.rounds }} {{ seen }}.</p>
{% endblock %}
{% block body %}
<section class="verdict{{ ' alarm' if alarming else '' }}"><p>{{ verdict }}</p></section>
{% for severity, text in findings %}
<div class="label{{ ' alarm' if severity == 'alarm' else '' }}">{{ text }}</div>
{% endfor %}
{% if clients %}
<h2>How identifiable is each client?</h2>
<p>Epsilon at delta {{ report.delta }} of all recorded rounds, under the noise that was measured.
The belief is what the adversary came to in this run; ρβ is what epsilon allows it, but for the tail
that delta stands for.</p>
{{ tabulated(headings, clients) }}
{% endif %}
{% if noise %}
<h2>The noise that was there</h2>
<p>Intervals and lower bounds hold with {{ confidence }} confidence.</p>
{{ settings(noise) }}
{% endif %}
{% if canary %}
<h2>What canaries measured</h2>
{{ settings(canary) }}
{% endif %}
{{ drawn(figures) }}
{% if assumptions %}
<h2>What this presumes</h2>
<ul>
{% for text in assumptions %}
<li>{{ text }}</li>
{% endfor %}
</ul>
{% endif %}
<h2>What was recorded</h2>
{{ settings(facts) }}
{{ settings(mechanism) }}
{% endblock %}
"""
