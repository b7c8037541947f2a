"""`fedsim audit app` and `fedsim audit loop`: audits that run the user's code under attack."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, TYPE_CHECKING, Any

import typer
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

from adversaries.errors import InputError
from fedsim.audits.judgement.claim import claim_given
from fedsim.audits.judgement.options import AuditOptions
from fedsim.cli import gate
from fedsim.cli.auditing import options
from fedsim.cli.auditing.options import OfEvery
from fedsim.cli.options import AsJson, Confidence, FailIf, Seed
from fedsim.cli.terminal import Terminal, print_json, results
from fedsim.common import report_directory

if TYPE_CHECKING:  # Flower takes a second
    from fedsim.audits.app.audit import AppAudit
    from fedsim.audits.loop.audit import LoopAudit


def audit_app(app: Path, every: OfEvery) -> int:
    """Audit the app in a directory, in a separate process; return the exit status."""
    check_out(every.out)
    from fedsim.audits.app.audit import TRIALS, audit_directory  # noqa: PLC0415

    taken = every.options.taken("a Flower app")
    with _running("app", taken.get("trials", TRIALS), "honest run") as shown:
        outcome = audit_directory(app, **taken, **_of_both(every), **shown)
    return _conclude(outcome, every)


def _of_both(every: OfEvery) -> dict[str, Any]:
    return {"claim": every.options.claim, "confidence": every.options.level}


def check_out(out: Path | None) -> None:
    """Raise InputError, before the audit, if its report cannot be written."""
    if out is None:
        return
    if (out / "report.json").exists():
        raise InputError(f"'{out}' holds a finished audit; name a new directory with --out")
    report_directory.check_writable(out)


def _conclude(outcome: "AppAudit | LoopAudit", every: OfEvery) -> int:
    """Print the outcome of an audit, write its report, and return the exit status."""
    from fedsim.report.kinds import audited  # noqa: PLC0415  (jinja2)

    if every.as_json:
        print_json(outcome.report)
    else:
        results().print(audited.summary(outcome))
    if every.out is not None:
        written = audited.write(outcome, every.out)
        if not every.as_json:
            results().print(f"Report: {written}", soft_wrap=True)
    return every.exit_status(outcome)


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
    raise typer.Exit(_conclude(outcome, every))
