"""What the audit of an app or a loop says on a terminal."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.judgement.claim import Scope, Verdict
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
