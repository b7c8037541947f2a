"""`fedsim audit app` and `fedsim audit loop`: audits that run the user's code under attack."""

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, TYPE_CHECKING, Any

import typer
from rich.console import Group
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from adversaries.errors import InputError
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.judgement.claim import Scope, Verdict, claim_given
from fedsim.audits.judgement.report import AuditOptions
from fedsim.cli import gate
from fedsim.cli.auditing import options
from fedsim.cli.auditing.options import OfEvery
from fedsim.cli.options import AsJson, Confidence, FailIf, Seed
from fedsim.cli.terminal import Terminal
from fedsim.common import report_directory
from fedsim.privacy.mechanism import Neighbouring
from fedsim.privacy.trust.model import Vantage
from fedsim.report.document.wording import counted, would_have_noticed

if TYPE_CHECKING:  # Flower takes a second
    from fedsim.audits.app.audit import AppAudit
    from fedsim.audits.judgement.claim import Finding
    from fedsim.audits.loop.audit import LoopAudit
    from fedsim.audits.loop.support import Power

CONTRADICTION = (
    "Theory supports the claim, but the attack disproves it. Either the code does something that "
    "theory does not model, or theory is wrong, or this is the one audit in "
    f"{round(1 / (1 - ALARM_CONFIDENCE)):,} that may err by chance."
)

UNIT = "a client's update, as its training returns it"
RECORD = "one record of a client, towards the server"

Rows = Sequence[tuple[str, str]]
STYLES = {"convicted": "bold red", "suspect": "bold yellow", "supported": "bold green"}


def audit_app(app: Path, every: OfEvery) -> int:
    """Audit the app in a directory, in a separate process; return the exit status."""
    check_out(every.out)
    from fedsim.audits.app.audit import TRIALS, audit_directory  # noqa: PLC0415

    taken = every.options.taken("a Flower app")
    with _running("app", taken.get("trials", TRIALS), "honest run") as shown:
        outcome = audit_directory(app, **taken, **_of_both(every), **shown)
    return _conclude(outcome, results(outcome), every)


def _of_both(every: OfEvery) -> dict[str, Any]:
    return {"claim": every.options.claim, "confidence": every.options.level}


def check_out(out: Path | None) -> None:
    """Raise InputError, before the audit, if its report cannot be written."""
    if out is None:
        return
    if (out / "report.json").exists():
        raise InputError(f"'{out}' holds a finished audit; name a new directory with --out")
    report_directory.check_writable(out)


def _conclude(outcome: "AppAudit | LoopAudit", rows: Rows, every: OfEvery) -> int:
    """Print the outcome of an audit, write its report, and return the exit status."""
    if every.as_json:
        print(json.dumps(outcome.report, indent=2, allow_nan=False))
    else:
        Terminal().print(tabulated(outcome.verdict, rows, outcome.findings))
    if every.out is not None:
        from fedsim.report.kinds.app_or_loop import render_html  # noqa: PLC0415  (jinja2)

        page = render_html(outcome, rows)
        written = report_directory.write_report(every.out, outcome.report, page)
        if not every.as_json:
            console = Terminal()
            console.print(f"Report: {written}", soft_wrap=True, highlight=False)
    return every.exit_status(outcome)


