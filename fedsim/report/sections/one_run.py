"""The section about a one-run audit: bounds proven by canaries in a single training."""

import numpy as np

from adversaries.statistics.one_run import CanaryEstimate
from fedsim.audits.measurements.one_run_report import NAMES, leading
from fedsim.audits.results.measured import LowerBound, OneRun
from fedsim.audits.results.report import Report
from fedsim.report.document.blocks import Block, Entries, Figure, Listing, Place, Prose
from fedsim.report.document.wording import DASH, number, percent, plain, span
from fedsim.report.figures import belief_figures
from fedsim.report.sections.section import Section, Transcript


def headline(found: OneRun) -> LowerBound:
    """Return the leading bound of the headline's trial."""
    return found.bounds[leading(found.kind)]


def headline_name(found: OneRun) -> str:
    """Return the name of the leading bound."""
    return f"one-run {NAMES[leading(found.kind)]}"


def summary(found: OneRun) -> Entries:
    """Return the numbers for the terminal."""
    values = {name: number(bound.epsilon) for name, bound in found.bounds.items()}
    values["estimate"] = DASH if found.estimate.reason else number(found.estimate.epsilon)
    return [(f"ε one run, {NAMES[name]}", value) for name, value in values.items()]


def _entries(found: OneRun) -> Entries:
    limit = number(found.canary_epsilon)
    rows = [
        ("ε claimed, towards a participant", number(found.claimed_epsilon)),
        ("ε of one canary by the claimed noise", f"{limit} (μ = {number(found.canary_mu)})"),
    ]
    for name, bound in found.bounds.items():
        right, guesses = plain(bound.details["right"]), plain(bound.details["guesses"])
        said = (
            f"{number(bound.epsilon)} with {percent(bound.confidence)} confidence: {right} of "
            f"{guesses} guesses right. Assumes {bound.assumes}."
        )
        rows.append((f"ε at least, {NAMES[name]}", said))
    estimated = _estimated(found.estimate, found.confidence)
    rows.append(("ε estimated, no confidence statement", estimated))
    for name, spread in (found.spread or {}).items():
        between = f"90% of trials {number(spread.low)} to {number(spread.high)}"
        said = f"median {number(spread.median)}, {between}, {percent(spread.above)} above {limit}"
        rows.append((f"Over {found.trials} trials, {NAMES[name]}", said))
    return rows


def _estimated(estimate: CanaryEstimate, confidence: float) -> str:
    if estimate.reason:
        return f"none: {estimate.reason}"
    ends = estimate.epsilon_interval
    between = span((ends.low, ends.high), number)
    return (
        f"{number(estimate.epsilon)} (μ = {number(estimate.mu)}; {between} "
        f"at {percent(confidence)}). Presumes {estimate.assumes}"
    )


SCORED = {
    "sums": "its signal in the aggregates of all rounds",
    "loss": "the fall of its loss from the first model, which never saw it, to the last",
}
"""How canaries are scored, by `canaries.score`."""


def _reading(found: OneRun) -> list[str]:
    """Return sentences about the canaries, their scores, and the headline."""
    clients = ", ".join(map(str, found.clients))
    less = ", without the part of the data that the auditor knew" if found.known_data else ""
    return [
        f"{found.count} canaries of kind “{found.kind}” were planted at clients {clients}. A fair "
        "coin decided for each canary whether it took part in the whole training. The score of a "
        f"canary is {SCORED[found.score]}{less}. The headline is trial {found.headline_trial}, as "
        "decided before the run; every other trial is another such audit.",
        found.note,
        *([found.alarm] if found.alarm else []),
    ]


def _words(report: Report) -> list[Block]:
    found = report.one_run
    if found is None:
        return []
    return [*map(Prose, _reading(found)), Listing(_entries(found)), Place("one-run")]


def _figures(report: Report, _: Transcript) -> list[Figure]:
    found = report.one_run
    if found is None:
        return []
    scores = found.scores
    return [
        Figure(
            "one-run",
            belief_figures.canary_scores(
                np.asarray(scores.edges), np.asarray(scores.included), np.asarray(scores.excluded)
            ),
            "Canaries in and out.",
            f"Scores of the canaries of trial {found.headline_trial}. With less overlap, more "
            "canaries are guessed.",
        )
    ]


SECTION = Section("One-run audit", _words, _figures)
