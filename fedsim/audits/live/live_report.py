"""The report of a live audit: the beliefs of an auditor of a running federation, in numbers.

`fedsim.reports.kinds.audited` shows them.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import expit

from adversaries.arrays import Bools, Floats
from adversaries.bounds import lower_bounds
from adversaries.errors import InputError
from adversaries.statistics import estimators, gaussian
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.judgement.claim import (
    UNCLAIMED,
    Claim,
    Evidence,
    Finding,
    Judgement,
    Verdict,
)
from fedsim.audits.judgement.claim import judge as judged
from fedsim.audits.live import live_power
from fedsim.audits.live.live_audit import LiveAudit
from fedsim.audits.live.live_results import (
    Beliefs,
    EverythingReleased,
    LiveDetails,
    LiveReport,
    NoiseLimits,
)
from fedsim.audits.live.live_rounds import Belief
from fedsim.audits.results.rows import Attack, Limit, Noise, Row
from fedsim.audits.run import guarantee
from fedsim.configuration.campaign import TrialsConfig
from fedsim.federation.transcripts.records import TranscriptFacts
from fedsim.game.mechanisms.noise_family import scaled
from fedsim.game.mechanisms.privacy import adds_up
from fedsim.game.observers import noise_watch
from fedsim.privacy import identifiability
from fedsim.privacy.accounting import PLD


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
    if config is not None and worlds is not None:
        _check_count(config.trials, len(worlds))
    last = [beliefs[-1] for _, beliefs in sorted(audit.beliefs.items()) if beliefs]
    limit, scored = _limit(audit), _scored(last, worlds)
    bound = None if limit is None else limit.rho_alpha
    observed = None if scored is None else scored[0]
    contradictions = _alarms(audit, scored, bound)
    judgement = UNCLAIMED
    if claim is not None:
        proven = _at_least(audit, scored, claim, ALARM_CONFIDENCE)
        able = live_power.able(audit, observed, bound)
        unmeasured = [] if able else [live_power.UNABLE]
        judgement = judge(audit, claim, contradictions, unmeasured, ended, proven)
        if judgement.verdict is Verdict.CONVICTED:
            contradictions.append(REFUTED.format(claim=claim, proven=proven))
    noise = _noise(audit, confidence)
    row = Row(
        observer=AUDITOR,
        standing="not-measured",
        limit=limit,
        attack=_attack(audit, last, scored, confidence),
        predicted=None,
        detects=live_power.seen_below(audit, observed),
        note="",
        noise=noise,
    )
    return LiveReport(
        claim=claim,
        delta=None if config is None else config.privacy.delta,
        confidence=confidence,
        findings=[Finding(text.removesuffix(".")) for text in contradictions],
        unit=None if config is None else config.privacy.unit,
        judgement=judgement,
        vantage=AUDITOR,
        unjudged=[row],
        details=_details(audit, facts, last, confidence),
    )


AUDITOR = "auditor"
"""The observer that an auditor's node stands for."""


def _details(
    audit: LiveAudit, facts: TranscriptFacts, last: Sequence[Belief], confidence: float
) -> LiveDetails:
    config = audit.config
    sees = "the aggregate"
    if config is not None and config.federation.auditor_sees == "messages":
        sees = "the aggregate and every client's message"
    limits = None if audit.noise is None else audit.noise.limits(confidence)
    return LiveDetails(
        facts=facts,
        sees=f"{sees} of every round, none of the noise known",
        trust=None if config is None else config.federation.trust.value,
        neighbouring=None if config is None else config.privacy.neighbouring.value,
        rounds_planned=None if config is None else config.training.rounds,
        rounds=audit.rounds,
        missed=audit.missed,
        single=config is not None and config.trials.count == 1,
        trials=sum(len(belief.log_odds) for belief in last),
        released=_released(audit),
        belief=_beliefs(audit, last),
        noise=NoiseLimits(limits, confidence) if limits else None,
        canaries=audit.canary_findings(confidence),
    )


