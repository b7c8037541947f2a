"""`fedsim audit app` and `loop`: the privacy that an app or a training function really has."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console, Group
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from adversaries.errors import InputError
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.judgement.claim import Scope, claim_given
from fedsim.audits.judgement.judge import Verdict
from fedsim.audits.judgement.options import AuditOptions
from fedsim.audits.judgement.report import AuditReport
from fedsim.cli import gate
from fedsim.cli.auditing import options
from fedsim.cli.auditing.options import OfEvery
from fedsim.cli.options import AsJson, Confidence, FailIf, Seed
from fedsim.cli.terminal import Terminal
from fedsim.common import report_directory
from fedsim.privacy.mechanism import Neighbouring
from fedsim.privacy.trust.model import Vantage
from fedsim.report.document.wording import would_have_seen

if TYPE_CHECKING:  # Flower takes a second
    from fedsim.audits.app.audit import AppAudit
    from fedsim.audits.judgement.judge import Finding
    from fedsim.audits.loop.audit import LoopAudit
    from fedsim.audits.loop.power import Power

CONTRADICTION = (
    "theory supports the claim and the attack disproves it: the code does something that theory "
    "does not know of, theory is wrong, or this is the one audit in "
    f"{round(1 / (1 - ALARM_CONFIDENCE)):,} that chance allows"
)
"""Describes a conviction that contradicts theory."""

Rows = Sequence[tuple[str, str]]
"""Numbers behind a verdict, worded, name by name."""

STYLES = {"convicted": "bold red", "suspect": "bold yellow", "supported": "bold green"}


def audit_app(app: Path, every: OfEvery) -> int:
    """Audit the app in a directory, print the outcome, and return the exit status.

    Has the app's code run in a process of its own.
    """
    check_out(every.out)
    from fedsim.report.evidence import digests  # noqa: PLC0415

    console, code = Terminal(stderr=True), digests.of_app(app)
    outcome = _outcome(app, every, console)
    return _leave(outcome, results(outcome), outcome.report(code), every)


def check_out(out: Path | None) -> None:
    """Make sure, before the audit, that its report can be written."""
    if out is None:
        return
    if (out / "report.json").exists():
        raise InputError(f"'{out}' holds a finished audit; name a new directory with --out")
    report_directory.check(out)


def _leave(outcome: "AppAudit | LoopAudit", rows: Rows, found: AuditReport, every: OfEvery) -> int:
    """Print the outcome of an audit, write its report, and return the exit status."""
    if every.as_json:
        print(json.dumps(found.report, indent=2, allow_nan=False))
    else:
        Terminal().print(tabulated(outcome.verdict, rows, outcome.findings))
    if every.out is not None:
        from fedsim.report.kinds.app_or_loop import render_html  # noqa: PLC0415  (jinja2)

        page = render_html(outcome, rows)
        with report_directory.refusing(every.out):
            written = report_directory.write_report(every.out, found.report, page)
        if not every.as_json:
            console = Terminal(stderr=True)
            console.print(f"Report: {written}", soft_wrap=True, highlight=False)
    return every.exit_status(found)


def _outcome(app: Path, every: OfEvery, console: Console) -> "AppAudit":
    """Run the audit, and show what the app prints meanwhile."""
    from fedsim.audits.app.audit import TRIALS, audit_directory  # noqa: PLC0415

    def show(text: str) -> None:  # so that nobody takes it for the audit's
        console.print(f"app: {text}", soft_wrap=True, highlight=False)

    asked = every.options.taken("a Flower app")
    with trials_shown(asked.get("trials", TRIALS), console) as progress:
        return audit_directory(
            app,
            **asked,
            claim=every.options.claim,
            confidence=every.options.level,
            show=show,
            progress=progress,
        )


def tabulated(
    verdict: Verdict, rows: Sequence[tuple[str, str]], findings: Sequence["Finding"]
) -> Group:
    """Return an outcome for a terminal."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_row("Verdict", Text(verdict.value.upper(), STYLES.get(verdict.value, "bold")))
    for name, value in rows:
        table.add_row(name, value)
    found = Table(title="Findings", title_justify="left", show_lines=True)
    for heading in ("rule", "why", "how to mend it"):
        found.add_column(heading)
    for finding in findings:
        style = "red" if finding.breaks else ""
        found.add_row(Text(finding.rule, style), finding.why, finding.mend)
    return Group(table, found) if findings else Group(table, Text("No findings."))


