"""The recommended setting of a sweep, and the first screen of a page about several settings."""

from collections.abc import Sequence
from dataclasses import replace
from math import nan
from typing import TYPE_CHECKING

from fedsim.report.document import blocks as doc
from fedsim.report.document import first_screen
from fedsim.report.document.first_screen import GUESSING, OPEN, PASSED, settled, share
from fedsim.report.document.wording import number, percent, span
from fedsim.report.sections.first import bar
from fedsim.studies.choose.choose_words import values
from fedsim.studies.choose.grid import RunOutcome

if TYPE_CHECKING:  # slow to import
    from matplotlib.figure import Figure as Drawing

MOST_BARS = 8
"""Most settings in a figure, the strictest first. The table below the figure has all."""

MOST_ROWS = 5


def recommended(outcomes: Sequence[RunOutcome]) -> RunOutcome | None:
    """Return the strictest setting whose accuracy the trials cannot tell from the best one's.

    Returns:
        The setting; None if no setting is shown to be better than the most frequent class.
    """
    learnt = [
        (one, between)
        for one in outcomes
        if (between := _between(one, len(outcomes))) is not None
        and one.report is not None
        and not _contradicts(one)
        and between[0] > one.report.utility.majority
    ]
    if not learnt:
        return None
    _, lowest = max(learnt, key=lambda pair: pair[0].accuracy or 0.0)
    near = [one for one, between in learnt if between[1] >= lowest[0]]
    return min(near, key=_right_at_most)


def sentences(outcomes: Sequence[RunOutcome]) -> list[str]:
    """Return which setting to take, and why."""
    taken = recommended(outcomes)
    if taken is None:
        return [
            "No setting can be recommended. The trials do not show that any model is right more "
            "often than the most frequent class. Try more training.rounds, more trials, or a "
            "larger ε."
        ]
    best = max((one for one in outcomes if one.accuracy is not None), key=_accuracy)
    answer = [
        f"Take {values(taken.point.values)}: the adversary is right in at most "
        f"{percent(_right_at_most(taken))} of all cases, and the model in "
        f"{percent(taken.accuracy)}{_ends(taken, len(outcomes))}."
    ]
    if best is not taken:
        answer.append(
            "It is the strictest setting whose accuracy the trials cannot tell from the best. "
            f"The best is {values(best.point.values)}, with an accuracy of "
            f"{percent(best.accuracy)}; its adversary is right in at most "
            f"{percent(_right_at_most(best))}."
        )
    return answer


def first(
    outcomes: Sequence[RunOutcome], answer: Sequence[doc.Words], data: str
) -> doc.FirstScreen:
    """Return the first screen of a page about several settings.

    Args:
        answer: sentences; the first says which setting to take.
        data: the data set, in words.
    """
    done = sorted((one for one in outcomes if one.report is not None), key=_right_at_most)
    return doc.FirstScreen(
        answer=answer,
        alarming=any(map(_contradicts, done)),
        figure=doc.Bars(
            [_bar(one) for one in done[:MOST_BARS]],
            "How often the adversary is right, for each setting, the strictest first.",
        )
        if done
        else None,
        table=_table(done[:MOST_ROWS], len(outcomes)) if done else None,
        checks=_checks(outcomes),
        steps=[
            "Run the setting with more trials, or train the model with it: fedsim train takes "
            "the same keys with --set."
        ],
        sign_off=first_screen.sign_off(
            data=data,
            date=first_screen.today(),
            limits=(
                "Accuracies are means over trainings on the same records. Measurements concern "
                "one target; limits are from theory."
            ),
        ),
    )


def frontier(outcomes: Sequence[RunOutcome]) -> "Drawing | None":
    """Return the figure of accuracy against the adversary; None with fewer than two settings."""
    from fedsim.report.figures import training_figures  # noqa: PLC0415  (matplotlib is slow to import)

    drawn = sorted((one for one in outcomes if one.accuracy is not None), key=_right_at_most)
    if len(drawn) < 2:
        return None
    ends = [_between(one, len(outcomes)) for one in drawn]
    series = training_figures.NoiseSeries(
        "",
        [_right_at_most(one) for one in drawn],
        [_accuracy(one) for one in drawn],
        [nan if each is None else each[0] for each in ends],
        [nan if each is None else each[1] for each in ends],
        None,
    )
    taken = recommended(outcomes)
    place = None if taken is None else (_right_at_most(taken), _accuracy(taken))
    return training_figures.frontier([series], "", place, None)


def _contradicts(one: RunOutcome) -> bool:
    return one.report is not None and bool(one.report.contradictions)


def _right_at_most(one: RunOutcome) -> float:
    return 1.0 if one.report is None else share(one.report.here.limit.rho_alpha)


def _accuracy(one: RunOutcome) -> float:
    return nan if one.accuracy is None else one.accuracy


def _between(one: RunOutcome, settings: int) -> tuple[float, float] | None:
    """Return the ends of the interval of a setting's mean accuracy; None without an interval.

    settings: number of settings whose intervals hold together (Bonferroni).
    """
    if one.report is None:
        return None
    together = 1 - (1 - one.report.attack.confidence) / settings
    interval = one.accuracy_interval(together)
    return interval and interval.ends


def _ends(one: RunOutcome, settings: int) -> str:
    between = _between(one, settings)
    return "" if between is None else f" ({span(between, percent)})"


def _bar(one: RunOutcome) -> doc.Bar:
    name = values(one.point.values)
    if one.report is None:
        return doc.Bar(name, doc.Mark("open", "Not measured"))
    limit, remark = _right_at_most(one), f"accuracy {percent(one.accuracy)}"
    drawn = replace(bar(name, one.report, one.report.here), remark=remark, tells=True)
    between = drawn.interval
    if between and between[0] <= GUESSING and between[1] >= limit and not _contradicts(one):
        # Such an interval says nothing, and its line across the figure looks as if it did.
        remark += f"; {one.report.trials} trials are too few to measure the adversary"
        return doc.Bar(name, doc.Mark("open", "Too few trials"), limit=limit, remark=remark)
    return drawn


def _table(done: Sequence[RunOutcome], settings: int) -> doc.Table:
    rows = [
        [
            values(one.point.values),
            percent(_right_at_most(one)),
            number(one.report.here.limit.epsilon) if one.report else None,
            f"{percent(one.accuracy)}{_ends(one, settings)}",
        ]
        for one in done
    ]
    return doc.tabulated(("Setting", "Right in at most", "ε", "Accuracy (joint intervals)"), rows)


def _checks(outcomes: Sequence[RunOutcome]) -> list[doc.Check]:
    failures = sum(bool(one.failure) for one in outcomes)
    contradicted = [values(one.point.values) for one in outcomes if _contradicts(one)]
    taken = recommended(outcomes)
    return [
        settled(
            not failures,
            "Every setting finished.",
            f"{failures} of {len(outcomes)} settings failed.",
        ),
        settled(
            not contradicted,
            "No measurement contradicts theory.",
            f"Measurements contradict theory: {'; '.join(contradicted)}.",
        ),
        doc.Check(
            OPEN if taken is None else PASSED,
            "A setting is shown to be right more often than the most frequent class.",
        ),
    ]
