"""live.html of a run directory: progress and provisional results, in a browser.

The whole file is written again and again, and the browser reloads it: no server listens. Its
pictures are small handmade SVG. Matplotlib would delay the run, and its settings are shared by all
threads, one of which may be drawing the report.
"""

import time
from collections.abc import Mapping, Sequence
from datetime import datetime

from markupsafe import Markup

from fedsim.audits.results.verdicts import (
    NOT_CONTRADICTED,
    NOT_MEASURED,
    TOO_FEW,
    StateWords,
    standing,
    words_of,
)
from fedsim.config.campaign import AuditConfig, TrialsConfig
from fedsim.config.objects import Experiment
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.game.observers import at_server
from fedsim.learning.data import schema as schemas
from fedsim.privacy.identifiability import advantage_of_epsilon
from fedsim.report.document import blocks as doc
from fedsim.report.document import html, worth
from fedsim.report.document.first_screen import settled, share, shares
from fedsim.report.document.wording import DASH, number, percent, span
from fedsim.report.tracking.course import Course, Event, Look

WIDTH, HEIGHT = 640, 200
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 12, 30
"""Margins, in the units of the viewBox."""

PICTURE = Markup(
    '<div class="scroll"><svg role="img" aria-label="{}" viewBox="0 0 {} {}" font-size="12" '
    'fill="currentColor">{}</svg></div>'
)
LINE = Markup(
    '<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="currentColor" {}></line>'
)
TEXT = Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>')
CURVE = Markup('<polyline points="{}" fill="none" stroke="currentColor" stroke-width="2"/>')
FAINT = Markup('stroke-opacity=".35"')


def _curve(name: str, by_round: Mapping[int, float], rounds: int) -> Markup:
    """Return a picture of a criterion by round; "" with fewer than two rounds."""
    if len(by_round) < 2:
        return Markup("")
    across = (WIDTH - LEFT - RIGHT) / max(rounds, *by_round)
    up = HEIGHT - TOP - BOTTOM
    curve = " ".join(
        f"{LEFT + across * at:.1f},{TOP + up * (1 - value):.1f}"
        for at, value in sorted(by_round.items())
    )
    drawn = [
        CURVE.format(curve),
        TEXT.format(WIDTH - RIGHT, HEIGHT - 8, "end", f"of {rounds} rounds"),
    ]
    for y, text in ((HEIGHT - BOTTOM, "0%"), (TOP, "100%")):
        drawn += [
            LINE.format(LEFT, y, WIDTH - RIGHT, y, FAINT),
            TEXT.format(LEFT - 6, y + 4, "end", text),
        ]
    last = max(by_round)
    reached = worth.as_text(name, by_round[last])
    label = f"{worth.leading(name)} by round; after round {last}: {reached}."
    return PICTURE.format(label, WIDTH, HEIGHT, Markup("").join(drawn))


FILE = "live.html"
REFRESH = 5
SELDOM = 2.0
"""Least seconds between two pages, except after a batch of trials."""

PROVISIONAL = (
    "You may look at any time: the error probability is divided among the batches of trials. All "
    "intervals on this page together hold with {confidence} confidence. The report's single "
    "interval is narrower."
)


class LivePage:
    name = FILE
    from_the_beginning = False

    def __init__(self, directory: RunDirectory) -> None:
        self._directory, self._config = directory, directory.config
        self._course = Course()
        self._written = 0.0
        self._write("starting")

    def see(self, event: Event, course: Course) -> None:
        self._course = course
        if event.get("phase") == "batch" or time.monotonic() - self._written >= SELDOM:
            self._write(course.phase)

    def leave(self, finished: bool) -> None:
        if finished:
            self._directory.write_text(FILE, render_finished(self._config.run.name))
        else:
            self._write("interrupted", self._directory.resumed_by)

    def _write(self, phase: str, resumed_by: str = "") -> None:
        experiment, audit = self._config.experiment, self._config.audit
        page = render(experiment, audit, self._course, phase, resumed_by)
        self._directory.write_text(FILE, page)
        self._written = time.monotonic()


def render_finished(name: str) -> str:
    link = ("This run has finished: ", doc.Link("its report", "report.html"), ".")
    refresh = "0; url=report.html"
    title = f"{name}, finished"
    page = doc.Document(
        title, "Finished run", name, doc.FirstScreen(()), [doc.Prose(link)], refresh=refresh
    )
    return html.render(page)


def render(
    experiment: Experiment, audit: AuditConfig, course: Course, phase: str, resumed_by: str = ""
) -> str:
    trials, name = experiment.game.trials, experiment.run.name
    planned, scheme = trials.count, experiment.game.scheme
    training = experiment.run.job == "training"
    exact = at_server.is_exact(scheme, audit.mode, scheme.federation.vantage)
    first, last = course.trials
    batch_done = course.round / course.rounds if course.rounds else 0.0
    done = max(course.look.trials, first + (last - first) * batch_done) / planned
    blocks: list[doc.Block] = [doc.Progress(done, "progress of the run")]
    if resumed_by:
        go_on = ("Finished batches are kept; resume with ", doc.Code(resumed_by))
        blocks.append(doc.Label("This run has stopped.", go_on))
    if not training:
        provisional = PROVISIONAL.format(confidence=percent(audit.confidence))
        blocks.append(doc.Label("Provisional: the run's report has the verdict.", provisional))
    name = course.judged.name if course.judged else ""
    drawn = _curve(name, course.values, course.rounds)
    caption = f"{worth.leading(name)} on held-out records, in the first batch of trials."
    blocks += [
        doc.Listing(_entries(course, trials, training), several=True),
        *([doc.Picture("", drawn, "", caption)] if drawn else []),
    ]
    if len(course.looks) > MOST and not training:
        every = _table(course.looks, course.rho_alpha, exact)
        blocks.append(doc.Part("After every batch of trials", [every], folded=True, heads=False))
    blocks += _of_classes(course, experiment.data.public_schema)
    return html.render(
        doc.Document(
            title=f"{name}, {phase}",
            kind="Run in progress",
            heading=name,
            note=f"{phase}, {datetime.now().astimezone():%Y-%m-%d %H:%M:%S}",
            first=_training(course, scheme.privacy.delta)
            if training
            else _first(course, planned, exact),
            blocks=blocks,
            refresh="" if resumed_by else str(REFRESH),
        )
    )