def _check_count(trials: TrialsConfig, reported: int) -> None:
    planned = trials.count
    if reported != planned:
        raise InputError(
            f"the run of --worlds has {reported} trials, but the recorded run has {planned}: they "
            "are different runs; name the run that the auditor joined"
        )


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
    ends = [] if audit.noise is None else [*audit.noise.limits(level).values()]
    signal = audit.canary_findings(level)
    if signal is not None and signal.reason is None and signal.claimed_mu is not None:
        ends += [signal.claimed_mu / signal.interval[0]] if signal.interval[0] > 0 else []
    return Noise(0.0, min(ends), confidence) if ends else None


def _released(audit: LiveAudit) -> EverythingReleased | None:
    mechanism = audit.everything()
    if mechanism is None or audit.config is None or not adds_up(audit.config.privacy.noise_source):
        return None
    epsilon = PLD.epsilon(mechanism, audit.config.privacy.delta)
    return EverythingReleased(epsilon, identifiability.rho_beta_of_epsilon(epsilon))


def _beliefs(audit: LiveAudit, last: Sequence[Belief]) -> Beliefs | None:
    if not last:
        return None
    final = np.concatenate([belief.log_odds for belief in last])
    course = audit.beliefs[last[-1].first_trial]
    return Beliefs(
        mean=float(expit(final).mean()),
        log_odds=final.tolist(),
        rounds=[belief.round for belief in course],
        mean_by_round=[float(expit(belief.log_odds).mean()) for belief in course],
        highest_by_round=[float(expit(belief.log_odds).max()) for belief in course],
    )


def _attack(
    audit: LiveAudit,
    last: Sequence[Belief],
    scored: tuple[Bools, Floats] | None,
    confidence: float,
) -> Attack | None:
    """Return what the auditor achieved; None where it measured nothing and believes nothing."""
    at_least = _at_least(audit, scored, None, confidence)
    if audit.config is None or (at_least is None and not last):
        return None
    advantage = exceeded = None
    if scored is not None:
        advantage = estimators.advantage(*scored, confidence)
        counts = [len(belief.log_odds) for belief in last]
        allowed = np.repeat([belief.epsilon for belief in last], counts)
        exceeded = estimators.delta_prime(*scored, allowed, confidence)
    trials = sum(len(belief.log_odds) for belief in last)
    highest = max((float(belief.log_odds.max()) for belief in last), default=None)
    return Attack.proving(
        at_least,
        _at_least(audit, scored, None, ALARM_CONFIDENCE),
        "worlds, canaries and noise",
        confidence,
        trials=trials,
        log_odds=highest,
        advantage=advantage,
        exceeded=exceeded,
        best=_is_exact(audit),
    )


def _is_exact(audit: LiveAudit) -> bool:
    """Return whether no auditor that saw the same could do better."""
    config = audit.run
    one_sum = config.federation.auditor_sees != "messages"
    return config.training.local_steps == 1 and one_sum and not audit.missed


def _scored(last: Sequence[Belief], worlds: Bools | None) -> tuple[Bools, Floats] | None:
    """Return worlds and final log-odds of the observed trials; None unless both worlds occur."""
    if worlds is None or not last:
        return None
    bits = [
        worlds[belief.first_trial : belief.first_trial + len(belief.log_odds)] for belief in last
    ]
    observed = np.concatenate(bits)
    if len(np.unique(observed)) < 2:
        return None
    return observed, np.concatenate([belief.log_odds for belief in last])


