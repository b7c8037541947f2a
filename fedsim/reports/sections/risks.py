"""The success of attacks on one person, without the model and at most with it."""

from collections.abc import Mapping, Sequence

from fedsim.privacy.risks import BASELINE
from fedsim.reports.document.blocks import Table, tabulated
from fedsim.reports.document.wording import percent

Risks = Sequence[tuple[float, float]]
"""Success of an attack without the model, and its largest success with it."""

NEARLY = 0.01
"""Distance from a whole number of cases that a sentence neglects."""


def in_cases(baseline: float) -> str:
    """Return a share as text, such as "1 in 1,000"; as a percentage where it is not 1 in n."""
    return f"1 in {round(1 / baseline):,}" if _is_one_in(baseline) else percent(baseline)


def of_cases(share: float, baseline: float) -> str:
    """Return a share in cases of a baseline, such as "9.58 of 1,000"; else as a percentage."""
    if not _is_one_in(baseline):
        return percent(share)
    return f"{share / baseline:.3g} of {1 / baseline:,.0f}"


def _is_one_in(baseline: float) -> bool:
    return abs(1 / baseline - round(1 / baseline)) < NEARLY


def sentence(risks: Mapping[str, Risks]) -> str:
    """Return the risk from a baseline of 1 in 1,000 in sentences; "" if it is unknown.

    Args:
        risks: by whom they are: the server, a participant, and so on.
    """
    limits: dict[float, list[str]] = {}
    for name, pairs in risks.items():
        at_most = dict(pairs).get(BASELINE)
        if at_most is not None:
            limits.setdefault(at_most, []).append(name)
    if not limits:
        return ""
    sentences = [
        "Suppose someone guesses a fact about one person. After training without that record, "
        f"{of_cases(BASELINE, BASELINE)} such guesses is right."
    ]
    for at_most, names in sorted(limits.items()):
        who = " or ".join(names)
        sentences.append(
            f"With the record, {who} is right in at most {of_cases(at_most, BASELINE)}."
            if at_most < 1
            else f"Nothing limits how often {who} is right."
        )
    return " ".join(sentences)


def table(risks: Mapping[str, Risks]) -> Table:
    """Return the risks by baseline, a column for each name."""
    columns = [dict(pairs) for pairs in risks.values()]
    rows = [
        [in_cases(baseline), *map(_at_most, (column[baseline] for column in columns))]
        for baseline in columns[0]
    ]
    return tabulated(("Success without the record", *risks), rows)


def _at_most(share: float) -> str:
    return "no limit" if share >= 1 else percent(share)
