"""The report of a live audit: the beliefs of an auditor of a running federation, in numbers.

A measurement supports nothing if it could not have contradicted the noise that the server states.
Worlds could, if winning all trials would have raised the alarm; sums and canaries could, if half of
the noise would have.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from adversaries.arrays import Bools, Floats
from adversaries.bounds import lower_bounds
from adversaries.errors import InputError
from adversaries.statistics import estimators, gaussian
from adversaries.statistics.intervals import ALARM_CONFIDENCE, significance
from fedsim.audits.judgement.claim import UNCLAIMED, Claim, Evidence, Finding, Judgement, Verdict
from fedsim.audits.judgement.claim import judge as judged
from fedsim.audits.judgement.report import TranscriptReport
from fedsim.audits.live.live_audit import LiveAudit
from fedsim.audits.live.live_rounds import CanaryFindings, Look
from fedsim.audits.results.checks import TOTAL, GateRule
from fedsim.audits.results.conditions import LIVE
from fedsim.audits.results.rows import Attack, Limit, Noise, unmeasured
from fedsim.audits.run import detectable, guarantee
from fedsim.federation.transcripts.records import TranscriptFacts
from fedsim.game.mechanisms.noise_family import scaled
from fedsim.game.mechanisms.privacy import adds_up
from fedsim.game.observers import noise_watch
from fedsim.privacy import identifiability
from fedsim.privacy.accounting import PLD

AUDITOR = "auditor"
"""The observer that an auditor's node stands for."""

HALF = 0.5
"""Share of the claimed noise that must be detectable, with `detectable.POWER`."""

SURE = f"with confidence {ALARM_CONFIDENCE:g}"
ABOVE = (
    f"The advantage is at least {{:.3f}} {SURE}, above its bound {{:.3f}}. Likely causes: less "
    "noise than claimed, noise that repeats or that misses a part of the model, or a clipped "
    "gradient above the sensitivity"
)
LOUD = (
    f"Canaries show a signal of at least {{:.3f}} standard deviations {SURE}, but the claimed "
    "noise allows {:.3f}: there is less noise than claimed"
)
REFUTED = (
    "The claim of epsilon {:g} at delta {:g} is refuted: at this delta epsilon is at least {:.3g} "
    f"({ALARM_CONFIDENCE:.2%} confidence)"
)
UNABLE = (
    "no measurement could have refuted the noise that the server states. Enough trials with known "
    "worlds (--worlds) could, or canaries of consenting clients (--canary-seed-file)"
)
EXCEEDED = "the noise that the server states allows epsilon {:.4g}, above the claim"
UNENDED = "the transcript does not state that the run has ended"
NO_ROUND = "no round was observed from its beginning to its end"
MISSED = GateRule("missed > 0", "The auditor saw every round.", "The auditor missed rounds.")

Scored = tuple[Bools, Floats]
"""Worlds and final log-odds of the observed trials."""


@dataclass(frozen=True)
class EverythingReleased:
    """Everything that was released, together."""

    epsilon: float


@dataclass(frozen=True, kw_only=True)
class Beliefs:
    """Beliefs that D was used, of all trials at their end and of the last batch by round."""

    mean: float
    log_odds: list[float]
    rounds: list[int]
    """Rounds of the last batch of trials."""
    mean_by_round: list[float]
    """Mean belief after each of these rounds."""
    highest_by_round: list[float]
    """Highest belief after each of these rounds."""


@dataclass(frozen=True)
class NoiseLimits:
    """The largest possible noise, from the released numbers alone, valid after every round."""

    at_most: Mapping[str, float]
    """Noise over the claimed noise, of the sums and of each client's messages."""
    confidence: float


@dataclass(frozen=True, kw_only=True)
class LiveDetails:
    """What the audit of an auditor's node alone has; None where it cannot know."""

    facts: TranscriptFacts
    rounds_planned: int | None
    rounds: int
    """Rounds of the longest observed training."""
    missed: int
    """Number of rounds that the auditor did not see."""
    single: bool
    """Whether the run has a single training."""
    trials: int
    released: EverythingReleased | None
    """None where the noise comes from the seed."""
    belief: Beliefs | None
    noise: NoiseLimits | None
    canaries: CanaryFindings | None