MOST = 5

AT_THE_END = "Wait for the run's report. It says how much missing noise the audit detects."


def _first(course: Course, planned: int, exact: bool) -> doc.FirstScreen:
    """Return the first screen of an attacked run, with a verdict after every batch."""
    words = so_far(course.look, course.rho_alpha, exact)
    answer: list[doc.Words] = [" ".join(_said(course, planned))]
    looks = [look for look in course.looks[-MOST:] if look.interval is not None]
    if not looks or words is None:
        return doc.FirstScreen(answer, checks=_checks(course))
    limit = course.rho_alpha
    bars = []
    for look in looks:
        state = so_far(look, limit, exact) or NOT_MEASURED
        right = None if look.advantage is None else share(look.advantage)
        allowed = None if limit is None else share(limit)
        mark = doc.Mark(state.kind, state.text)
        name = f"After {look.trials} trials"
        bars.append(doc.Bar(name, mark, right, shares(look.interval), allowed))
    return doc.FirstScreen(
        answer=[doc.Mark(words.kind, f"So far: {words.text}"), *answer],
        figure=doc.Bars(bars, "How often the adversary is right, after every batch of trials."),
        table=_table(looks, course.rho_alpha, exact),
        checks=_checks(course),
        steps=[
            AT_THE_END if words in (NOT_CONTRADICTED, TOO_FEW) else f"{words.advice.capitalize()}."
        ],
    )


def _training(course: Course, delta: float) -> doc.FirstScreen:
    running = f"Round {course.round} of {course.rounds} is running."
    if course.epsilon is None:
        return doc.FirstScreen([running], checks=_checks(course))
    spent = f"The rounds so far cost ε = {number(course.epsilon)} at δ = {delta:g}."
    mark = doc.Mark(NOT_MEASURED.kind, NOT_MEASURED.text)
    limit = advantage_of_epsilon(course.epsilon, delta)
    return doc.FirstScreen(
        answer=[f"{running} {spent} The report judges the noise."],
        figure=doc.Bars(
            [doc.Bar("Any adversary, so far", mark, limit=share(limit), by="ε so far")],
            "How often an adversary can be right, at most, about one record after the rounds so "
            "far.",
        ),
        checks=_checks(course),
    )


def so_far(look: Look, limit: float | None, exact: bool) -> StateWords | None:
    if look.interval is None or limit is None:
        return None
    return words_of(standing(look.interval, limit, exact=exact), interval=look.interval)


def _table(looks: Sequence[Look], limit: float | None, exact: bool) -> doc.Table:
    rows = []
    for look in looks:
        words = so_far(look, limit, exact) or NOT_MEASURED
        cells = [percent(look.belief), percent(look.accuracy)]
        rows.append([str(look.trials), words.text, *cells])
    return doc.tabulated(("Trials", "So far", "Worst belief", "Accuracy"), rows)


def _checks(course: Course) -> list[doc.Check]:
    waits = f"The server waits for {course.busy_text}."
    return [settled(not course.busy, "No client keeps the server waiting.", waits)]


def _of_classes(course: Course, schema: str) -> list[doc.Block]:
    """Return recall and precision of each class, folded; nothing before they are measured."""
    if not course.recalls:
        return []
    names = schemas.parse(schema).classes if schema else map(str, range(len(course.recalls)))
    rows = [
        [name, percent(recall), percent(precision)]
        for name, recall, precision in zip(names, course.recalls, course.precisions, strict=True)
    ]
    table = doc.tabulated(("class", "recall", "precision"), rows)
    return [doc.Part("Recall and precision of each class", [table], folded=True, heads=False)]


def _said(course: Course, planned: int) -> list[str]:
    look = course.look
    if not look.trials:
        return ["No batch of trials is finished yet, so the adversary's advantage is unknown."]
    if look.advantage is None:
        return ["A single training does not measure an advantage."]
    between = f" ({span(look.interval, number)})" if look.interval else ""
    sentences = [
        f"After {look.trials} of {planned} trials, the adversary's advantage is "
        f"{number(look.advantage)}{between}."
    ]
    if course.rho_alpha is not None:
        sentences.append(f"Theory's limit is ρα = {number(course.rho_alpha)}.")
    return sentences


def _entries(course: Course, trials: TrialsConfig, training: bool) -> list[tuple[str, str]]:
    look, (first, last) = course.look, course.trials
    running = f"round {course.round} of {course.rounds}"
    if training:
        entries = [("Training", running), ("ε so far", number(course.epsilon))]
    else:
        running = f"; trials {first} to {last - 1}: {running}" if last else ""
        limit = f"; ρβ = {percent(course.rho_beta)}" if course.rho_beta is not None else ""
        entries = [
            ("Trials", f"{look.trials} of {trials.count}{running}"),
            ("Worst belief that the record was used", f"{percent(look.belief)}{limit}"),
        ]
    entries.append(("The model so far", course.worth or DASH))
    return [*entries, ("No answer yet", course.busy_text)] if course.busy else entries
