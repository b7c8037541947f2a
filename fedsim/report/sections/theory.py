"""Sections about theory: bounds, the release, the budget and Bayesian DP."""

import math
from collections.abc import Iterator

from fedsim.audits.results.report import Report
from fedsim.audits.results.theory import Bayesian, OverTrials
from fedsim.audits.run.guarantee import UNCLIPPED
from fedsim.report.document.blocks import Block, Entries, Figure, Listing, Place, Prose
from fedsim.report.document.wording import DASH, INFINITE, counted, number, percent, plain, span
from fedsim.report.figures import run_figures
from fedsim.report.sections.section import (
    Section,
    SectionTranscript,
    at_delta,
    clients_of,
    is_client,
    is_clipped,
    is_sampled,
)


def released(report: Report) -> str:
    total = report.released
    if total is None or not report.mechanism.dp_guarantee:
        return ""
    count = total.trainings
    of = "the one training" if count == 1 else f"all {count} trainings together"
    return (
        f"DP guarantee for everything released, by {of}: ε = {number(total.epsilon)} at "
        f"δ = {plain(total.delta)} towards the {total.vantage.replace('-', ' ')}."
    )


def _bounds(report: Report) -> Entries:
    bounds, accounted = report.bounds, report.accounted
    return [
        *_single_records(report),
        (
            f"ε at δ = {plain(bounds.delta)}",
            f"{number(accounted.epsilon)}{_why_infinite(report)}, accountant {bounds.accountant}",
        ),
        ("ρβ = 1 / (1 + e^−ε)", number(accounted.rho_beta)),
        (
            "How often the belief exceeds ρβ",
            f"{percent(bounds.tail_probability)} for the record that changes the sums most; at "
            f"most {percent(accounted.exceeded)} for any record",
        ),
        *(
            [("ε by exact accounting", number(report.here.limit.epsilon))]
            if bounds.accounted
            else []
        ),
        (
            "Bernau et al., Theorem 2",
            f"{number(bounds.theorem2_rho_alpha)} (not a bound, except for the classic noise scale "
            "of a single step)",
        ),
        ("Yeom's bound e^ε − 1, for pure ε", number(bounds.yeom_bound)),
    ]


def _why_infinite(report: Report) -> str:
    if math.isfinite(report.accounted.epsilon):
        return ""
    if is_clipped(report):
        why = f"no noise hides {clients_of(report)} at this vantage"
    else:
        why = UNCLIPPED
    return f" ({why})"


def _single_records(report: Report) -> Entries:
    if not is_client(report) or report.mechanism.sensitivity == "local":
        return []
    multiplier = report.mechanism.effective_noise_multiplier
    halved = report.neighbouring != "replace"
    if multiplier is not None and halved:
        multiplier /= 2
    return [
        ("Unit of privacy", "all data of one client"),
        (
            "What follows for one record",
            f"replace neighbours at noise multiplier {number(multiplier)}: any change to one "
            "client's records moves its clipped update by at most 2C"
            + (", which is two sensitivities" if halved else ", which is the sensitivity"),
        ),
    ]


def _budget(report: Report) -> str:
    budget = report.budget
    trainings = 1 if report.released is None else report.released.trainings
    limit = f"privacy.stop-at = {number(budget.stop_at)}"
    if budget.stop_at_delta != budget.delta:
        limit += f" at δ = {plain(budget.stop_at_delta)}"
    if budget.stopped:
        ending = f"; {limit} left no room for another round" if budget.stop_at else ""
    else:
        ending = f", within {limit}" if budget.stop_at else "; no budget was set"
    before = ""
    if budget.earlier_attempts:
        released = counted(budget.earlier_attempts, "round")
        before += f" Before that, interrupted attempts had released {released}."
    before += " The curve shows one training." * (trainings > 1)
    together = f" in all {trainings} trainings together" * (trainings > 1)
    who = "a client's data" if is_client(report) else "a person's record"
    spent = f"{who} {'have' if is_client(report) else 'has'} spent"
    if report.noise_source == "seed" and math.isfinite(report.spent):
        spent = f"with secret noise {who} would have spent"
    return (
        f"After {budget.rounds_run} of {budget.rounds_planned} planned rounds, {spent} "
        f"ε = {number(report.spent)}{together} towards the {budget.vantage.replace('-', ' ')} at "
        f"δ = {plain(budget.delta)} "
        f"(accountant {budget.accountant}){ending}.{before}"
    )


SECRET_SAMPLE = (
    "Poisson sampling: the bounds require that it stays secret whether the target took part in a "
    "round. The adversary is assumed to know this of everybody else."
)

