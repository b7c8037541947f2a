"""To whom the target is identifiable: bounds, prediction and measurement at every vantage."""

from fedsim.audits.results.report import Report
from fedsim.audits.results.theory import VantageBounds
from fedsim.privacy.trust import Trust
from fedsim.report.document.blocks import (
    Block,
    Cell,
    Group,
    Line,
    Mark,
    Prose,
    Table,
)
from fedsim.report.document.wording import number, percent, span
from fedsim.report.sections import vantage_words
from fedsim.report.sections.facts import clients_of, is_pac, takes_local_steps
from fedsim.report.sections.section import Section

TRUST = {trust.value: trust.model.words for trust in Trust}

HEADINGS = (
    *("Vantage", "Noise multiplier", "ε", "Belief at most (ρβ)", "Advantage at most (ρα)"),
    *("Predicted", "Measured", "Note"),
)


def trust(report: Report) -> str:
    """Return in words who added noise, how messages were summed, what the bounds count on."""
    words = TRUST.get(report.trust, "")
    if rounding := report.mechanism.rounding:
        words += (
            f" They were {rounding.note}, as integers: because of the rounding, noise and "
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


def _line(report: Report, bounds: VantageBounds) -> Line:
    row, here = report.vantages[bounds.vantage], bounds.vantage == report.vantage
    note = bounds.note or (
        f"nothing hides {clients_of(report)} here" if bounds.noise_multiplier == 0 else ""
    )
    if is_pac(report) and bounds.vantage != "server":
        note = "no bound by differential privacy: see PAC privacy below"
    if row.note and not is_pac(report):
        note = row.note
    measured, predicted = row.empirical, row.prediction
    return Line(
        Cell(bounds.vantage, "audited here" * here),
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
            Cell(note, mark=_mark(report, bounds.vantage), style=""),
        ],
        here,
    )


def _mark(report: Report, vantage: str) -> Mark:
    (verdict,) = (found for found in report.verdicts if found.vantage == vantage)
    return vantage_words.mark(report, verdict)


def _words(report: Report) -> list[Block]:
    return [
        Prose(f"The same noise protects differently depending on who looks. {trust(report)}"),
    ]


def _numbers(report: Report) -> list[Block]:
    rows = [_line(report, bounds) for bounds in report.bounds.vantages]
    return [Table(HEADINGS, [Group("", rows)], style="stacked vantages")]


SECTION = Section("To whom", _words)
NUMBERS = Section("Every vantage in numbers", _numbers, specialist=True)