def results(outcome: "AppAudit") -> list[tuple[str, str]]:
    """Return the numbers behind the verdict, worded, name by name."""
    whole = outcome.scope is Scope.RUN
    rounds, bound = outcome.configuration.rounds, outcome.lower_bound
    per = f"the whole run, {_counted(rounds, 'round')}" if whole else "one message"
    said, proven = _claimed(outcome)
    observations = outcome.trials * (1 if whole else rounds)
    measured = outcome.advantage
    expected = outcome.predicted_advantage
    predicted = "" if expected is None else f"; theory predicts {expected:.3f}"
    update = "of the update as training returns it: " if outcome.training_unseen else ""
    rows = [
        ("App", f"{outcome.app}: {' > '.join(outcome.configuration.strategies)}"),
        ("Judged", f"{per}, at delta {outcome.delta:g}"),
        ("Claimed", said),
        *(("Not judged", reason) for reason in outcome.reasons),
        # Noise that is not the configured one is measured, and what follows from it no theory.
        ("By measured noise" if outcome.noise_off else "By theory", update + _theory(outcome)),
        (
            "By attack",
            f"{update}epsilon at least {bound.epsilon:.4g} ({outcome.confidence:.0%} confidence, "
            f"{_counted(observations, 'observation')}; {bound.method}; assumes {bound.assumes})"
            f"{proven}",
        ),
        (
            "Advantage",
            f"{measured.point:.3f} ({measured.interval.low:.3f} to {measured.interval.high:.3f})"
            f"{predicted}",
        ),
        ("Two worlds", _worlds(outcome)),
    ]
    if outcome.verdict not in (Verdict.CONVICTED, Verdict.SUSPECT):
        rows.append(("Sees", would_have_seen(outcome.seen_below)))
    if outcome.contradictory:
        rows.append(("Contradiction", CONTRADICTION))
    return rows


def _claimed(outcome: "AppAudit | LoopAudit") -> tuple[str, str]:
    """Return what is claimed, and what the attack proves with the confidence of a conviction."""
    claim = outcome.claim
    if claim is None:
        return "nothing", ""
    proven = f"; {outcome.proven.epsilon:.4g} with the {ALARM_CONFIDENCE:.2%} of a conviction"
    return f"epsilon {claim.epsilon:.4g} ({claim.source})", proven


def _theory(outcome: "AppAudit") -> str:
    if outcome.epsilon is None:
        return "not known"
    multipliers = outcome.guarantee.multipliers if outcome.guarantee else ()
    if math.isinf(outcome.epsilon):
        return "epsilon infinite: no guarantee"
    rounds = outcome.configuration.rounds
    run = f"; all {rounds} messages: epsilon {outcome.epsilon_of_run:.4g}"
    return (
        f"epsilon {outcome.epsilon:.4g}, true noise multiplier {min(multipliers):.4g}"
        f"{run if outcome.scope is Scope.ROUND else ''}"
    )


def _worlds(outcome: "AppAudit") -> str:
    other = {
        Neighbouring.ADD_REMOVE: "sends no change",
        Neighbouring.REPLACE: "sends another update",
    }[outcome.neighbouring]
    seen = {
        Vantage.SERVER: "the server, who sees every message",
        Vantage.PARTICIPANT: "a participant, who sees the model of every round",
    }
    return f"a client sends its update, or {other}; told apart by {seen[outcome.vantage]}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


