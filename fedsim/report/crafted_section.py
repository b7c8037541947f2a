"""What a report says of a crafted challenge."""

from fedsim.report.report_rows import Entries
from fedsim.report.report_values import Report, at, number, plain

NAMES = {
    "identification": "ε of one record at least, by identification",
    "identification_mu_gdp": "The same counts, of a Gaussian mechanism",
    "identification_gaussian": "The same, were the log-odds normal",
    "released_model": "ε of one record at least, from the released model alone",
    "released_model_mu_gdp": "The same of a Gaussian mechanism, at a threshold for that",
}
"""How the page words the lower bounds."""


def entries(report: Report) -> Entries:
    """Return what the page says of the challenge; nothing where it was a record of D."""
    found = at(report, "crafted")
    if not found:
        return []
    copies = at(found, "copies")
    delta = f"at δ = {plain(at(found, 'delta'))}"
    stated = [
        ("In question", f"{plain(copies)} × {plain(at(found, 'description'))}"),
        *([("Its label", plain(at(found, "label")))] if at(found, "label") is not None else []),
        ("First model", plain(at(found, "initialisation"))),
        (f"ε of one record {delta}", _or_infinite(at(found, "epsilon"))),
    ]
    if copies != 1:
        stated.append(
            (f"ε of all {plain(copies)} {delta}", _or_infinite(at(found, "group_epsilon")))
        )
    for name, bound in found["lower_bounds"].items():
        said = bound["reason"] or bound["method"]
        stated.append((NAMES[name], f"{number(bound['epsilon'])} ({said})"))
    return stated


def title(report: Report) -> str:
    """Return the heading of the section."""
    if at(report, "crafted.kind") == "record":
        return "Copies of one record"
    return "What was put into D to be noticed"


def reading(report: Report) -> list[str]:
    """Return, in whole sentences, what the section is worth."""
    if not at(report, "crafted"):
        return []
    sentences = []
    if at(report, "crafted.kind") != "record":
        sentences.append(
            "What was put into D was made to be noticed: the bounds say how identifiable a record "
            "can be under this noise, not how identifiable a record of these data is."
        )
    if at(report, "crafted.copies") != 1:
        sentences.append(
            "D and D′ differ in all copies at once. The bounds of this page are those of the group,"
            " except where they are said to be of one record, to which group privacy leads back."
        )
    return sentences


def _or_infinite(epsilon: float | None) -> str:
    return "∞" if epsilon is None else number(epsilon)
