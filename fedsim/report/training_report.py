"""The report of a training, for whoever runs the server: what may be shared, and what may not.

What the rounds released is public by their guarantee: the model and its card. What the server alone
knows is not: which client was missing when and why, and what each client's messages look like.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from fedsim.audits.results import verdicts
from fedsim.audits.results.model_card import ModelCard
from fedsim.audits.results.verdicts import StateWords
from fedsim.common import report_directory
from fedsim.common.strict_json import report_json
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.game.observers.noise_watch import alarms
from fedsim.report import model_card
from fedsim.report.document.blocks import (
    Block,
    Document,
    Figure,
    FirstScreen,
    Heading,
    Label,
    Prose,
    tabulated,
)
from fedsim.report.document.html import render
from fedsim.report.document.wording import number
from fedsim.report.figures import training_figures

KIND = "training"

Report = dict[str, Any]

PUBLIC = (
    "What may be handed on is in public/: the model, its description and its card. All of it "
    "follows from what the rounds released, of which epsilon speaks."
)

CONFIDENTIAL = (
    "The rest of this directory, with this page, is for whoever runs the server: it says which "
    "client answered when, and what the messages of each look like."
)


def write(directory: RunDirectory) -> Report:
    """Write report.html and report.json of a training that has its card, and return the report."""
    card, report = model_card.read(directory), assemble(directory)
    with report_directory.refusing(directory.path):
        page = render_html(report, card)
        report_directory.write_report(directory.path, report_json(report), page)
    return report


def assemble(directory: RunDirectory) -> Report:
    """Return what the server knows of a training beyond its card."""
    rounds: dict[int, Report] = {}
    missing = []
    for event, _ in directory.events():
        if "round" in event:
            rounds[event["round"]] = event  # of a round that was repeated, the last
        if "dropped" in event or "silent" in event:
            who = event.get("dropped", event.get("silent"))
            missing.append({"client": who, "of": event["of"], "reason": event["reason"]})
    course = [_of_round(event) for _, event in sorted(rounds.items())]
    contradictions = _alarms(course[-1]) if course else []
    return {
        "kind": KIND,
        "name": directory.config.run.name,
        "alarms": len(contradictions),
        "contradictions": contradictions,
        "rounds": course,
        "missing": missing,
    }


def _alarms(last: Report) -> list[str]:
    """Return the alarms after the last round, which keeps those of all rounds before it."""
    limits = last.get("noise_at_most", {})
    beyond = [name for name, limit in limits.items() if limit <= 1]  # of runs that noted no more
    return alarms(last.get("noise_accused", beyond), limits)


def _of_round(event: Report) -> Report:
    kept = ("round", "time", "loss", "accuracy", "epsilon", "noise_at_most", "noise_accused")
    found = {name: event[name] for name in kept if name in event}
    if limits := found.get("noise_at_most"):
        # An event has null for infinity.
        found["noise_at_most"] = {
            name: math.inf if limit is None else limit for name, limit in limits.items()
        }
    return found


def render_html(report: Report, card: ModelCard) -> str:
    """Return the report as one HTML page that needs no other file, script or network."""
    server = card.privacy.towards[0]
    spent = " or ".join(f"{number(value)} ({name})" for name, value in server.epsilon.items())
    said = [
        f"{state(report, card).text}.",
        f"{card.clients} clients trained a {card.network} in {card.rounds} rounds. Towards the "
        f"{server.vantage} epsilon is {spent} at delta {card.privacy.delta:g}.",
    ]
    if not card.privacy.guaranteed:
        said.insert(1, f"No guarantee of differential privacy. {card.privacy.note}")
    if card.utility is not None:
        said.append(model_card.learning(card.utility))
    blocks: list[Block] = [Label("", text, alarming=True) for text in report["contradictions"]]
    blocks += [Prose(PUBLIC), Prose(CONFIDENTIAL), *_figures(report)]
    if card.utility is not None:
        blocks += model_card.quality_of(card.utility, str)
    if report["missing"]:
        missing = [
            [
                "somebody" if one["client"] is None else f"client-{one['client']}",
                str(one["of"]),
                one["reason"],
            ]
            for one in report["missing"]
        ]
        blocks += [Heading("Who was missing"), tabulated(["client", "of", "reason"], missing)]
    return render(
        Document(
            f"Training {report['name']}", "Training", report["name"], FirstScreen(said), blocks
        )
    )


def state(report: Report, card: ModelCard) -> StateWords:
    """Return how the noise of the sums, where it was watched, stands to what is claimed."""
    if report["alarms"]:
        return verdicts.CONTRADICTS
    if not card.privacy.guaranteed:
        return verdicts.NO_GUARANTEE
    watched = bool(report["rounds"]) and bool(report["rounds"][-1].get("noise_at_most"))
    return verdicts.NOT_CONTRADICTED if watched else verdicts.NOT_MEASURED


def _figures(report: Report) -> Iterator[Figure]:
    rounds = report["rounds"]
    numbers = np.array([each["round"] for each in rounds], dtype=np.int64)
    if rounds and "accuracy" in rounds[-1]:
        curves = [
            {end: [each.get(name) for each in rounds] for end in ("mean", "low", "high")}
            for name in ("accuracy", "loss")
        ]
        caption = "Accuracy and loss (nats) on held-out records, after every round."
        figure = training_figures.utility(numbers.tolist(), *curves)
        yield Figure("utility", figure, "", caption)
    if rounds and rounds[-1].get("noise_at_most"):
        names = rounds[-1]["noise_at_most"]
        limits = {
            name: np.array([each.get("noise_at_most", {}).get(name, math.inf) for each in rounds])
            for name in names
        }
        caption = "How many times the claimed noise there is at most, by released sums and message."
        yield Figure("noise", training_figures.noise_limits(numbers, limits), "", caption)
