"""What a report says of how precise its campaign was."""

from fedsim.report.report_values import DASH, Report, number


def entries(report: Report) -> list[tuple[str, str]]:
    """Return the section of the page."""
    found = report["campaign"]
    rows = [
        ("Trials", f"{found['trials']} of {found['planned']} planned"),
        ("Half the length of the advantage's interval", number(found["halfwidth"])),
        ("Why no more", found["reason"]),
        ("Random numbers of the two worlds", found["pairing"]),
    ]
    if ratio := found["variance"]:
        rows.append(
            (
                "Variance of the advantage, against independent trials",
                f"{number(ratio['measured'])} measured, {number(ratio['predicted'])} predicted"
                if ratio["measured"] is not None
                else DASH,
            )
        )
    if found["validity"]:
        rows.append(("What stays valid", found["validity"]))
    return rows