def _alarms(
    audit: LiveAudit, scored: tuple[Bools, Floats] | None, bound: float | None
) -> list[str]:
    alarms, sure = [], f"with confidence {ALARM_CONFIDENCE:g}"
    if scored is not None and bound is not None:
        low = estimators.advantage(*scored, ALARM_CONFIDENCE).interval.low
        if low > bound:
            alarms.append(
                f"The advantage is at least {low:.3f} {sure}, above its bound "
                f"{bound:.3f}. Likely causes: less noise than claimed, noise that repeats or that "
                "misses a part of the model, or a clipped gradient above the sensitivity."
            )
    canaries = audit.canary_findings(ALARM_CONFIDENCE)
    if canaries is not None and canaries.over:
        alarms.append(
            f"Canaries show a signal of at least {canaries.interval[0]:.3f} standard deviations "
            f"{sure}, but the claimed noise allows {canaries.claimed_mu:.3f}: there is less "
            "noise than claimed."
        )
    if audit.noise is not None:
        alarms += noise_watch.alarms(
            audit.noise.accused(ALARM_CONFIDENCE), audit.noise.limits(ALARM_CONFIDENCE)
        )
    return alarms


REFUTED = (
    "The claim of epsilon {claim.epsilon:g} at delta {claim.delta:g} is refuted: at this delta "
    f"epsilon is at least {{proven:.3g}} ({ALARM_CONFIDENCE:.2%} confidence)."
)


def _at_least(
    audit: LiveAudit, scored: tuple[Bools, Floats] | None, claim: Claim | None, confidence: float
) -> float | None:
    """Return the largest lower bound on epsilon; None where nothing was measured.

    It is at the claim's delta, else at the run's.

    Guessed worlds, canaries and the size of the noise each prove one. They share the error.
    """
    everything = audit.everything()
    if audit.config is None or everything is None:
        return None
    delta = audit.config.privacy.delta if claim is None else claim.delta
    watches = scored, audit.canaries, audit.noise
    measured = sum(watch is not None for watch in watches)
    bounds, level = [], 1 - (1 - confidence) / max(1, measured)
    if scored is not None:
        bounds.append(lower_bounds.clopper_pearson_bound(*scored, delta, level).epsilon)
    signal = audit.canary_findings(level)
    if signal is not None and signal.reason is None:
        bounds.append(gaussian.epsilon(max(0.0, signal.interval[0]), delta))
    if audit.noise is not None:
        limits = audit.noise.limits(level)
        if audit.config.federation.auditor_sees == "messages":
            limits.pop(noise_watch.SUM, None)
        least = min(limits.values(), default=math.inf)
        bounds.append(
            PLD.epsilon(scaled(everything, least), delta) if math.isfinite(least) else 0.0
        )
    return max(bounds, default=None)


def judge(
    audit: LiveAudit,
    claim: Claim,
    alarms: Sequence[str],
    unmeasured: Sequence[str],
    ended: bool,
    proven: float | None = None,
) -> Judgement:
    incomparable = _incomparable(audit, claim)
    against = [] if incomparable else [*alarms, *_against(audit, claim)]
    lacking = [] if incomparable else [*_unseen(audit, ended), *unmeasured]
    evidence = Evidence(
        incomparable=incomparable,
        refuted=proven is not None and not claim.allows(proven),
        exceeded=bool(against),
        against=against,
        unsure=lacking,
    )
    return judged(claim, evidence)


def _incomparable(audit: LiveAudit, claim: Claim) -> str:
    if audit.config is None or audit.everything() is None:
        return "no round was observed from its beginning to its end"
    unit = audit.config.privacy.unit
    if claim.unit not in (None, unit):
        return f"the claim is about a {claim.unit}, but the run protects a {unit}"
    return ""


def _against(audit: LiveAudit, claim: Claim) -> list[str]:
    mechanism = audit.everything()
    assert audit.config is not None and mechanism is not None
    reasons = guarantee.dp_failings(audit.config.game, audit.config.audit)
    epsilon = PLD.epsilon(mechanism, claim.delta)
    if not claim.allows(epsilon):
        reasons.append(
            f"the noise that the server states allows epsilon {epsilon:.4g}, above the claim"
        )
    return reasons


def _unseen(audit: LiveAudit, ended: bool) -> list[str]:
    assert audit.config is not None
    missing = [] if ended else ["the transcript does not state that the run has ended"]
    planned = audit.config.trials.count
    if audit.trials < planned:
        missing.append(f"{audit.trials} of {planned} trials were observed")
    return missing
