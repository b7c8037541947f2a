"""How precise a campaign was, and why it had no more trials."""

from fedsim.audits.results.report import Report
from fedsim.report.document.blocks import Block, Listing
from fedsim.report.document.wording import DASH, number
from fedsim.report.sections.section import Section


def _words(report: Report) -> list[Block]:
    found, ratio = report.campaign, report.campaign.variance
    rows = [
        ("Trials", f"{found.trials} of {found.planned} planned"),
        ("Half the length of the advantage's interval", number(found.halfwidth)),
        ("Why no more", found.reason),
        ("Random numbers of the two worlds", found.pairing),
    ]
    if ratio is not None:
        rows.append(
            (
                "Variance of the advantage, against independent trials",
                DASH
                if ratio.measured is None
                else f"{number(ratio.measured)} measured, {number(ratio.predicted)} predicted",
            )
        )
    if found.validity:
        rows.append(("What stays valid", found.validity))
    return [Listing(rows)]


SECTION = Section("How precise is it?", _words, specialist=True)
