"""PAC privacy: what a run tells of the secret, and what that allows."""

from fedsim.audits.results.report import Report
from fedsim.report.document.blocks import Block, Entries, Listing, Prose
from fedsim.report.document.wording import number, percent, plain
from fedsim.report.sections.facts import is_halves, is_pac
from fedsim.report.sections.section import Section

MEANING = (
    "The mutual information between the secret and everything that was released bounds how often "
    "anybody guesses it: on average over the stated prior, not for each person and not in the "
    "worst case, and it is not differential privacy."
)


def _entries(report: Report) -> Entries:
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
    """Return what all trials told together; nothing where the noise is the seed's."""
    information = report.pac.released_information
    if information is None:
        return []
    return [(f"Told by all {report.trials} trials together", f"at most {number(information)} nats")]


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


def _words(report: Report) -> list[Block]:
    asked = is_pac(report) or report.pac.budgeted
    return [Prose(MEANING), Listing(_entries(report))] if asked else []


SECTION = Section("PAC privacy", _words, specialist=True)