def tabulated(verdict: Verdict, rows: Rows, findings: Sequence["Finding"]) -> Group:
    """Return an outcome for a terminal: the numbers, and the findings below."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_row("Verdict", Text(verdict.value.upper(), STYLES.get(verdict.value, "bold")))
    for name, value in rows:
        table.add_row(name, value)
    listed = Table(title="Findings", title_justify="left", show_lines=True)
    for heading in ("rule", "why", "how to fix it"):
        listed.add_column(heading)
    for finding in findings:
        style = "red" if finding.breaks else ""
        listed.add_row(Text(finding.rule, style), finding.why, finding.mend)
    return Group(table, listed) if findings else Group(table, Text("No findings."))


def results(outcome: "AppAudit") -> list[tuple[str, str]]:
    """Return the numbers behind the verdict: a name and a text for each."""
    whole = outcome.scope is Scope.RUN
    rounds = outcome.configuration.rounds
    per = f"the whole run, {counted(rounds, 'round')}" if whole else "one message"
    expected = outcome.predicted_advantage
    predicted = "" if expected is None else f"; theory predicts {expected:.3f}"
    client = outcome.records is None
    rows = [
        ("App", f"{outcome.app}: {' > '.join(outcome.configuration.strategies)}"),
        ("Judged", f"{per}, at delta {outcome.delta:g}; unit: {UNIT if client else RECORD}"),
        *_claims(outcome),
        # Noise that differs from the configured one is a measurement, so that theory has no part.
        ("By measured noise" if outcome.noise_off else "By theory", _theory(outcome)),
    ]
    if client:
        rows += [
            ("By attack", _proven(outcome, counted(outcome.trials, "observation"))),
            ("Advantage", _measured(outcome) + predicted),
            ("Compared", _worlds(outcome)),
        ]
    if outcome.verdict not in (Verdict.CONVICTED, Verdict.SUSPECT):
        rows.append(("Detects", would_have_noticed(outcome.seen_below)))
    if outcome.contradictory:
        rows.append(("Contradiction", CONTRADICTION))
    return rows


def _claims(outcome: "AppAudit | LoopAudit") -> Rows:
    claim = outcome.claim
    claimed = "nothing" if claim is None else f"epsilon {claim.epsilon:.4g} ({claim.source})"
    name = outcome.verdict.value.capitalize()
    return [("Claimed", claimed), *((name, reason) for reason in outcome.reasons)]


def _proven(outcome: "AppAudit | LoopAudit", observations: str) -> str:
    """Return the lower bound, and with a claim that at a conviction's confidence, in words."""
    bound, proven = outcome.lower_bound, ""
    if outcome.claim is not None:
        convicts = f"with {ALARM_CONFIDENCE:.2%} confidence"
        proven = f"; at least {outcome.proven.epsilon:.4g} {convicts}"
    return (
        f"epsilon at least {bound.epsilon:.4g} ({outcome.confidence:.0%} confidence, "
        f"{observations}; {bound.method}; assumes {bound.assumes}){proven}"
    )


def _measured(outcome: "AppAudit | LoopAudit") -> str:
    point, interval = outcome.advantage.point, outcome.advantage.interval
    return f"{point:.3f} ({interval.low:.3f} to {interval.high:.3f})"


def _theory(outcome: "AppAudit") -> str:
    if outcome.epsilon is None:
        return "unknown"
    multipliers = outcome.guarantee.multipliers if outcome.guarantee else ()
    if math.isinf(outcome.epsilon):
        return "epsilon infinite: no guarantee"
    if (judged := outcome.records) is not None:
        return f"epsilon {outcome.epsilon:.4g} of a client with {counted(judged.steps, 'step')}"
    rounds = outcome.configuration.rounds
    run = f"; {counted(rounds, 'message')} together: epsilon {outcome.epsilon_of_run:.4g}"
    return (
        f"epsilon {outcome.epsilon:.4g}, true noise multiplier {min(multipliers):.4g}"
        f"{run if outcome.scope is Scope.ROUND else ''}"
    )


def _worlds(outcome: "AppAudit") -> str:
    other = {
        Neighbouring.ADD_REMOVE: "sends no change",
        Neighbouring.REPLACE: "sends another update",
    }[outcome.neighbouring]
    adversary = {
        Vantage.SERVER: "the server, which sees every message",
        Vantage.PARTICIPANT: "a participant, which sees the model of every round",
    }
    return f"a client sends its update, or {other}; the adversary is {adversary[outcome.vantage]}"