@contextmanager
def trials_shown(
    trials: int, console: Console, first: str = "honest run"
) -> Iterator[Callable[[int], None]]:
    """Show how many trials are done, and yield what is to be told of them."""
    from fedsim.report.tracking.progress import Steps  # noqa: PLC0415  (Flower)

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Steps(*columns, console=console) as progress:
        task = progress.add_task(first, total=trials)
        yield lambda done: progress.update(task, completed=done, description="attacking")


def loop(
    function: options.LoopFunction,
    claimed_epsilon: options.ClaimedEpsilon = None,
    claimed_delta: options.ClaimedDelta = None,
    strict: options.Strict = False,
    fail_if: FailIf = None,
    trials: options.TrialsOfLoop = None,
    data: options.DataOfLoop = None,
    records: options.RecordsOfLoop = None,
    target: options.TargetOfLoop = None,
    neighbouring: options.NeighbouringOfLoop = None,
    time_limit: options.TimeLimit = None,
    confidence: Confidence = None,
    seed: Seed = None,
    out: options.OutOfApp = None,
    json_: AsJson = False,
) -> None:
    """Audit a training function, with or without Opacus, by runs with and without a record.

    The function takes features, labels and a seed, and returns the model or every released step. It
    is run many times, in a separate process with your rights. Only name code that you would run
    yourself.

    Example: fedsim audit loop mine.py:train --claimed-epsilon 2 --claimed-delta 1e-5
    """
    of_loop = AuditOptions(
        claim=claim_given(claimed_epsilon, claimed_delta, None),
        confidence=confidence,
        trials=trials,
        data=data,
        records=records,
        target=target,
        neighbouring=neighbouring,
        seed=seed,
        time_limit=time_limit,
    )
    every = OfEvery(of_loop, out, json_, strict, gate.asked(fail_if, "loop audit"))
    raise typer.Exit(_audit(function, every))


def _audit(function: str, every: OfEvery) -> int:
    """Audit a function, print the outcome, and return the exit status. Raises InputError."""
    from fedsim.audits.loop.audit import TRIALS, audit_loop  # noqa: PLC0415
    from fedsim.report.evidence import digests  # noqa: PLC0415

    check_out(every.out)
    console, code = Terminal(stderr=True), digests.of_function(function)

    def show(text: str) -> None:  # so that nobody takes it for the audit's
        console.print(f"loop: {text}", soft_wrap=True, highlight=False)

    asked = every.options.taken("a training loop")
    with trials_shown(asked.get("trials", TRIALS), console, "pilots") as progress:
        outcome = audit_loop(
            function,
            **asked,
            claim=every.options.claim,
            confidence=every.options.level,
            show=show,
            progress=progress,
        )
    return _leave(outcome, loop_results(outcome), outcome.report(code), every)


def loop_results(outcome: "LoopAudit") -> list[tuple[str, str]]:
    """Return the numbers behind the verdict, worded, name by name."""
    bound, measured = outcome.lower_bound, outcome.advantage
    seen = outcome.observation
    said, proven = _claimed(outcome)
    steps = f"{len(seen.steps)} steps of Opacus's optimizer" if seen.steps else "what it returned"
    replaced = seen.neighbouring is Neighbouring.REPLACE
    rows = [
        ("Loop", outcome.loop),
        ("Judged", f"{steps}, all together, at delta {outcome.delta:g}; unit: one record"),
        ("Claimed", said),
        *(("Not judged", reason) for reason in outcome.reasons),
        _loop_theory(outcome),
        *_loop_noise(outcome),
        (
            "By attack",
            f"epsilon at least {bound.epsilon:.4g} ({outcome.confidence:.0%} confidence, "
            f"{outcome.trials} trials; {bound.method}; assumes {bound.assumes}){proven}",
        ),
        (
            "Advantage",
            f"{measured.point:.3f} ({measured.interval.low:.3f} to {measured.interval.high:.3f})",
        ),
        (
            "Two worlds",
            f"{seen.records} records, or {'one of them another' if replaced else 'all but one'}; "
            f"{outcome.pair}; told apart by: {outcome.score}",
        ),
        ("Runs", f"{outcome.runs} of the loop"),
    ]
    if outcome.contradictory:
        rows.append(("Contradiction", CONTRADICTION))
    return rows


