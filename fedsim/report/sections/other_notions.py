"""Statements beside differential privacy: Bayesian DP and PAC privacy."""

import math

from fedsim.audits.results.report import Report
from fedsim.audits.results.theory import Bayesian, OverTrials
from fedsim.audits.run.cautions import UNCLIPPED
from fedsim.report.document.blocks import Block, Entries, Figure, Listing, Place, Prose
from fedsim.report.document.wording import DASH, INFINITE, number, percent, plain, span
from fedsim.report.figures import bound_figures
from fedsim.report.sections.facts import at_delta, is_clipped, is_halves, is_pac
from fedsim.report.sections.section import Section, Transcript

FOR_WHOM = (
    "This statement is for a person whose record comes from the distribution of the training "
    "data. It is no guarantee for outliers. The gradient distances that it rests on were released "
    "without protection."
)

ADDS_NOTHING = (
    "Here it adds nothing to DP, whose ε is no larger and holds for every person. Either the "
    "gradients are nearly as long as clipping allows, or too few were compared, or this "
    "accountant's bound is looser than the privacy loss distribution of DP. (The bound is "
    "Chernoff's, and one by convexity under sampled replacement.)"
)


def _bayesian_entries(report: Report, found: Bayesian) -> Entries:
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
        ("ε of DP, for every person", epsilon(found.dp_epsilon)),
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


def _bayesian(report: Report) -> list[Block]:
    found = report.bayesian
    if found is None:
        return []
    said = [FOR_WHOM]
    if found.epsilon is not None:
        said.append(
            "With probability 1 − δ over the noise and over the choice of that person, the privacy "
            f"loss stays below the first ε. For each of {_share(found)} of such people, it stays "
            "below the second ε with that probability over the noise alone."
        )
        if found.dp_epsilon <= found.epsilon.mean:
            said.append(ADDS_NOTHING)
    return [*map(Prose, said), Listing(_bayesian_entries(report, found)), Place("bayesian")]


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
                    "DP, every person": found.by_round.dp_epsilon,
                },
            ),
            "Privacy spent, round by round.",
            f"ε at δ = {plain(found.delta)} by the Bayesian accountant (mean of {found.trials} "
            "trials) and by DP"
            + ("." if is_clipped(report) else ", which is infinite without clipping."),
        )
    ]


BAYESIAN = Section("Bayesian DP", _bayesian, _figures)


MEANING = (
    "The mutual information between the secret and everything released bounds how often any "
    "adversary guesses the secret. The bound is an average over the stated prior: it does not hold "
    "for each person or in the worst case, and it is not differential privacy."
)


def _pac_entries(report: Report) -> Entries:
    found = report.pac
    realised = found.realised_information
    return [
        ("Stated prior", f"{found.prior_description}: right in 50% by guessing"),
        (
            "Mutual information at most",
            f"{number(found.mutual_information)} nats over all rounds"
            + ("" if realised is None else f" (realised {number(realised)} by log det, mean)"),
        ),
        *_released(report),
        ("Success of any guess at most", percent(found.success_bound)),
        *_candidate(report),
        ("Success measured", percent(found.success)),
        (
            "Advantage at most",
            f"{number(found.advantage_bound)}"
            + ("" if is_pac(report) else f" (beside ρα {number(report.bounds.rho_alpha)})"),
        ),
        (
            "Equivalent ε, not a guarantee",
            f"{number(found.equivalent_epsilon)} at δ = {plain(found.delta)}: the ε whose bound on "
            "success is the same",
        ),
    ]


def _released(report: Report) -> Entries:
    """Return the information that all trials released; nothing with noise of the seed."""
    information = report.pac.released_information
    if information is None:
        return []
    return [
        (f"Released by all {report.trials} trials together", f"at most {number(information)} nats")
    ]


def _candidate(report: Report) -> Entries:
    """Return how often the secret one of several candidates can be named; nothing for a pair."""
    bound, candidates = report.pac.candidate_success_bound, report.pac.candidates
    if not is_halves(report) or bound is None:
        return []
    return [
        (
            f"Naming which of the {candidates} candidates",
            f"right at most in {percent(bound)}, in {percent(1 / candidates)} by guessing",
        )
    ]


def _pac(report: Report) -> list[Block]:
    asked = is_pac(report) or report.pac.budgeted
    return [Prose(MEANING), Listing(_pac_entries(report))] if asked else []


PAC = Section("PAC privacy", _pac, specialist=True)