LiveReport = TranscriptReport[LiveDetails]


def assemble(
    audit: LiveAudit,
    facts: TranscriptFacts,
    confidence: float,
    worlds: Bools | None = None,
    claim: Claim | None = None,
    ended: bool = False,
) -> LiveReport:
    """Return the report so far."""
    config = audit.config
    if config is not None and worlds is not None and len(worlds) != config.trials.count:
        raise InputError(
            f"the run of --worlds has {len(worlds)} trials, but the recorded run has "
            f"{config.trials.count}: they are different runs; name the run that the auditor joined"
        )
    last = [beliefs[-1] for _, beliefs in sorted(audit.beliefs.items()) if beliefs]
    limit, scored = _limit(audit), _scored(last, worlds)
    observed = None if scored is None else scored[0]
    bound = None if limit is None else limit.rho_alpha
    contradictions = _alarms(audit, scored, limit)
    judgement = UNCLAIMED
    if claim is not None:
        proven = _at_least(audit, scored, claim, ALARM_CONFIDENCE)
        unmeasurable = [] if able(audit, observed, bound) else [UNABLE]
        judgement = judge(audit, claim, contradictions, unmeasurable, ended, proven)
        if judgement.verdict is Verdict.CONVICTED:
            contradictions.append(REFUTED.format(claim.epsilon, claim.delta, proven))
    details = _details(audit, facts, last, confidence)
    row = unmeasured(
        AUDITOR,
        limit,
        _attack(audit, last, scored, confidence),
        _noise(audit, confidence),
        detects=seen_below(audit, observed),
    )
    return LiveReport(
        kind=LIVE,
        name=f"Run {facts.run}",
        versions=facts.versions,
        claim=claim,
        delta=None if config is None else config.privacy.delta,
        confidence=confidence,
        findings=[Finding(text.removesuffix(".")) for text in contradictions],
        unit=None if config is None else config.privacy.unit,
        judgement=judgement,
        vantage=AUDITOR,
        unjudged=[row],
        further_checks=[*_checks(limit)],
        details=details,
        total=None if details.released is None else details.released.epsilon,
    )


def _checks(limit: Limit | None) -> Iterator[GateRule]:
    yield MISSED
    if limit is None:
        return
    if limit.rho_alpha < 1:
        yield GateRule(
            f"advantage.high > {limit.rho_alpha!r}",
            "The measured advantage lies below the limit of theory.",
            "",
            "The audit does not show that the auditor stays below the limit of theory.",
            proof="",
        )
    if math.isfinite(limit.epsilon):
        yield GateRule(
            f"{TOTAL[LIVE]} > {1.001 * limit.epsilon!r}",
            "Everything released has no more ε than one training.",
            "Everything released costs more ε than one training.",
            "The total ε of everything released is not known.",
        )


def _details(
    audit: LiveAudit, facts: TranscriptFacts, last: Sequence[Look], confidence: float
) -> LiveDetails:
    config, everything = audit.config, audit.everything()
    limits = None if audit.noise is None else audit.noise.limits(confidence)
    released = None
    if everything is not None and adds_up(audit.run.privacy.noise_source):
        released = EverythingReleased(PLD.epsilon(everything, audit.run.privacy.delta))
    return LiveDetails(
        facts=facts,
        rounds_planned=None if config is None else config.training.rounds,
        rounds=audit.rounds,
        missed=audit.missed,
        single=config is not None and config.trials.count == 1,
        trials=sum(len(belief.trials) for belief in last),
        released=released,
        belief=_beliefs(audit, last),
        noise=NoiseLimits(limits, confidence) if limits else None,
        canaries=audit.canary_findings(confidence),
    )


