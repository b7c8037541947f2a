"""The verdict: every vantage with its state, four lines each, and the organisation's own limits."""

from fedsim.audits.results.report import Report
from fedsim.audits.results.verdicts import VantageVerdict
from fedsim.report.document.blocks import Block, Cell, Group, Line, Listing, Prose, Table
from fedsim.report.document.wording import number, percent, span
from fedsim.report.sections import vantage_words
from fedsim.report.sections.answer import game
from fedsim.report.sections.facts import (
    challenge_of,
    confidence_of,
    measure,
    worths_in_full,
)
from fedsim.report.sections.section import Section
from fedsim.report.sections.vantage_words import NAMES

HEADINGS = "Who looks", "Advantage", "Belief", "ε", "Reading"

OF_THE_MODEL = "Can someone who has only the final model tell who was in the training data?"


def by_the_model(report: Report) -> str:
    """Return in sentences what the attack on the target says of the final model alone."""
    (verdict,) = (found for found in report.verdicts if found.vantage == "released-model")
    measured, allowed = verdict.measured, verdict.allowed
    bound = (
        "theory sets no limit"
        if allowed.kind == "none"
        else f"theory allows right answers in at most {percent((1 + allowed.advantage) / 2)}"
    )
    if measured is None or measured.advantage is None or measured.interval is None:
        return (
            f"Not measured here. About the presence of any one person, {bound}; a coin is right in "
            f"50%. {vantage_words.MEASURES_ALL} measures it, where an attack on the target exists."
        )
    right, ends = (1 + measured.advantage) / 2, [(1 + end) / 2 for end in measured.interval]
    return (
        f"The attack that was declared beforehand was right about {challenge_of(report)} in "
        f"{percent(right)} of {measured.trials} trials ({confidence_of(report)}interval "
        f"{span((ends[0], ends[1]), percent)}, over trainings); a coin is right in 50%, {bound}."
    )


def deployed(report: Report) -> str:
    """Return what the experiment implies for a deployment; "" with noise of the system."""
    found = report.bounds
    if report.noise_source != "seed" or report.mechanism.noise == "pac":
        return ""
    return (
        "The noise came from a seed, so that the run can be repeated. With privacy.noise-source = "
        '"system", a deployment draws noise of the same size that cannot be repeated. One training '
        f"then costs ε = {number(found.tight_epsilon)} towards the {NAMES[report.vantage]}; every "
        "further training on the same people costs more. This measurement took "
        f"{report.trials} trainings: measure on data that need no protection."
        if report.mechanism.clipping and report.mechanism.sensitivity == "global"
        else ""
    )


def _line(report: Report, verdict: VantageVerdict) -> Line:
    said = vantage_words.lines(report, verdict)
    return Line(
        Cell(NAMES[verdict.vantage], "audited here" * (verdict.vantage == report.vantage)),
        [
            *(
                Cell(each.headline, each.detail, style="value")
                for each in (said.advantage, said.belief, said.epsilon)
            ),
            Cell(said.reading, mark=vantage_words.mark(report, verdict), style=""),
        ],
        verdict.vantage == report.vantage,
    )


def _own_limits(report: Report) -> list[Block]:
    """Return the lines about the organisation's own limits; nothing without them."""
    groups: dict[str, list[Line]] = {}
    for verdict in report.verdicts:
        for limit in verdict.limits:
            because = vantage_words.why(report, verdict, limit)
            answer = Cell(because, mark=vantage_words.own_limit(report, verdict, limit), style="")
            title = f"{limit.of.capitalize()} at most {number(limit.limit)}"
            line = Line(Cell(NAMES[verdict.vantage]), [answer])
            groups.setdefault(title, []).append(line)
    if not groups:
        return []
    grouped = [Group(title, lines) for title, lines in groups.items()]
    return [Table(("Limits of the organisation", "Answer"), grouped, style="stacked questions")]


def _words(report: Report) -> list[Block]:
    rows = [_line(report, verdict) for verdict in report.verdicts]
    implied = deployed(report)
    return [
        Table(HEADINGS, [Group("", rows)], style="stacked questions"),
        *_own_limits(report),
        Listing(
            [
                (OF_THE_MODEL, by_the_model(report)),
                *([("What it implies for a deployment", implied)] if implied else []),
                (
                    "What is the model worth?",
                    f"{measure(report).capitalize()} {worths_in_full(report)}.",
                ),
            ]
        ),
        Prose(
            "The worst vantage point comes first: what contradicts theory, then where theory sets "
            f"no limit, then by the limit. Intervals in brackets are at "
            f"{confidence_of(report).strip()}; “a coin” is the range of guessing by chance.",
            small=True,
        ),
        Prose(game(report), small=True),
    ]


SECTION = Section("Every vantage point in full", _words)
