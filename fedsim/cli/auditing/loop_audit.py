"""`fedsim audit loop`: what a training function's privacy really is, and why."""

import math
from typing import TYPE_CHECKING

import typer

from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.judgement.claim import claim_given
from fedsim.audits.judgement.options import AuditOptions
from fedsim.cli import gate
from fedsim.cli.auditing import options
from fedsim.cli.auditing.app_audit import (
    CONTRADICTION,
    check_out,
    leave,
    tabulated,
    trials_shown,
)
from fedsim.cli.auditing.options import OfEvery
from fedsim.cli.options import AsJson, Confidence, FailIf, Seed
from fedsim.cli.terminal import Terminal
from fedsim.privacy.mechanism import Neighbouring

if TYPE_CHECKING:  # numerics take a second
    from fedsim.audits.loop.audit import LoopAudit


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
    """Audit a training function, with Opacus in it or not: run it with a record and without it.

    It takes features, labels and a seed, and returns the model or every released step. It is run
    again and again, in a process of its own with your rights: only name code that you would run
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
    from fedsim.report.kinds.app_or_loop import render_loop  # noqa: PLC0415

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
    rows, verdict = results(outcome), outcome.verdict
    page = render_loop(outcome.loop, verdict, outcome.reasons, rows, outcome.findings)
    shown = tabulated(verdict, rows, outcome.findings)
    return leave(outcome.report(code), page, shown, every)


def results(outcome: "LoopAudit") -> list[tuple[str, str]]:
    """Return the numbers behind the verdict, worded, name by name."""
    claim, bound, measured = outcome.claim, outcome.lower_bound, outcome.advantage
    seen = outcome.observation
    said = "nothing" if claim is None else f"epsilon {claim.epsilon:.4g} ({claim.source})"
    proven = ""
    if claim is not None:
        proven = f"; {outcome.proven.epsilon:.4g} with the {ALARM_CONFIDENCE:.2%} of a conviction"
    steps = f"{len(seen.steps)} steps of Opacus's optimizer" if seen.steps else "what it returned"
    replaced = seen.neighbouring is Neighbouring.REPLACE
    rows = [
        ("Loop", outcome.loop),
        ("Judged", f"{steps}, all together, at delta {outcome.delta:g}; unit: one record"),
        ("Claimed", said),
        *(("Not judged", reason) for reason in outcome.reasons),
        _theory(outcome),
        *_noise(outcome),
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


def _theory(outcome: "LoopAudit") -> tuple[str, str]:
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


def _noise(outcome: "LoopAudit") -> list[tuple[str, str]]:
    """Return what was measured of the noise, and the least deviation that would have been seen."""
    from fedsim.audits.loop.noise import SEEN  # noqa: PLC0415

    noise = outcome.noise
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