def _beliefs(audit: LiveAudit, last: Sequence[Look]) -> Beliefs | None:
    if not last:
        return None
    final = np.concatenate([belief.log_odds for belief in last])
    course = audit.beliefs[last[-1].trials.start]
    return Beliefs(
        mean=float(expit(final).mean()),
        log_odds=final.tolist(),
        rounds=[belief.round for belief in course],
        mean_by_round=[float(expit(belief.log_odds).mean()) for belief in course],
        highest_by_round=[float(expit(belief.log_odds).max()) for belief in course],
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


def _scored(last: Sequence[Look], worlds: Bools | None) -> Scored | None:
    """Return worlds and final log-odds of the observed trials; None unless both worlds occur."""
    if worlds is None or not last:
        return None
    bits = [worlds[belief.trials.start : belief.trials.stop] for belief in last]
    observed = np.concatenate(bits)
    if len(np.unique(observed)) < 2:
        return None
    return observed, np.concatenate([belief.log_odds for belief in last])


def _noise(audit: LiveAudit, confidence: float) -> Noise | None:
    """Return an upper end of the noise over the claimed noise, by canaries and the sums' size.

    It has no lower end: records, too, hide a canary and lengthen a sum. Both share the error.
    """
    measured = sum(watch is not None for watch in (audit.canaries, audit.noise))
    level = 1 - (1 - confidence) / max(1, measured)
    ends = [] if audit.noise is None else [*audit.noise.limits(level).values()]
    signal = audit.canary_findings(level)
    if signal is not None and signal.claimed_mu is not None and (signal.least or 0.0) > 0:
        ends.append(signal.claimed_mu / signal.interval[0])
    return Noise(0.0, min(ends), confidence) if ends else None


def _attack(
    audit: LiveAudit, last: Sequence[Look], scored: Scored | None, confidence: float
) -> Attack | None:
    """Return what the auditor achieved; None where it measured nothing and believes nothing."""
    at_least = _at_least(audit, scored, None, confidence)
    if audit.config is None or (at_least is None and not last):
        return None
    advantage = exceeded = None
    counts = [len(belief.trials) for belief in last]
    if scored is not None:
        advantage = estimators.advantage(*scored, confidence)
        allowed = np.repeat([belief.epsilon for belief in last], counts)
        exceeded = estimators.delta_prime(*scored, allowed, confidence)
    one_sum = audit.config.federation.auditor_sees != "messages"
    return Attack.proving(
        at_least,
        _at_least(audit, scored, None, ALARM_CONFIDENCE),
        "worlds, canaries and noise",
        confidence,
        trials=sum(counts),
        log_odds=max((float(belief.log_odds.max()) for belief in last), default=None),
        advantage=advantage,
        exceeded=exceeded,
        # No auditor that saw the same could do better.
        best=audit.config.training.local_steps == 1 and one_sum and not audit.missed,
    )


def _at_least(
    audit: LiveAudit, scored: Scored | None, claim: Claim | None, confidence: float
) -> float | None:
    """Return the largest lower bound on epsilon; None where nothing was measured.

    It is at the claim's delta, else at the run's. Guessed worlds, canaries and the size of the
    noise each prove one. They share the error.
    """
    everything = audit.everything()
    if audit.config is None or everything is None:
        return None
    delta = audit.config.privacy.delta if claim is None else claim.delta
    measured = sum(watch is not None for watch in (scored, audit.canaries, audit.noise))
    bounds, level = [], 1 - (1 - confidence) / max(1, measured)
    if scored is not None:
        bounds.append(lower_bounds.clopper_pearson_bound(*scored, delta, level).epsilon)
    signal = audit.canary_findings(level)
    if signal is not None and signal.least is not None:
        bounds.append(gaussian.epsilon(max(0.0, signal.least), delta))
    if audit.noise is not None:
        limits = audit.noise.limits(level)
        if audit.config.federation.auditor_sees == "messages":
            limits.pop(noise_watch.SUM, None)
        least = min(limits.values(), default=math.inf)
        bounds.append(
            PLD.epsilon(scaled(everything, least), delta) if math.isfinite(least) else 0.0
        )
    return max(bounds, default=None)


# Alarms, and what could have raised one


def _alarms(audit: LiveAudit, scored: Scored | None, limit: Limit | None) -> list[str]:
    alarms = []
    if scored is not None and limit is not None:
        low = estimators.advantage(*scored, ALARM_CONFIDENCE).interval.low
        if low > limit.rho_alpha:
            alarms.append(ABOVE.format(low, limit.rho_alpha))
    canaries = audit.canary_findings(ALARM_CONFIDENCE)
    if canaries is not None and canaries.over:
        alarms.append(LOUD.format(canaries.interval[0], canaries.claimed_mu))
    if audit.noise is not None:
        limits = audit.noise.limits(ALARM_CONFIDENCE)
        alarms += noise_watch.alarms(audit.noise.accused(ALARM_CONFIDENCE), limits)
    return alarms


def able(audit: LiveAudit, observed: Bools | None, bound: float | None) -> bool:
    """Return whether some measurement could have contradicted the noise.

    observed: worlds of the observed trials; None where they are unknown or all the same.
    """
    if audit.config is None or bound is None:
        return False
    won = False
    if audit.run.trials.count > 1 and observed is not None:
        scores = np.where(observed, 1.0, -1.0)  # of an auditor that wins all trials
        won = estimators.advantage(observed, scores, ALARM_CONFIDENCE).interval.low > bound
    told = audit.noise is not None and audit.noise.telling
    return won or told or _share_by_canaries(audit)[0] >= HALF


def seen_below(audit: LiveAudit, observed: Bools | None) -> float | None:
    """Return the share of the claimed noise below which the auditor would have raised an alarm.

    It holds with `detectable.POWER`, for the best of sums, canaries and worlds. It is None where no
    round was observed, and 0 where no shortfall can be named.
    """
    if audit.config is None or not audit.mechanisms():
        return None
    share, beside = _share_by_canaries(audit)
    shares = [0.0, math.sqrt(max(0.0, share**2 - beside))]
    if audit.noise is not None:
        limit = audit.noise.limits(ALARM_CONFIDENCE).get(noise_watch.SUM, math.inf)
        shares.append(detectable.by_limit(limit))
    if observed is not None:
        shares.append(_share_by_worlds(audit, observed.size))
    return max(shares)


def _share_by_canaries(audit: LiveAudit) -> tuple[float, float]:
    """Return the detectable share of all that hides a canary, and the records' part in it.

    That part is the largest variance of other records in this run, over the noise's variance; inf
    where the canaries show no signal.
    """
    watch = audit.canaries
    effect = None if watch is None else watch.effect(ALARM_CONFIDENCE)
    claimed = None if watch is None else watch.prediction()
    if watch is None or effect is None or not claimed or effect.reason is not None:
        return 0.0, math.inf
    low = effect.interval.low
    beside = math.inf if low <= 0 else max(0.0, (claimed / low) ** 2 - 1)
    tail = significance(ALARM_CONFIDENCE) / 2
    share = detectable.by_separation(claimed, claimed, *watch.sides, tail, checked=False)
    return share, beside


def _share_by_worlds(audit: LiveAudit, observed: int) -> float:
    mechanisms = audit.mechanisms()
    if audit.missed or any(each.sampled for each in mechanisms):
        return 0.0
    signals = [
        np.sqrt(sum((each.sensitivities / each.noise_stds) ** 2 for each in course)).min()
        for course in audit.beliefs.values()
        if course
    ]
    bound = max(map(identifiability.rho_alpha, mechanisms))
    tail = significance(ALARM_CONFIDENCE) / 2
    return detectable.by_wins(float(min(signals)), bound, observed, tail)


# The verdict


def judge(
    audit: LiveAudit,
    claim: Claim,
    alarms: Sequence[str],
    unmeasurable: Sequence[str],
    ended: bool,
    proven: float | None = None,
) -> Judgement:
    """Return the verdict on a claim; proven: lower bound on epsilon as sure as an alarm."""
    mechanism = audit.everything()
    if audit.config is None or mechanism is None:
        return judged(claim, Evidence(incomparable=NO_ROUND))
    config = audit.config
    unit, planned = config.privacy.unit, config.trials.count
    if claim.unit not in (None, unit):
        other = f"the claim is about a {claim.unit}, but the run protects a {unit}"
        return judged(claim, Evidence(incomparable=other))
    against = [*alarms, *guarantee.dp_failings(config.game, config.audit)]
    epsilon = PLD.epsilon(mechanism, claim.delta)
    if not claim.allows(epsilon):
        against.append(EXCEEDED.format(epsilon))
    unsure = [] if ended else [UNENDED]
    if audit.trials < planned:
        unsure.append(f"{audit.trials} of {planned} trials were observed")
    evidence = Evidence(
        refuted=proven is not None and not claim.allows(proven),
        exceeded=bool(against),
        against=against,
        unsure=[*unsure, *unmeasurable],
    )
    return judged(claim, evidence)