SHARED_COINS = (
    "All trials share the coins of the other clients, so measurements are conditional on these "
    "coins."
)

PUBLIC_JOINING = (
    "Which clients joined a round counts as public, and amplifies no privacy. The target is "
    "charged for the rounds that its client joined."
)


def _assumed(report: Report) -> list[str]:
    """Return what the bounds assume of sampled rounds."""
    sampled, public = is_sampled(report), report.mechanism.joining_rate < 1
    shared = sampled and is_client(report)
    return [SECRET_SAMPLE] * sampled + [SHARED_COINS] * shared + [PUBLIC_JOINING] * public


def _words(report: Report) -> list[Block]:
    guaranteed, game = released(report), report.released.game if report.released else ""
    return [
        *([Prose(f"{guaranteed} {game}")] if guaranteed else []),
        *map(Prose, _assumed(report)),
        Listing(_bounds(report)),
        Place("budget", otherwise=_budget(report)),
    ]


def _figures(report: Report, _: SectionTranscript) -> Iterator[Figure]:
    budget, together = report.budget, report.released
    spent = budget.epsilon_by_round
    if not any(map(math.isfinite, spent)):
        return
    comparable = budget.stop_at_delta == budget.delta
    alone = together is None or together.trainings == 1
    yield Figure(
        "budget",
        run_figures.epsilons(
            range(1, 1 + len(spent)),
            {"ε spent": spent},
            budget.stop_at if comparable and alone else None,
        ),
        "The running budget.",
        _budget(report),
    )


SECTION = Section("Theory and the running budget", _words, _figures, specialist=True)
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


def _bayesian_entries(report: Report, spent: Bayesian) -> Entries:
    replaced, delta = report.neighbouring == "replace", at_delta(spent.delta)
    reason = "" if is_clipped(report) else f" ({UNCLIPPED})"

    def over_trials(epsilons: OverTrials | None) -> str:
        if epsilons is None:
            return DASH
        largest = number(epsilons.max)
        return f"{number(epsilons.mean)} (mean of {spent.trials} trials; largest {largest})"

    def epsilon(value: float | None) -> str:
        return f"{INFINITE}{reason}" if value == math.inf else number(value)

    rows = [
        (f"Bayesian ε {delta}", over_trials(spent.epsilon)),
        (
            f"Bayesian ε, each of {_share(spent)} of people",
            over_trials(spent.epsilon_at_percentile),
        ),
        ("ε of DP, for every person", epsilon(spent.dp_epsilon)),
        ("Bayesian ε if all gradients reached the bound", epsilon(spent.worst_case_epsilon)),
        (
            "Estimated from",
            f"{spent.pairs} {'pairs of records' if replaced else 'records'} in every "
            f"round; γ = {number(spent.gamma)} of δ covers a failure of the estimate",
        ),
        ("Orders λ that decided", span(spent.orders, number) or DASH),
    ]
    return rows + ([("Note", spent.note)] if spent.note else [])


def _share(spent: Bayesian) -> str:
    return f"{100 * spent.percentile:g}%"


def _bayesian(report: Report) -> list[Block]:
    spent = report.bayesian
    if spent is None:
        return []
    sentences = [FOR_WHOM]
    if spent.epsilon is not None:
        sentences.append(
            "With probability 1 − δ over the noise and over the choice of that person, the privacy "
            f"loss stays below the first ε. For each of {_share(spent)} of such people, it stays "
            "below the second ε with that probability over the noise alone."
        )
        if spent.dp_epsilon <= spent.epsilon.mean:
            sentences.append(ADDS_NOTHING)
    return [*map(Prose, sentences), Listing(_bayesian_entries(report, spent)), Place("bayesian")]


def _bayesian_figures(report: Report, _: SectionTranscript) -> list[Figure]:
    spent = report.bayesian
    if spent is None or spent.by_round is None:
        return []
    return [
        Figure(
            "bayesian",
            run_figures.epsilons(
                spent.by_round.rounds,
                {
                    "Bayesian": spent.by_round.epsilon,
                    f"Bayesian, each of {_share(spent)}": spent.by_round.epsilon_at_percentile,
                    "DP, every person": spent.by_round.dp_epsilon,
                },
            ),
            "Privacy spent, round by round.",
            f"ε at δ = {plain(spent.delta)} by the Bayesian accountant (mean of {spent.trials} "
            "trials) and by DP"
            + ("." if is_clipped(report) else ", which is infinite without clipping."),
        )
    ]


BAYESIAN = Section("Bayesian DP", _bayesian, _bayesian_figures)
