"""Whether what an answer is about may be released, in a sentence: on a page, the first.

No answer approves a release: a guarantee says what an adversary can reach, and people decide
whether that is acceptable.
"""

from fedsim.reports.document.wording import percent

CONTRADICTED = "Do not release: a measurement contradicts what was claimed or configured."
UNPROTECTED = "Do not release: no guarantee protects the people whose records were used."
SUSPECT = "Do not release on this claim: it is not supported."
UNTOLD = "This audit is no ground for a release: it cannot tell whether the claim holds."
UNCLAIMED = "This audit is no ground for a release: nothing was claimed that it could judge."
DECIDE = (
    "{who} can tell whether one {unit} was used in at most {most} of cases, where guessing is "
    "right in 50%. {what} is your decision."
)
HARDLY = "{what} protects hardly anyone: {who} can tell it of one {unit} in up to {most} of cases."
PROPOSED = "Proposal: {}. Release nothing of this search: train a new model with this setting."
UNDECIDED = "No setting is proposed. Release nothing of this search."
OBJECTED = " An alarm names a mistake that theory has counted."
HIGH = 0.95
"""Share of right answers from which a limit protects hardly anyone."""


def decide(what: str, most: float, unit: str, who: str = "an adversary") -> str:
    """Return what a guarantee leaves to decide.

    Args:
        what: what the guarantee is about.
        most: largest share of right answers that it allows, in [0.5, 1].
        unit: what it protects: record or client.
        who: whose right answers they are.
    """
    sentence = HARDLY if most >= HIGH else DECIDE
    told = sentence.format(what=what, who=who, unit=unit, most=percent(most))
    return f"{told[:1].upper()}{told[1:]}"
