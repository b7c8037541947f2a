"""The section about theory: bounds of the audited vantage, the release, and the budget."""

import math
from collections.abc import Iterator

from fedsim.audits.results.report import Report
from fedsim.audits.run.cautions import UNCLIPPED
from fedsim.report.document.blocks import Block, Entries, Figure, Listing, Place, Prose
from fedsim.report.document.wording import number, plain
from fedsim.report.figures import bound_figures
from fedsim.report.sections.facts import clients_of, is_client, is_clipped, is_pac
from fedsim.report.sections.section import Section, Transcript


def released(report: Report) -> str:
    """Return the guarantee for everything released, as sentences; "" without a guarantee."""
    found = report.released
    if found is None or not report.mechanism.dp_guarantee:
        return ""
    count = found.trainings
    of = "the one training" if count == 1 else f"all {count} trainings together"
    return (
        f"DP guarantee for everything released, by {of}: ε = {number(found.epsilon)} at "
        f"δ = {plain(found.delta)} towards the {found.vantage}, "
        f"ρβ = {number(found.rho_beta)}."
        + f" The ε below, {number(found.epsilon_of_one_training)}, is for one training: the audit "
        "compares with it, and it is not the guarantee." * (count > 1) + f" {found.game}"
    )


def _bounds(report: Report) -> Entries:
    """Return the bounds of the audited vantage point, worded."""
    bounds = report.bounds
    return [
        *_single_records(report),
        (
            f"ε at δ = {plain(bounds.delta)}",
            f"{number(bounds.epsilon)}{_why_infinite(report)}, accountant {bounds.accountant}",
        ),
        ("ρβ, limit of the belief", f"{number(bounds.rho_beta)} (from the ε above)"),
        (
            "ρα, limit of the advantage",
            f"{number(bounds.rho_alpha)} "
            f"({'PAC privacy has one of its own' if is_pac(report) else 'from the noise used'})",
        ),
        (
            "Tail: how often the worst pair passes ρβ",
            f"{number(bounds.tail_probability)}; no pair in more than {number(bounds.tail_limit)}",
        ),
    ]


def _further(report: Report) -> Entries:
    """Return bounds by other arguments."""
    bounds = report.bounds
    return [
        ("ε by exact accounting", number(bounds.tight_epsilon)),
        ("ρβ by exact accounting", number(bounds.tight_rho_beta)),
        (
            "paper (Theorem 2), not a bound",
            f"{number(bounds.theorem2_rho_alpha)}: presumes the classic noise scale",
        ),
        ("Yeom's bound e^ε − 1, of pure ε", number(bounds.yeom_bound)),
    ]


def _why_infinite(report: Report) -> str:
    """Return in brackets why epsilon is infinite; "" for a finite epsilon."""
    if math.isfinite(report.bounds.epsilon):
        return ""
    if is_pac(report):
        why = "PAC noise hides nothing in directions in which the candidates agree"
    elif is_clipped(report):
        why = f"no noise hides {clients_of(report)} at this vantage"
    else:
        why = UNCLIPPED
    return f" ({why})"


def _single_records(report: Report) -> Entries:
    """Return what the protection of whole clients means for one record; nothing for other units."""
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
    """Return in a sentence what the rounds have spent, by which account, and what ended them."""
    found = report.budget
    trainings = 1 if report.released is None else report.released.trainings
    limit = f"privacy.stop-at = {number(found.stop_at)}"
    if found.stop_at_delta != found.delta:
        limit += f" at δ = {plain(found.stop_at_delta)}"
    if found.stopped:
        ending = f", where {limit} left no room for another" if found.stop_at else ""
    else:
        ending = f", within {limit}" if found.stop_at else "; no limit was set"
    before = ""
    if found.earlier_attempts:
        before += (
            f" Interrupted attempts had released {found.earlier_attempts} rounds before the first."
        )
    before += " The curve shows one training." * (trainings > 1)
    together = f" in all {trainings} trainings together" * (trainings > 1)
    whose = "a client's data have" if is_client(report) else "a person's record has"
    return (
        f"After {found.rounds_run} of {found.rounds_planned} planned rounds {whose} spent "
        f"ε = {number(found.spent)}{together} towards the vantage "
        f"{found.vantage} at δ = {plain(found.delta)} "
        f"(accountant {found.accountant}){ending}.{before}"
    )


def _words(report: Report) -> list[Block]:
    guaranteed = released(report)
    return [
        *([Prose(guaranteed)] if guaranteed else []),
        Listing(_bounds(report)),
        Place("budget", otherwise=_budget(report)),
    ]


def _figures(report: Report, _: Transcript) -> Iterator[Figure]:
    """Yield the budget; where every value is infinite the page says it in a sentence."""
    found, together = report.budget, report.released
    spent = found.epsilon_by_round
    if not any(map(math.isfinite, spent)):
        return
    comparable = found.stop_at_delta == found.delta
    alone = together is None or together.trainings == 1
    yield Figure(
        "budget",
        bound_figures.epsilons(
            range(1, 1 + len(spent)),
            {"ε spent": spent},
            found.stop_at if comparable and alone else None,
        ),
        "The running budget.",
        _budget(report),
    )


SECTION = Section("The bounds from theory", _words, lambda report, seen: [*_figures(report, seen)])
FURTHER = Section(
    "Further bounds from theory", lambda report: [Listing(_further(report))], specialist=True
)
