"""Membership inference: weaker attacks, from losses alone."""

from collections.abc import Mapping

from adversaries.attacks.membership_attacks import ATTACKS as LOSS_ATTACKS
from fedsim.audits.results.measured import MembershipAttack
from fedsim.audits.results.report import Report
from fedsim.audits.run import empirical
from fedsim.report.document.blocks import Block, Cell, Group, Line, Prose, Table
from fedsim.report.document.wording import number, percent, span
from fedsim.report.sections.facts import is_client
from fedsim.report.sections.section import Section

ATTACKS = {
    empirical.POPULATION: ("Yeom", "Yeom: members are those with at most the mean loss"),
    empirical.CHALLENGE: ("Yeom on the\nchallenge record", "Yeom on the challenge record alone"),
}
"""The short and the long names of the two that learn from no shadow models."""

CLIENT_ATTACK = (
    "Yeom on the\ntarget client",
    "Yeom on the target client: by the mean loss of its records",
)
"""The attack on the challenge where that is not a record."""

SHORT = {"trajectory": "LiRA on all\nglobal models"}
"""The attacks by losses that the figure shows, by their short names."""

MEANING = (
    "Weaker attacks, for comparison: they see losses of models and no aggregates. Yeom's attack "
    "compares a record's loss with the mean loss of the training data. Attacks on the challenge "
    "play the adversary's own game. All except the two of Yeom learn from one half of the trials, "
    "as shadow models, and are measured on the other half."
)


def drawn(attacks: Mapping[str, MembershipAttack], client: bool) -> dict[str, MembershipAttack]:
    """Return the attacks that stand beside the adversary in a figure, by their short names.

    The attack on all records is left out: the bound is not about it.
    """
    return {
        names(name, client)[0]: found
        for name, found in attacks.items()
        if name == empirical.CHALLENGE or name in SHORT
    }


def names(name: str, client: bool) -> tuple[str, str]:
    """Return the short and the long name of an attack."""
    if name == empirical.CHALLENGE and client:
        return CLIENT_ATTACK
    if attack := LOSS_ATTACKS.get(name):
        return SHORT.get(name, attack.title), f"{attack.title}, on the challenge"
    own = name.rpartition(":")[2].replace("_", " ")
    return ATTACKS.get(name, (own, f"{own}, an attack of your own, on the challenge"))


def _line(report: Report, name: str, found: MembershipAttack) -> Line:
    detail = span(found.advantage_interval, number)
    return Line(
        Cell(names(name, is_client(report))[1]),
        [
            Cell(number(found.advantage), detail, style="value"),
            # What goes by no threshold has no rates, and what gives no scores no area.
            Cell(percent(found.tpr)),
            Cell(percent(found.fpr)),
            Cell(number(found.area)),
        ],
    )


def _words(report: Report) -> list[Block]:
    blocks: list[Block] = []
    if report.membership_inference:
        lines = [_line(report, name, found) for name, found in report.membership_inference.items()]
        headings = "Attack", "Advantage", "True positives", "False positives", "AUC"
        blocks = [Prose(MEANING), Table(headings, [Group("", lines)])]
    if report.membership_missing is not None:
        blocks.append(Prose(report.membership_missing, small=True))
    return blocks


SECTION = Section("Membership inference", _words, specialist=True)