def _loop_theory(outcome: "LoopAudit") -> tuple[str, str]:
    """Return what theory says, under a name that says whether it takes the noise as measured."""
    name, where = "By theory", ""
    if off := outcome.observation.noise_off:
        name, where = (
            "By measured noise",
            f", with the least noise that was measured {off[0].strip(',')}",
        )
    if outcome.epsilon is None:
        return name, "not known"
    if math.isinf(outcome.epsilon):
        return name, "epsilon infinite: no guarantee"
    return name, f"epsilon {outcome.epsilon:.4g}{where}"


def _loop_noise(outcome: "LoopAudit") -> list[tuple[str, str]]:
    """Return what was measured of the noise, and the least deviation that would have been seen."""
    from fedsim.audits.loop.noise import SEEN  # noqa: PLC0415

    noise, power = outcome.noise, outcome.power
    convicted = outcome.verdict is Verdict.CONVICTED
    if noise is None and power is not None and math.isfinite(power.needed) and not convicted:
        return _loop_power(power, outcome.trials)
    if noise is None:
        seen = (
            f"No noise was watched. {outcome.trials} trials prove at most epsilon "
            f"{outcome.provable:.3g} by counting, with the {ALARM_CONFIDENCE:.2%} of a conviction: "
            "this audit would have seen a loop that hides nothing if the claim is below that."
        )
        return [("Sees", seen)]
    at = "" if noise.epsilon is None else f"; epsilon {noise.epsilon:.4g} at that"
    least = (
        f"at least {noise.at_least:.3g} of the configured noise, measured "
        f"({noise.confidence:.0%} confidence, {noise.numbers} numbers, {noise.runs} runs){at}"
    )
    seen = (
        f"This audit would have seen noise below {noise.seen_below:.3g} of what is configured in "
        f"{SEEN:.0%} of cases."
    )
    return [("Noise", least), ("Sees", seen)]


RETURNED = {
    "model": "one model",
    "models": "the model after each of {rows} steps, whose differences were scored",
    "steps": "{rows} steps",
    "watched": "{rows} steps",
}
"""Describes what a loop returned, by its form."""


def _loop_power(power: "Power", trials: int) -> list[tuple[str, str]]:
    """Return which noise the attack would have convicted, and what to return to see more."""
    from fedsim.audits.loop.measurement import FULL  # noqa: PLC0415
    from fedsim.audits.loop.power import POWER  # noqa: PLC0415

    learnt = power.learnt
    returned = RETURNED[learnt.form].format(rows=learnt.rows)
    if learnt.form == "model":
        of = f"the noise in it, over how far one record moves it, is below {power.multiplier:.3g}"
        more = (
            "Return each step's sum, an array [k, P], or the model after each step: this audit "
            f"would see noise below {power.of_steps:.3g} of what the claim takes."
        )
    else:
        part = "" if learnt.rate >= FULL else f" and a record is in {learnt.rate:.2g} of the steps"
        of = f"the noise multiplier of a step is below {power.multiplier:.3g}{part}"
        more = (
            "More --trials. If a record is in every step, these would see noise below "
            f"{power.of_steps:.3g} of what the claim takes."
        )
    seen = (
        f"The loop returned {returned}. By theory, {trials} trials convict it in {POWER:.0%} of "
        f"cases where {of}. By measurement, they would have convicted noise below "
        f"{power.share:.3g} of what it had."
    )
    return [("Sees", seen), ("To see more", more)]
