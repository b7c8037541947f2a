"""Sections about every vantage point: the verdict, and the numbers."""

import math

from fedsim.audits.results.report import Report
from fedsim.audits.results.theory import RunVantageBounds
from fedsim.audits.results.verdicts import VantageVerdict
from fedsim.privacy.trust import Trust
from fedsim.report.document import worth
from fedsim.report.document.blocks import Block, Cell, Group, Line, Listing, Prose, Table
from fedsim.report.document.wording import number, percent, span
from fedsim.report.sections import vantage_words
from fedsim.report.sections.answer import game
from fedsim.report.sections.section import (
    Section,
    challenge_of,
    clients_of,
    confidence_of,
    is_clipped,
    measure,
    takes_local_steps,
    worths_in_full,
)
from fedsim.report.sections.vantage_words import NAMES

HEADINGS = "Observer", "Advantage", "Belief", "ε", "Reading"
OWN_HEADINGS = "Observer", "Limit of the organisation", "Theory allows", "Measured", "Answer"
BY_LOSSES = (
    " Weaker attacks, which look at how well the model fits a record, were tried: see “Membership "
    "inference”. They do not show what a better attack achieves."
)
OF_THE_MODEL = "Can someone who has only the final model tell who was in the training data?"


def by_the_model(report: Report) -> str:
    (verdict,) = (each for each in report.verdicts if each.vantage == "released-model")
    measured, allowed = verdict.measured, verdict.allowed
    bound = (
        "theory sets no limit"
        if allowed.kind == "none"
        else f"theory allows at most {percent((1 + allowed.advantage) / 2)} right answers"
    )
    if measured is None or measured.advantage is None or measured.interval is None:
        return (
            "The limit is for the best attack on the final model. This run did not measure that "
            "attack. "
            f"For any one person, {bound}; a coin is right in 50%. "
            f"{vantage_words.how_to_measure(report, verdict.vantage)}"
            f"{BY_LOSSES * bool(report.membership_inference)}"
        )
    right, ends = (1 + measured.advantage) / 2, [(1 + end) / 2 for end in measured.interval]
    return (
        f"The attack that was declared beforehand was right about {challenge_of(report)} in "
        f"{percent(right)} of {measured.trials} trials ({confidence_of(report)}interval "
        f"{span((ends[0], ends[1]), percent)}, over trainings); a coin is right in 50%, and "
        f"{bound}."
    )


def deployed(report: Report) -> str:
    bounds = report.bounds
    if report.noise_source != "seed":
        return ""
    return (
        "The noise came from a seed, so that the run can be repeated. With privacy.noise-source = "
        '"system", a deployment draws noise of the same size, which no one can repeat. One '
        f"training then costs ε = {number(bounds.tight_epsilon)} towards the "
        f"{NAMES[report.vantage]}; every further training on the same people adds to it. This "
        f"measurement trained {report.trials} times with noise that can be removed, so use data "
        "that need no protection."
        if report.mechanism.clipping and report.mechanism.sensitivity == "global"
        else ""
    )


def _line(report: Report, verdict: VantageVerdict) -> Line:
    words = vantage_words.lines(report, verdict)
    return Line(
        Cell(NAMES[verdict.vantage], "audited here" * (verdict.vantage == report.vantage)),
        [
            *(
                Cell(each.headline, each.detail, style="value")
                for each in (words.advantage, words.belief, words.epsilon)
            ),
            Cell(words.reading, mark=vantage_words.mark(report, verdict), style=""),
        ],
        verdict.vantage == report.vantage,
    )


def _own_limits(report: Report) -> list[Block]:
    lines = [
        Line(
            Cell(NAMES[verdict.vantage]),
            [
                Cell(f"{limit.of} at most {number(limit.limit)}"),
                Cell(vantage_words.own_limit_allowed(verdict, limit)),
                Cell(vantage_words.own_limit_measured(verdict, limit)),
                Cell("", mark=vantage_words.own_limit(report, verdict, limit), style=""),
            ],
        )
        for verdict in report.verdicts
        for limit in verdict.limits
    ]
    if not lines:
        return []
    table = Table(OWN_HEADINGS, [Group("", lines)])
    return [table, Prose(vantage_words.WITH_A_CONDITION, small=True)]


