"""The report of a live audit: on the terminal while it runs, and as a page at the end.

It words and draws the report of `fedsim.audits.live.live_report`; it computes nothing.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import RenderableType
from scipy.special import expit

from fedsim.audits.live.live_results import CANARIES, NOISE, LiveBounds
from fedsim.audits.live.live_results import LiveReport as Report
from fedsim.audits.live.live_rounds import Belief, CanaryFindings, LiveLook
from fedsim.audits.results.verdicts import (
    AGREES,
    CANNOT_TELL,
    CONTRADICTED,
    NOT_MEASURED,
    StateWords,
    standing,
    words_of,
)
from fedsim.common import report_directory
from fedsim.common.strict_json import report_json
from fedsim.game.observers.noise_watch import SUM
from fedsim.report.document import blocks as doc
from fedsim.report.document import first_screen, terminal
from fedsim.report.document.first_screen import power, report_check, share, shares
from fedsim.report.document.html import render
from fedsim.report.document.wording import counted, number, percent, would_have_noticed
from fedsim.report.figures import run_figures, training_figures

SHOWN = 15
Seen = Belief | LiveLook


def write_live(report: Report, directory: Path, rounds: Sequence[Seen] = ()) -> Path:
    page = render_html(report, rounds)
    return report_directory.write_report(directory, report_json(report.as_json()), page)


def state(report: Report) -> StateWords:
    bounds, empirical, canaries = report.bounds, report.empirical, report.canaries
    measured = None if empirical is None else empirical.ends
    limit = 0.0 if bounds is None else bounds.rho_alpha
    standing_now = standing(measured, limit, exact=True, alarmed=bool(report.alarms))
    if standing_now != "not-measured":
        return words_of(standing_now, interval=measured)
    if canaries is not None and canaries.reason is None:
        return words_of("above-by-chance" if canaries.over else "agrees")
    if report.noise is not None:
        return words_of("agrees")
    return words_of(standing_now, measured=bounds is None or report.belief is not None)


def verdict(report: Report) -> str:
    bounds, belief, canaries = report.bounds, report.belief, report.canaries
    empirical = report.empirical
    sentences = [f"{state(report).text}."]
    if report.claim is not None:
        sentences.append(report.conclusion)
    if bounds is not None and belief is not None:
        share = bounds.tail_probability
        but_for = (
            f", except in {percent(share)} of trainings for the most exposed record"
            if share
            else ""
        )
        what = "a client's data were" if report.unit == "client" else "the target record was"
        sentences.append(
            f"After {counted(report.rounds, 'round')}, the auditor's belief that {what} used is "
            f"{percent(belief.mean)} on average over {counted(report.trials, 'trial')}, and "
            f"{percent(belief.highest)} in the highest trial. The noise keeps this belief at "
            f"{percent(bounds.rho_beta)} or less{but_for}; ε is "
            f"{number(bounds.epsilon)} at δ = {report.delta:.3g}."
        )
    if canaries is not None and canaries.reason is not None:
        sentences.append(f"Canaries measured nothing yet: {canaries.reason}.")
    elif canaries is not None:
        sentences.append(
            f"Canaries measured a signal of {number(canaries.mu)} standard deviations "
            f"({number(canaries.interval[0])} to {number(canaries.interval[1])}) in one "
            f"training so far; the noise allows {number(canaries.claimed_mu)}."
        )
    if (noise := report.noise) is not None and not report.alarms:
        sentences.append(
            f"The released sums have at most {number(noise.at_most[SUM])} times the claimed "
            f"noise, whatever the records are ({percent(noise.confidence)} confidence)."
        )
    measured = state(report)
    if empirical is not None and bounds is not None and measured is AGREES:
        low, high = empirical.advantage_interval
        if low <= bounds.rho_alpha < empirical.advantage:
            sentences.append(
                "The measured advantage is above the limit. Chance alone can explain the "
                f"difference: the interval is {number(low)} to {number(high)}, the limit "
                f"{number(bounds.rho_alpha)}."
            )
    if measured not in (CONTRADICTED, NOT_MEASURED) and report.seen_below is not None:
        sentences.append(would_have_noticed(report.seen_below))
    seen = (report.bounds, report.canaries, report.noise)
    if all(each is None for each in seen):
        sentences.append("The auditor has not yet seen a whole round.")
    return " ".join(sentences)


def table(rounds: Sequence[Seen]) -> RenderableType:
    if beliefs := [each for each in rounds if isinstance(each, Belief)]:
        rows = [_belief_cells(belief) for belief in beliefs[-SHOWN:]]
        headings = ("trials", "round", "so far", "mean", "highest", "ρβ", "ε so far", "missed")
        return terminal.table(doc.tabulated(headings, rows), "belief that D was used")
    # Of a run that is audited without its records.
    looks = [each for each in rounds if isinstance(each, LiveLook)][-SHOWN:]
    series = list(looks[-1].noise_at_most) if looks else []
    cells = [
        [
            str(look.round),
            so_far(look).text,
            *(number(look.noise_at_most.get(name)) for name in series),
            *_signal(look.canaries),
            number(look.epsilon),
            str(look.missed),
        ]
        for look in looks
    ]
    names = ["round", "so far", *series, "canaries' μ", "claimed", "ε so far", "missed"]
    block = doc.tabulated(names, cells)
    return terminal.table(block, "noise divided by the claimed noise, at most")


def _signal(canaries: CanaryFindings | None) -> list[str]:
    """Return the measured and the allowed signal of canaries, as cells of a table."""
    if canaries is None:
        return [number(None), number(None)]
    return [number(canaries.mu), number(canaries.claimed_mu)]


def _belief_cells(belief: Belief) -> list[str]:
    chances = expit(belief.log_odds)
    return [
        f"{belief.first_trial}-{belief.first_trial + len(chances) - 1}",
        str(belief.round),
        so_far(belief).text,
        percent(float(chances.mean())),
        percent(float(chances.max())),
        percent(belief.rho_beta),
        number(belief.epsilon),
        str(belief.missed),
    ]


def summary(report: Report) -> RenderableType:
    alarms = [doc.Label("Alarm:", text, alarming=True) for text in report.contradictions]
    return terminal.shown(doc.Prose(verdict(report)), doc.Listing(_rows(report)), *alarms)


def render_html(report: Report, course: Sequence[Seen] = ()) -> str:
    drawn: list[doc.Block] = []
    if report.belief is not None:
        rounds = np.array(report.belief.rounds)
        series = {"mean": np.array(report.belief.mean_by_round)}
        series["highest trial"] = np.array(report.belief.highest_by_round)
        caption = "The auditor's belief that D was used, after every round of the last trials seen."
        figure = run_figures.client_beliefs(rounds, series)
        drawn.append(doc.Figure("beliefs", figure, "", caption))
    drawn += _drawn_looks([each for each in course if isinstance(each, LiveLook)])
    if len(course) > MOST:
        every = doc.Part("Every round", [_by_round(course)], folded=True, heads=False)
        drawn.append(every)
    noted = ((report.noise, NOISE), (report.canaries, CANARIES))
    notes = [doc.Prose(note) for measured, note in noted if measured is not None]
    return render(
        doc.Document(
            title=f"Live audit of run {report.facts.run}",
            kind="Live audit",
            heading=f"Run {report.facts.run}",
            first=first(report, course),
            blocks=[
                *(doc.Label("", text, alarming=True) for text in report.contradictions),
                *drawn,
                doc.Heading("Observations"),
                doc.Listing(_rows(report), several=True),
                *notes,
            ],
        )
    )


MOST = 5


def first(report: Report, rounds: Sequence[Seen]) -> doc.FirstScreen:
    words, facts = state(report), report.facts
    document = report.as_json()
    checks = [
        report_check(
            "Nothing contradicts the noise that the server states.",
            "alarms > 0",
            document,
            failed="The observations contradict the noise that the server states.",
        ),
        report_check(
            "The auditor saw every round.",
            "missed > 0",
            document,
            failed="The auditor missed rounds.",
        ),
        power(document, "seen_below"),
    ]
    if (bounds := report.bounds) is not None:
        if bounds.rho_alpha < 1:
            text = "The measured advantage lies below the limit of theory."
            limit = f"advantage.high > {bounds.rho_alpha}"
            unknown = "The audit does not show that the auditor stays below the limit of theory."
            checks.append(report_check(text, limit, document, fails="", unknown=unknown))
        if np.isfinite(bounds.epsilon):
            text = "Everything released has no more ε than one training."
            limit = f"released.epsilon > {1.001 * bounds.epsilon}"
            failed = (
                f"Everything released costs ε = {number(report.released.epsilon)}; one training "
                f"costs {number(bounds.epsilon)}."
                if report.released
                else ""
            )
            unknown = "The total ε of everything released is not known."
            checks.append(report_check(text, limit, document, failed=failed, unknown=unknown))
    return doc.FirstScreen(
        answer=[verdict(report)],
        alarming=bool(report.alarms),
        figure=doc.Bars(
            _bars(report),
            f"How often the auditor is right ({percent(report.confidence)} intervals).",
        ),
        table=_by_round(rounds[-MOST:]) if rounds else None,
        checks=checks,
        steps=_steps(report, words),
        sign_off=first_screen.sign_off(
            data=f"what {facts.recorder} saw of run {facts.run}",
            date="",
            limits=(
                f"The audit covers {counted(report.rounds, 'round')} that the auditor saw; it "
                f"missed {report.missed}. It is not a guarantee."
            ),
        ),
    )


def _steps(report: Report, words: StateWords) -> list[doc.Words]:
    """Return what to do next; what would tell, if the audit cannot tell."""
    if words is not CANNOT_TELL:
        return [words.advice] if words.advice else []
    steps: list[doc.Words] = []
    if report.empirical is None and report.trials:
        steps.append(
            "A single training has no advantage to measure: run many trials on data that need no "
            "protection."
            if report.single
            else "After the run, repeat the audit with --worlds RUN. RUN says which trials used "
            "the record, so the audit can count right answers."
        )
    if report.bounds is None:
        steps.append(
            "Ask the server for the noise of every round: without it, theory sets no limit."
        )
    return steps or ["Watch more rounds, or more trials."]


def _bars(report: Report) -> list[doc.Bar]:
    words, bounds, empirical = state(report), report.bounds, report.empirical
    mark, limit = (
        doc.Mark(words.kind, words.text),
        None if bounds is None else share(bounds.rho_alpha),
    )
    bars = []
    if empirical is not None:
        right, ends = share(empirical.advantage), shares(empirical.advantage_interval)
        bars.append(doc.Bar("Auditor, about the target", mark, right, ends, limit))
    if (canaries := report.canaries) is not None and canaries.advantage is not None:
        right, ends = share(canaries.advantage), shares(canaries.advantage_interval)
        bars.append(doc.Bar("Auditor, about canaries", mark, right, ends, limit))
    return bars or [doc.Bar("Auditor", mark, limit=limit)]


def so_far(each: Seen) -> StateWords:
    """Return how the observations up to a round stand to the noise that the server states."""
    if isinstance(each, Belief):
        # In rare trainings a belief exceeds its limit.
        return CANNOT_TELL if _beyond(each) else words_of("agrees")
    if not each.noise_at_most:
        return NOT_MEASURED
    return CONTRADICTED if min(each.noise_at_most.values()) <= 1 else words_of("agrees")


def _beyond(belief: Belief) -> int:
    """Return in how many trials the belief has exceeded its limit."""
    return int(np.count_nonzero(expit(belief.log_odds) > belief.rho_beta))


def _by_round(rounds: Sequence[Seen]) -> doc.Table:
    lines = []
    for each in rounds:
        words = so_far(each)
        if isinstance(each, Belief):
            highest = percent(float(expit(each.log_odds).max()))
            measured, limit = f"belief {highest}", f"ρβ {percent(each.rho_beta)}"
            if beyond := _beyond(each):
                measured += f"; above ρβ in {beyond} of {counted(len(each.log_odds), 'trial')}"
        else:
            least = min(each.noise_at_most.values(), default=None)
            measured, limit = f"noise at most {number(least)}", "the claimed noise is 1"
        cells = [doc.Cell("", mark=doc.Mark(words.kind, words.text), style="")]
        lines.append(
            doc.Line(doc.Cell(str(each.round)), [*cells, doc.Cell(measured), doc.Cell(limit)])
        )
    return doc.Table(("Round", "So far", "Measured", "Limit"), [doc.Group("", lines)])


def _rows(report: Report) -> list[tuple[str, str]]:
    bounds, empirical = report.bounds, report.empirical
    rows = [
        ("trust", str(report.trust)),
        ("vantage", report.vantage),
        ("rounds", f"{report.rounds} of {report.rounds_planned}, {report.missed} missed"),
    ]
    if bounds is not None:
        rows += [
            ("noise multiplier", number(bounds.noise_multiplier)),
            (
                "epsilon of one training",
                f"{number(bounds.epsilon)} at delta {bounds.delta:g}",
            ),
            ("ρβ, ρα", f"{percent(bounds.rho_beta)}, {number(bounds.rho_alpha)}"),
        ]
    if released := report.released:
        together = f"{number(released.epsilon)} at delta {report.delta:g}"
        rows.append(("epsilon of everything released", together))
    if empirical is not None:
        low, high = empirical.advantage_interval
        rows.append(
            (
                "advantage",
                f"{number(empirical.advantage)} ({number(low)} to {number(high)}, "
                f"{percent(report.confidence)})",
            )
        )
    if report.noise is not None:
        for name, limit in report.noise.at_most.items():
            whose = "the sums" if name == SUM else f"{name}'s messages"
            rows.append((f"noise of {whose}", f"at most {number(limit)} times the claimed noise"))
    if (canaries := report.canaries) is not None and canaries.reason is None:
        rows += _canary_rows(canaries, bounds, report)
    if empirical is None and report.trials:
        if report.single:
            unknown = "not measured: the run has a single training"
        else:
            unknown = "unknown: give the worlds with --worlds RUN"
        rows.append(("advantage", unknown))
    return rows


def _canary_rows(
    canaries: CanaryFindings, bounds: LiveBounds | None, report: Report
) -> list[tuple[str, str]]:
    low, high = canaries.advantage_interval
    allowed = "" if bounds is None else f"; the noise allows {number(bounds.rho_alpha)}"
    rows = [
        (
            f"advantage about {canaries.canaries} canaries",
            f"{number(canaries.advantage)} ({number(low)} to {number(high)}, "
            f"{percent(report.confidence)}){allowed}",
        ),
        ("belief in the true coin of a canary", percent(canaries.belief)),
    ]
    if (proven := canaries.epsilon_at_least) is not None:
        rows.append(("epsilon, by guessing canaries", f"at least {number(proven)}"))
    return rows


def _drawn_looks(looks: Sequence[LiveLook]) -> list[doc.Block]:
    if not looks:
        return []
    rounds = np.array([look.round for look in looks])
    names = list(looks[-1].noise_at_most)
    drawn: list[doc.Block] = []
    if names:
        limits = {
            name: np.array([look.noise_at_most.get(name, np.inf) for look in looks])
            for name in names
        }
        caption = "Noise divided by the claimed noise, at most, after every round."
        figure = training_figures.noise_limits(rounds, limits)
        drawn.append(doc.Figure("noise", figure, "", caption))
    if looks[-1].canaries is not None:
        beliefs = np.array([look.canaries.belief if look.canaries else 0.5 for look in looks])
        caption = "The auditor's belief in the true coin of a canary, after every round."
        figure = run_figures.client_beliefs(rounds, {"mean of all canaries": beliefs})
        drawn.append(doc.Figure("canaries", figure, "", caption))
    return drawn
