"""`fedsim audit --app`: the guarantee that a Flower app's configuration really gives, and why."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from adversaries.intervals import ALARM_CONFIDENCE
from fedsim import report_directory
from fedsim.app_audit.configuration import Claim, Scope
from fedsim.cli.terminal import Terminal
from fedsim.config import parse_overrides
from fedsim.errors import InputError
from fedsim.mechanism import Neighbouring, Vantage
from fedsim.verdict import exit_status

if TYPE_CHECKING:  # Flower takes a second
    from fedsim.app_audit.audit import AppAudit

ROUNDS_KEY = "num-server-rounds"
"""The key under which Flower's own templates declare the number of rounds."""

CONTRADICTION = (
    "theory supports the claim and the attack disproves it: the app does something that theory "
    "does not know of, theory is wrong, or the one audit in a thousand came up that chance allows"
)
"""What is said of a conviction against theory."""

LONGEST_TIME = 1e6
"""Seconds; a socket takes no time much longer, and nobody waits for it."""

STYLES = {"convicted": "bold red", "suspect": "bold yellow", "supported": "bold green"}


def audit_app(
    app: Path,
    *,
    trials: int,
    rounds: int | None,
    nodes: int,
    run_config: list[str],
    claim: Claim | None,
    neighbouring: Neighbouring,
    confidence: float,
    seed: int,
    out: Path | None,
    as_json: bool,
    strict: bool,
    time_limit: float,
) -> int:
    """Audit the app in a directory, print the outcome, and return the exit status.

    Has the app's code run in a process of its own. Raises InputError for options that contradict
    each other, and as `fedsim.app_audit.audit.audit` does.
    """
    from fedsim.app_audit.audit import audit, check  # noqa: PLC0415
    from fedsim.app_audit.process import opened  # noqa: PLC0415

    if nodes < 2:
        raise InputError(f"{nodes} nodes are no federation; give at least 2")
    if not time_limit > 0:
        raise InputError(f"in {time_limit:g} s no app runs; give --time-limit more")
    if time_limit > LONGEST_TIME:
        raise InputError(
            f"{time_limit:g} s is no limit; give --time-limit {LONGEST_TIME:.0f} s at most"
        )
    check(trials, confidence)
    overrides = parse_overrides(run_config)
    if rounds is not None:
        overrides[ROUNDS_KEY] = rounds
    asked = overrides.get(ROUNDS_KEY, 1)
    if isinstance(asked, int | float) and asked < 1:
        raise InputError(f"in {asked} rounds nothing is released; give at least 1")
    if out is not None and (out / "report.json").exists():
        raise InputError(f"'{out}' holds a finished audit; name a new directory with --out")
    if out is not None:
        report_directory.check(out)
    console = Terminal(stderr=True)

    def show(text: str) -> None:  # so that nobody takes it for the audit's
        console.print(f"app: {text}", soft_wrap=True, highlight=False)

    with (
        opened(app, nodes, overrides, time_limit, show) as audited,
        _progress(trials, console) as progress,
    ):
        outcome = audit(
            audited,
            trials=trials,
            seed=seed,
            claim=claim,
            neighbouring=neighbouring,
            confidence=confidence,
            progress=progress,
        )
    document = outcome.as_json()
    if as_json:
        print(json.dumps(document, indent=2, allow_nan=False))
    else:
        Terminal().print(summary(outcome))
    if out is not None:
        from fedsim.app_audit.page import render_html  # noqa: PLC0415

        page_of = render_html(outcome, results(outcome))
        with report_directory.refusing(out):
            page = report_directory.write_report(out, document, page_of)
        if not as_json:
            console.print(f"Report: {page}", soft_wrap=True, highlight=False)
    return exit_status(outcome.verdict, strict)


def summary(outcome: "AppAudit") -> Group:
    """Return the outcome for a terminal: the verdict, the numbers behind it, and the findings."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    verdict = outcome.verdict.value
    table.add_row("Verdict", Text(verdict.upper(), STYLES.get(verdict, "bold")))
    for name, value in results(outcome):
        table.add_row(name, value)
    found = Table(title="Findings", title_justify="left", show_lines=True)
    for heading in ("rule", "why", "how to mend it"):
        found.add_column(heading)
    for finding in outcome.findings:
        style = "red" if finding.breaks else ""
        found.add_row(Text(finding.rule, style), finding.why, finding.mend)
    return Group(table, found) if outcome.findings else Group(table, Text("No findings."))


def results(outcome: "AppAudit") -> list[tuple[str, str]]:
    """Return the numbers behind the verdict, worded, name by name."""
    whole = outcome.scope is Scope.RUN
    rounds, bound = outcome.configuration.rounds, outcome.lower_bound
    per = f"the whole run, {_counted(rounds, 'round')}" if whole else "one message"
    claim = outcome.claim
    said = "nothing" if claim is None else f"epsilon {claim.epsilon:.4g} ({claim.source})"
    observations = outcome.trials * (1 if whole else rounds)
    proven = ""
    if claim is not None:
        proven = f"; {outcome.proven.epsilon:.4g} with the {ALARM_CONFIDENCE:.1%} of a conviction"
    measured = outcome.advantage
    expected = outcome.predicted_advantage
    predicted = "" if expected is None else f"; theory predicts {expected:.3f}"
    update = "of the update as training returns it: " if outcome.training_unseen else ""
    rows = [
        ("App", f"{outcome.app}: {' > '.join(outcome.configuration.strategies)}"),
        ("Judged", f"{per}, at delta {outcome.delta:g}"),
        ("Claimed", said),
        *(("Not judged", reason) for reason in outcome.reasons),
        ("By theory", update + _theory(outcome)),
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
    if outcome.contradictory:
        rows.append(("Contradiction", CONTRADICTION))
    return rows


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
def _progress(trials: int, console: Console) -> Iterator[Callable[[int], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("honest run", total=trials)
        yield lambda done: progress.update(task, completed=done, description="attacking")