def _words(report: Report) -> list[Block]:
    rows = [_line(report, verdict) for verdict in report.verdicts]
    implied = deployed(report)
    return [
        Table(HEADINGS, [Group("", rows)]),
        *_own_limits(report),
        Listing(
            [
                (OF_THE_MODEL, by_the_model(report)),
                *([("What it implies for a deployment", implied)] if implied else []),
                (
                    "What is the model worth?",
                    f"{worth.leading(measure(report))} {worths_in_full(report)}.",
                ),
            ]
        ),
        Prose(
            "Order of the table: first vantage points that contradict theory, then those without a "
            "limit, then the others from the highest limit to the lowest. Intervals in brackets "
            f"have {confidence_of(report).strip()} confidence. “A coin” is the range of advantages "
            "that an adversary reaches by tossing a coin in the same number of trials, with "
            f"probability {confidence_of(report).strip()}.",
            small=True,
        ),
        Prose(game(report), small=True),
    ]


SECTION = Section("Every vantage point in full", _words)
TRUST = {trust.value: trust.model.words for trust in Trust}

NUMBER_HEADINGS = (
    *("Vantage", "Noise multiplier", "ε", "Belief at most (ρβ)", "Advantage at most (ρα)"),
    *("Predicted", "Measured", "Note"),
)


def trust(report: Report) -> str:
    words = TRUST.get(report.trust, "")
    if rounding := report.mechanism.rounding:
        words += (
            f" The messages were integers, {rounding.note}. Because of the rounding, noise and "
            f"sensitivity are {percent(rounding.relative_growth)} larger."
        )
    if report.colluding:
        words += (
            f" {report.colluding} of the {report.clients} clients disclosed their noise to the "
            "adversary, so the bounds leave it out."
        )
    if takes_local_steps(report):
        words += (
            " Clients take several local steps in a round, each on a model that only their own "
            "noise hides. The bounds therefore assume that every adversary sees all these steps."
        )
    return words


def _vantage_line(report: Report, bounds: RunVantageBounds) -> Line:
    row, here = report.vantages[bounds.vantage], bounds.vantage == report.vantage
    note = bounds.note or (
        f"nothing hides {clients_of(report)} here" if bounds.noise_multiplier == 0 else ""
    )
    if row.note:
        note = row.note
    measured, predicted = row.empirical, row.prediction
    (verdict,) = (each for each in report.verdicts if each.vantage == bounds.vantage)
    return Line(
        Cell(NAMES[bounds.vantage], "audited here" * here),
        [
            Cell(number(bounds.noise_multiplier)),
            Cell(number(bounds.epsilon)),
            Cell(percent(bounds.rho_beta)),
            Cell(number(bounds.rho_alpha)),
            Cell(number(None if predicted is None else predicted.advantage)),
            Cell(
                number(None if measured is None else measured.advantage),
                span(None if measured is None else measured.advantage_interval, number),
                style="value",
            ),
            Cell(note, mark=vantage_words.mark(report, verdict), style=""),
        ],
        here,
    )


def _numbers(report: Report) -> list[Block]:
    rows = [_vantage_line(report, bounds) for bounds in report.bounds.vantages]
    return [Table(NUMBER_HEADINGS, [Group("", rows)], style="stacked vantages")]


TO_WHOM = Section(
    "Who could identify the person?",
    lambda report: [
        Prose(f"How well the noise protects depends on what an observer sees. {trust(report)}")
    ],
)
NUMBERS = Section("Every vantage in numbers", _numbers, specialist=True)


def choose(report: Report) -> str:
    """Return the command that finds the least noise which meets a limit, and what it costs.

    The limit is the organisation's own where theory does not keep it yet, and half of what theory
    allows elsewhere. Returns "" where more noise would not protect from this adversary.
    """
    (here,) = (each for each in report.verdicts if each.vantage == report.vantage)
    scaled = is_clipped(report) and report.mechanism.sensitivity == "global"
    if not scaled or not math.isfinite(here.allowed.worst.epsilon):
        return ""
    now = here.allowed.advantage
    own = [limit.limit for limit in here.limits if limit.of == "advantage" and limit.limit < now]
    target = f"{own[0]:.12g}" if own else f"{now / 2:.2g}"
    return f"fedsim choose config.toml --max-advantage {target} --against {report.vantage}"
