"""The report of a live audit: the beliefs of an auditor of a running federation, in numbers.

A measurement supports nothing if it could not have contradicted the noise that the server states:
if half of that noise would not have raised the alarm of sums or canaries.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.special import expit

from adversaries.statistics import gaussian
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.judgement.claim import Claim, Evidence, Finding
from fedsim.audits.judgement.report import AuditReport, concluded
from fedsim.audits.live.live_audit import CanaryFindings, LiveAudit, Look
from fedsim.audits.results.conditions import LIVE
from fedsim.audits.results.rows import Limit, Noise, View
from fedsim.audits.run import detectable, guarantee
from fedsim.federation.transcripts.records import TranscriptFacts
from fedsim.game.mechanisms.noise_family import scaled
from fedsim.game.mechanisms.privacy import adds_up
from fedsim.game.observers import noise_watch
from fedsim.privacy import identifiability
from fedsim.privacy.accounting import PLD

AUDITOR = "auditor"
"""The observer that an auditor's node stands for."""

SURE = f"with confidence {ALARM_CONFIDENCE:g}"
LOUD = (
    f"Canaries show a signal of at least {{:.3f}} standard deviations {SURE}, but the claimed "
    "noise allows {:.3f}: there is less noise than claimed"
)
UNABLE = (
    "no measurement could have refuted the noise that the server states. Canaries of consenting "
    "clients (--canary-seed-file) could"
)
EXCEEDED = "the noise that the server states allows epsilon {:.4g}, above the claim"
UNENDED = "the transcript does not state that the run has ended"
NO_ROUND = "no round was observed from its beginning to its end"


@dataclass(frozen=True, kw_only=True)
class Beliefs:
    """Beliefs that D was used, of all trials at their end and of the last batch by round."""

    mean: float
    log_odds: list[float]
    rounds: list[int]
    """Rounds of the last batch of trials."""
    mean_by_round: list[float]
    highest_by_round: list[float]


@dataclass(frozen=True, kw_only=True)
class LiveDetails:
    """What the audit of an auditor's node alone has; None where it cannot know."""

    facts: TranscriptFacts
    rounds_planned: int | None
    rounds: int
    """Rounds of the longest observed training."""
    missed: int
    trials: int
    released_epsilon: float | None
    """Epsilon of everything released together; None where the noise comes from the seed."""
    belief: Beliefs | None
    noise_at_most: Mapping[str, float] | None
    """Largest possible noise over the claimed noise, of the sums and of each client's messages,
    from the released numbers alone. It holds after every round."""
    canaries: CanaryFindings | None


LiveReport = AuditReport[LiveDetails]


def assemble(
    audit: LiveAudit,
    facts: TranscriptFacts,
    confidence: float,
    claim: Claim | None = None,
    ended: bool = False,
) -> LiveReport:
    """Return the report so far."""
    config = audit.config
    last = [beliefs[-1] for _, beliefs in sorted(audit.beliefs.items()) if beliefs]
    limit, findings = _limit(audit), [Finding(each) for each in _alarms(audit)]
    evidence = Evidence()
    if claim is not None:
        unmeasurable = [] if able(audit) else [UNABLE]
        evidence = live_evidence(audit, claim, findings, unmeasurable, ended)
        proven = _bounds(audit, claim.delta, ALARM_CONFIDENCE).values()
        evidence = replace(evidence, proven=max(proven, default=0.0))

    return concluded(
        [_view(audit, last, limit, confidence)],
        evidence,
        kind=LIVE,
        name=f"Run {facts.run}",
        unit=None if config is None else config.privacy.unit,
        claim=claim,
        findings=findings,
        delta=None if config is None else config.privacy.delta,
        confidence=confidence,
        details=_details(audit, facts, last, confidence),
        versions=facts.versions,
    )


def _details(
    audit: LiveAudit, facts: TranscriptFacts, last: Sequence[Look], confidence: float
) -> LiveDetails:
    config, everything = audit.config, audit.everything()
    epsilon = belief = None
    if everything is not None and adds_up(audit.run.privacy.noise_source):
        epsilon = PLD.epsilon(everything, audit.run.privacy.delta)
    if last:
        final = np.concatenate([look.log_odds for look in last])
        course = audit.beliefs[last[-1].trials.start]
        belief = Beliefs(
            mean=float(expit(final).mean()),
            log_odds=final.tolist(),
            rounds=[look.round for look in course],
            mean_by_round=[float(expit(look.log_odds).mean()) for look in course],
            highest_by_round=[float(expit(look.log_odds).max()) for look in course],
        )
    return LiveDetails(
        facts=facts,
        rounds_planned=None if config is None else config.training.rounds,
        rounds=audit.rounds,
        missed=audit.missed,
        trials=sum(len(look.trials) for look in last),
        released_epsilon=epsilon,
        belief=belief,
        noise_at_most=audit.noise_limits(confidence) or None,
        canaries=audit.canary_findings(confidence),
    )


# The row