@contextmanager
def _running(name: str, trials: int, first: str) -> Iterator[dict[str, Any]]:
    """Yield a file for the code's output, and a function that shows the number of trials."""
    from fedsim.report.tracking.progress import ProgressSteps  # noqa: PLC0415  (Flower)

    console = Terminal(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with ProgressSteps(*columns, console=console) as bar, _logged(name, console) as log:
        task = bar.add_task(first, total=trials)
        yield {
            "log": log,
            "progress": lambda done: bar.update(task, completed=done, description="attacking"),
        }


@contextmanager
def _logged(name: str, console: Terminal) -> Iterator[IO[bytes]]:
    """Yield a temporary file, which is kept and named if the code prints anything."""
    with NamedTemporaryFile(prefix=f"fedsim-{name}-", suffix=".log", delete=False) as log:
        try:
            yield log
        finally:
            path = Path(log.name)
            if path.stat().st_size:
                console.print(f"Output of the {name}: {path}", soft_wrap=True, highlight=False)
            else:
                path.unlink()


def loop(
    function: options.LoopFunction,
    claimed_epsilon: options.ClaimedEpsilon = None,
    claimed_delta: options.ClaimedDelta = None,
    strict: options.StrictOfLoop = False,
    fail_if: FailIf = None,
    trials: options.TrialsOfLoop = None,
    data: options.DataOfLoop = None,
    records: options.RecordsOfLoop = None,
    target: options.TargetOfLoop = None,
    neighbouring: options.NeighbouringOfLoop = None,
    time_limit: options.TimeLimit = None,
    workers: options.WorkersOfLoop = None,
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
        workers=workers,
        neighbouring=neighbouring,
        seed=seed,
        time_limit=time_limit,
    )
    every = OfEvery(of_loop, out, json_, strict, gate.parsed(fail_if, "loop audit"))
    from fedsim.audits.loop.audit import TRIALS, audit_loop  # noqa: PLC0415

    check_out(every.out)
    taken = every.options.taken("a training loop")
    with _running("loop", taken.get("trials", TRIALS), "pilots") as shown:
        outcome = audit_loop(function, strict=strict, **taken, **_of_both(every), **shown)
    raise typer.Exit(_conclude(outcome, loop_results(outcome), every))


def loop_results(outcome: "LoopAudit") -> list[tuple[str, str]]:
    """Return the numbers behind the verdict: a name and a text for each."""
    observation = outcome.observation
    steps = "everything that the function returns"
    if observation.steps:
        count = counted(len(observation.steps), "step")
        steps = f"{count} of Opacus's optimizer, all together"
    replaced = observation.neighbouring is Neighbouring.REPLACE
    rows = [
        ("Loop", outcome.loop),
        ("Judged", f"{steps}, at delta {outcome.delta:g}; unit: one record"),
        *_claims(outcome),
        _loop_theory(outcome),
        *_loop_noise(outcome),
        ("By attack", _proven(outcome, f"{outcome.trials} trials")),
        ("Advantage", _measured(outcome)),
        (
            "Compared",
            f"{observation.records} records, or the same "
            f"{'with one replaced' if replaced else 'without one'}; {outcome.pair}; "
            f"score of the attack: {outcome.score}",
        ),
        ("Runs", f"{outcome.runs} of the loop"),
    ]
    if outcome.contradictory:
        rows.append(("Contradiction", CONTRADICTION))
    return rows


def _loop_theory(outcome: "LoopAudit") -> tuple[str, str]:
    """Return epsilon by theory, under a name that says whether it rests on the measured noise."""
    name, where = "By theory", ""
    if off := outcome.observation.noise_off:
        name = "By measured noise"
        where = f", with the least noise that was measured {off[0].strip(',')}"
    if outcome.epsilon is None:
        return name, "unknown"
    if math.isinf(outcome.epsilon):
        return name, "epsilon infinite: no guarantee"
    return name, f"epsilon {outcome.epsilon:.4g}{where}"


def _loop_noise(outcome: "LoopAudit") -> list[tuple[str, str]]:
    """Return the measured noise, and the least deviation that the audit detects."""
    from fedsim.audits.run.detectable import POWER  # noqa: PLC0415

    noise, power = outcome.noise, outcome.power
    convicted = outcome.verdict is Verdict.CONVICTED
    if noise is None and power is not None and math.isfinite(power.needed) and not convicted:
        return _loop_power(power, outcome.trials)
    if noise is None:
        detects = (
            f"The audit did not see the noise itself. By counting, {outcome.trials} trials can "
            f"show at most epsilon {outcome.provable:.3g} with {ALARM_CONFIDENCE:.2%} confidence. "
            "If the claim is below that, this audit convicts a loop without any protection."
        )
        return [("Detects", detects)]
    epsilon = "" if noise.epsilon is None else f"; with this noise, epsilon is {noise.epsilon:.4g}"
    least = (
        f"at least {noise.at_least:.3g} of the configured noise, measured "
        f"({noise.confidence:.0%} confidence, {noise.numbers} numbers, {noise.runs} runs){epsilon}"
    )
    detects = (
        f"If the noise were below {noise.seen_below:.3g} of the configured noise, this audit would "
        f"detect it in {POWER:.0%} of cases, as it would detect noise that is missing in "
        f"{noise.missed_below:.2%} of all trainings."
    )
    return [("Noise", least), ("Detects", detects)]


def _loop_power(power: "Power", trials: int) -> list[tuple[str, str]]:
    """Return which noise the attack would have convicted, and how to detect smaller faults."""
    from fedsim.audits.run.detectable import POWER  # noqa: PLC0415

    detects = (
        f"By measurement, {trials} trials would convict this loop in {POWER:.0%} of cases if it "
        f"added less than {power.share:.3g} of its present noise."
    )
    more = (
        "Return each step's sum, an array [k, P], or a list of the models after each step, or "
        "increase --trials. If the loop draws its first model otherwise than by torch.nn.init, "
        "draw it from a constant seed: torch.manual_seed(0) before that line, and "
        "torch.manual_seed(seed) after it."
    )
    return [("Detects", detects), ("To detect more", more)]
