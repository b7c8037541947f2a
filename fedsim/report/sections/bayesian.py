"""Bayesian DP: a statement for a person like those of the training data."""

import math

from fedsim.audits.results.report import Report
from fedsim.audits.results.theory import Bayesian, OverTrials
from fedsim.audits.run.cautions import UNCLIPPED
from fedsim.report.document.blocks import Block, Entries, Figure, Listing, Place, Prose
from fedsim.report.document.wording import DASH, INFINITE, number, plain, span
from fedsim.report.figures import bound_figures
from fedsim.report.sections.facts import at_delta, is_clipped
from fedsim.report.sections.section import Section, Transcript

FOR_WHOM = (
    "A statement for a person whose record comes from the same distribution as the training "
    "data; no guarantee for outliers, and the distances that it rests on were themselves "
    "released without protection."
)

ADDS_NOTHING = (
    "Here it adds nothing to DP, whose ε is no larger and holds for everybody: the "
    "gradients are nearly as long as clipping allows, or too few were compared, or this "
    "accountant's bound (Chernoff's, and under sampled replacement one by convexity) is "
    "looser than the loss distribution that DP is accounted by."
)


def _entries(report: Report, found: Bayesian) -> Entries:
    replaced, delta = report.neighbouring == "replace", at_delta(found.delta)
    reason = "" if is_clipped(report) else f" ({UNCLIPPED})"

    def over_trials(epsilons: OverTrials | None) -> str:
        if epsilons is None:
            return DASH
        largest = number(epsilons.max)
        return f"{number(epsilons.mean)} (mean of {found.trials} trials; largest {largest})"

    def epsilon(value: float | None) -> str:
        return f"{INFINITE}{reason}" if value == math.inf else number(value)

    rows = [
        (f"Bayesian ε {delta}", over_trials(found.epsilon)),
        (
            f"Bayesian ε, each of {_share(found)} of people",
            over_trials(found.epsilon_at_percentile),
        ),
        ("ε of DP, everybody", epsilon(found.dp_epsilon)),
        ("Bayesian ε were all gradients at the bound", epsilon(found.worst_case_epsilon)),
        (
            "Estimated from",
            f"{found.pairs} {'pairs of records' if replaced else 'records'} in every "
            f"round; γ = {number(found.gamma)} of δ is for the estimate's failure",
        ),
        ("Orders λ that decided", span(found.orders, number) or DASH),
    ]
    return rows + ([("Note", found.note)] if found.note else [])


def _share(found: Bayesian) -> str:
    return f"{100 * found.percentile:g}%"


def _words(report: Report) -> list[Block]:
    found = report.bayesian
    if found is None:
        return []
    said = [FOR_WHOM]
    if found.epsilon is not None:
        said.append(
            "With probability 1 − δ, over the noise and over who that person is, the privacy loss "
            f"stays below the first ε; for each single one of {_share(found)} of such people, over "
            "the noise alone, below the second."
        )
        if found.dp_epsilon <= found.epsilon.mean:
            said.append(ADDS_NOTHING)
    return [*map(Prose, said), Listing(_entries(report, found)), Place("bayesian")]


def _figures(report: Report, _: Transcript) -> list[Figure]:
    found = report.bayesian
    if found is None or found.by_round is None:
        return []
    return [
        Figure(
            "bayesian",
            bound_figures.epsilons(
                found.by_round.rounds,
                {
                    "Bayesian": found.by_round.epsilon,
                    f"Bayesian, each of {_share(found)}": found.by_round.epsilon_at_percentile,
                    "DP, everybody": found.by_round.dp_epsilon,
                },
            ),
            "Privacy spent, round by round.",
            f"ε at δ = {plain(found.delta)}: the Bayesian accountant's, as the "
            f"mean of {found.trials} trials, beside that of DP"
            + ("." if is_clipped(report) else ", which is infinite without clipping."),
        )
    ]


SECTION = Section("Bayesian DP", _words, _figures)