def _limit(audit: LiveAudit) -> Limit | None:
    """Return the limit of the least protected batch of trials, which holds for every batch."""
    mechanisms = audit.mechanisms()
    if audit.config is None or not mechanisms:
        return None
    delta = audit.config.privacy.delta
    worst = max(mechanisms, key=lambda mechanism: PLD.epsilon(mechanism, delta))
    bounds = identifiability.bounds(worst, delta)
    exceeded = bounds.tail_probability
    return Limit(
        epsilon=bounds.epsilon,
        rho_beta=bounds.rho_beta,
        exceeded=1.0 if exceeded is None else exceeded,
        # With sampled steps, another batch may have the largest advantage.
        rho_alpha=max(map(identifiability.rho_alpha, mechanisms)),
        noise_multiplier=min(one.noise_multiplier for one in worst.groups),
        worst=None,
        risks=[],
        note="" if audit.run.trials.count == 1 else "one training",
        source="claim",
    )


def _noise(audit: LiveAudit, confidence: float) -> Noise | None:
    """Return an upper end of the noise over the claimed noise, by canaries and the sums' size.

    It has no lower end: records, too, hide a canary and lengthen a sum. Both share the error.
    """
    measured = sum(watch is not None for watch in (audit.canaries, audit.noise))
    level = 1 - (1 - confidence) / max(1, measured)
    ends = [*audit.noise_limits(level).values()]
    signal = audit.canary_findings(level)
    if signal is not None and signal.claimed_mu is not None and (signal.least or 0.0) > 0:
        ends.append(signal.claimed_mu / signal.interval[0])
    return Noise(0.0, min(ends), confidence) if ends else None


def _view(audit: LiveAudit, last: Sequence[Look], limit: Limit | None, confidence: float) -> View:
    config = audit.config
    if config is None:
        return View(observer=AUDITOR, detects=None)
    bounds = partial(_bounds, audit, config.privacy.delta)
    return View(
        observer=AUDITOR,
        limit=limit,
        trials=sum(len(belief.trials) for belief in last),
        log_odds=max((float(belief.log_odds.max()) for belief in last), default=None),
        bounds=bounds if last or bounds(confidence) else None,
        noise=_noise(audit, confidence),
        detects=_detects(audit),
    )


def _bounds(audit: LiveAudit, delta: float, confidence: float) -> dict[str, float]:
    """Return the lower bounds on epsilon at delta, which hold together.

    Canaries and the size of the noise each prove one. They share the error.
    """
    everything = audit.everything()
    if audit.config is None or everything is None:
        return {}
    measured = sum(watch is not None for watch in (audit.canaries, audit.noise))
    bounds, level = dict[str, float](), 1 - (1 - confidence) / max(1, measured)
    signal = audit.canary_findings(level)
    if signal is not None and signal.least is not None:
        bounds["canaries"] = gaussian.epsilon(max(0.0, signal.least), delta)
    if audit.noise is not None:
        limits = audit.noise_limits(level)
        if audit.config.federation.auditor_sees == "messages":
            limits.pop(noise_watch.SUM, None)
        least = min(limits.values(), default=math.inf)
        shown = PLD.epsilon(scaled(everything, least), delta) if math.isfinite(least) else 0.0
        bounds["noise"] = shown
    return bounds


# Alarms, and what could have raised one


def _alarms(audit: LiveAudit) -> list[str]:
    alarms, canaries = list[str](), audit.canary_findings(ALARM_CONFIDENCE)
    if canaries is not None and canaries.over:
        alarms.append(LOUD.format(canaries.interval[0], canaries.claimed_mu))
    if audit.noise is not None:
        limits = audit.noise_limits(ALARM_CONFIDENCE)
        alarms += noise_watch.alarms(audit.noise.accused(ALARM_CONFIDENCE), limits)
    return [each.removesuffix(".") for each in alarms]


def able(audit: LiveAudit) -> bool:
    """Return whether some measurement could have contradicted the noise."""
    if audit.noise is not None and audit.noise.telling:
        return True
    canaries = audit.canary_findings(ALARM_CONFIDENCE)
    if audit.canaries is None or canaries is None or canaries.reason is not None:
        return False
    return audit.canaries.telling(audit.level(ALARM_CONFIDENCE))


def _detects(audit: LiveAudit) -> list[float] | None:
    """Return the share of the noise below which sums would raise an alarm; None without rounds."""
    if not audit.mechanisms():
        return None
    if audit.noise is None:
        return []
    limit = audit.noise_limits(ALARM_CONFIDENCE).get(noise_watch.SUM, math.inf)
    return [detectable.by_limit(limit)]


# The verdict


def live_evidence(
    audit: LiveAudit,
    claim: Claim,
    alarms: Sequence[Finding],
    unmeasurable: Sequence[str],
    ended: bool,
) -> Evidence:
    """Return what speaks for and against a claim, without what the auditor proved."""
    mechanism = audit.everything()
    if audit.config is None or mechanism is None:
        return Evidence(incomparable=NO_ROUND)
    config = audit.config
    unit, planned = config.privacy.unit, config.trials.count
    if claim.unit not in (None, unit):
        other = f"the claim is about a {claim.unit}, but the run protects a {unit}"
        return Evidence(incomparable=other)
    against = [each.why for each in alarms]
    against += guarantee.dp_failings(config)
    epsilon = PLD.epsilon(mechanism, claim.delta)
    if not claim.allows(epsilon):
        against.append(EXCEEDED.format(epsilon))
    unsure = [] if ended else [UNENDED]
    if audit.trials < planned:
        unsure.append(f"{audit.trials} of {planned} trials were observed")
    return Evidence(exceeded=bool(against), against=against, unsure=[*unsure, *unmeasurable])
