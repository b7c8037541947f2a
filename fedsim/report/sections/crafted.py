"""The section about a crafted target or a group of copies: bounds for one record."""

import math

from fedsim.audits.results.measured import Crafted
from fedsim.audits.results.report import Report
from fedsim.report.document.blocks import Block, Entries, Figure, Listing, Place, Prose
from fedsim.report.document.wording import number
from fedsim.report.figures import belief_figures
from fedsim.report.sections.facts import at_delta
from fedsim.report.sections.section import Section, Transcript

NAMES = {
    "identification": "ε of one record at least, by identification",
    "identification_mu_gdp": "The same counts, of a Gaussian mechanism",
    "identification_gaussian": "The same, were the log-odds normal",
    "released_model": "ε of one record at least, from the released model alone",
    "released_model_mu_gdp": "The same of a Gaussian mechanism, at its own threshold",
}
"""How the page words the lower bounds."""

MADE = (
    "The target was crafted to be noticed: the bounds say how identifiable a record "
    "can be under this noise, not how identifiable a record of these data is."
)

COPIED = (
    "D and D′ differ in all copies at once. The bounds of this page are for the group, except "
    "where they name one record: group privacy derives these."
)


def _entries(found: Crafted) -> Entries:
    copies, delta = found.copies, at_delta(found.delta)
    return [
        ("Target", f"{copies} × {found.description}"),
        *([] if found.label is None else [("Its label", str(found.label))]),
        ("First model", found.initialisation),
        (f"ε of one record {delta}", number(found.epsilon)),
        *([] if copies == 1 else [(f"ε of all {copies} {delta}", number(found.group_epsilon))]),
        *(
            (NAMES[name], f"{number(bound.epsilon)} ({bound.reason or bound.method})")
            for name, bound in found.lower_bounds.items()
        ),
    ]


def _title(report: Report) -> str:
    copied = report.challenge.kind == "record"
    return "Copies of one record" if copied else "What was put into D to be noticed"


def _words(report: Report) -> list[Block]:
    found = report.crafted
    if found is None:
        return []
    return [
        *([Prose(MADE)] if found.kind != "record" else []),
        *([Prose(COPIED)] if found.copies != 1 else []),
        Listing(_entries(found)),
        Place("poison"),
    ]


def _figures(report: Report, seen: Transcript) -> list[Figure]:
    if report.crafted is None or seen.poison_scores is None:
        return []
    details = report.crafted.lower_bounds["released_model"].details
    threshold = details.get("threshold", math.inf)
    return [
        Figure(
            "poison",
            belief_figures.poison_scores(
                seen.worlds, seen.poison_scores, threshold if math.isfinite(threshold) else None
            ),
            "Score of the released models.",
            "How far each trial's last model moved in the direction of the crafted target. Half of "
            "the trials chose the threshold; the bound counts the other half.",
        )
    ]


SECTION = Section(_title, _words, _figures)
