"""A participant's transcript, round by round: its own noise, and the canaries that it planted.

The noise may come from NVFlare's filters. SVTPrivacy clips every number of an update to [-g, g],
and chooses n of them by the sparse vector technique. It adds Laplace noise of scale b to these, and
sends zeros for the others. An update and its negative lead to the same choice with the same
probability. They therefore differ in n Laplace variables whose centres lie up to 2 g apart, whose
epsilon is a lower bound on that of the filter.

The GaussianPrivacy of NVFlare's research examples adds N(0, (s Q)^2), where Q is a percentile of
the sizes of the update's own numbers. It clips nothing. Nothing bounds the distance of two updates,
nor the ratio of their noises, so that epsilon is infinite.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit
from scipy.stats import chi2

from adversaries.arrays import Floats
from adversaries.attacks import noisy_means
from adversaries.attacks.noisy_means import Release, std_interval
from adversaries.bounds import canaries
from adversaries.bounds.canaries import vector
from adversaries.statistics import gaussian
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.judgement.claim import Finding
from fedsim.audits.recorded import noise_level, transcript_release
from fedsim.audits.recorded.noise_level import Claims, Dither, Layout, Rounding, believable
from fedsim.audits.recorded.recorded_noise import (
    Asked,
    MeasuredRounds,
    Notes,
    claimed_local_std,
    number,
)
from fedsim.audits.recorded.recorded_report import (
    CanaryReport,
    CanarySignal,
    FilterReport,
    Identified,
    OpenEstimate,
    ProvenByCanaries,
    ProvenOfFilter,
    Ratio,
    ReleaseReport,
)
from fedsim.federation.transcripts.records import Arrays, Canary, ObservedRound

GRID = 1e-4
"""Grid of losses, over the loss of one number; losses are rounded down, so that the bound holds."""

SCALAR = "a number that is not an array is sent without noise: its epsilon is infinite"
LESS = (
    "the Laplace noise is less than configured: {:.4g} to {:.4g} times its scale (99.99 % "
    "confidence)"
)
TOTAL = (
    "the epsilon of SVTPrivacy(epsilon={:g}) covers only the choice of numbers. Its own ledger "
    "adds up to epsilon {:.4g} in {} rounds (delta 0), including the noise of the upload. The "
    "measured noise leaves an epsilon of at least {:.4g} at delta {:g} between an update and its "
    "negative"
)

FILTER = "GaussianPrivacy"
NARROW = 0.1
"""Largest relative error of a round's noise that identifies it as this share of the update.

A wide interval that contains 1 rejects nothing: with few numbers, noise of any fixed size fits.
"""

BY = "the class's name, its configuration and the matching noise of every round"

NO_BOUND = (
    "the noise of GaussianPrivacy is a share of the update itself, and nothing is clipped: epsilon "
    "is infinite. This was measured in all {} rounds ({:.3g} to {:.3g} times that share in all), "
    f"and rests on {BY}"
)

TOO_FEW = (
    "the noise of GaussianPrivacy is {:.3g} to {:.3g} times its share of the update in {} rounds "
    "together. In some round it may be more than {:.0%} off (99.99 %), so that other noise fits "
    "as well; record more of the model's numbers in a round"
)


class SvtRounds:
    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._rounds: list[tuple[float, float, int, float]] = []
        self._epsilon = 0.0

    def observe(self, observed: ObservedRound) -> None:
        mechanism = observed.mechanism
        gamma, steps = number(mechanism, "svt_gamma"), number(mechanism, "filter_steps") or 1.0
        release = number(mechanism, "svt_epsilon_release")
        uploads = number(mechanism, "svt_n_upload")
        before = observed.unprotected or {}
        if not gamma or not release or not uploads or set(before) != set(observed.own):
            return
        if any(array.ndim == 0 for array in before.values()):
            self._notes.add("alarm", SCALAR, observed.round)
        noise = [np.zeros(0)]
        for name, array in before.items():
            if array.ndim:
                sent = observed.own[name].ravel().astype(np.float64) / steps
                clipped = np.clip(array.ravel().astype(np.float64) / steps, -gamma, gamma)
                # Numbers that were not chosen are sent as zeros, without noise.
                noise.append((sent - clipped)[sent != 0])
        left: Floats = np.concatenate(noise)
        if not left.size or not np.isfinite(left).all():
            return
        # The chosen numbers, each of range 2 gamma, share epsilon_release.
        scale = 2 * gamma * uploads / release
        self._rounds.append((float(np.abs(left).sum()), scale, left.size, gamma))
        self._epsilon += number(mechanism, "svt_epsilon_total") or math.inf

    def measured(self, options: Asked) -> FilterReport | None:
        """Return noise and epsilon, None without rounds; append findings."""
        if not self._rounds:
            return None
        total = sum(size for _, _, size, _ in self._rounds)
        # The mean size of Laplace noise is its scale.
        length = sum(sum_ / scale for sum_, scale, _, _ in self._rounds)
        stated, sure = (
            _interval(length, total, at) for at in (options.confidence, ALARM_CONFIDENCE)
        )
        if sure[1] < 1:
            options.findings.append(Finding(LESS.format(*sure)))
        # Rounds may differ: the bound uses the one that reveals least.
        reach = min(2 * gamma / (scale * sure[1]) for _, scale, _, gamma in self._rounds)
        proven = laplace_epsilon(reach, total, options.delta)
        text = TOTAL.format(
            number(options.mechanism, "svt_epsilon") or math.nan,
            self._epsilon,
            len(self._rounds),
            proven,
            options.delta,
        )
        options.findings.append(Finding(text, severity="caution"))
        return FilterReport(
            filter="SVTPrivacy",
            rounds=len(self._rounds),
            uploads=total,
            scale_over_configured=Ratio(length / total, *stated, options.confidence),
            ledger_epsilon=self._epsilon,
            proven=ProvenOfFilter(proven),
        )


def laplace_epsilon(reach: float, count: int, delta: float) -> float:
    """Return a lower bound on the epsilon of `count` Laplace variables, each moved by `reach`."""
    # The import takes half a second, which other audits need not wait for.
    from dp_accounting.pld import privacy_loss_distribution  # noqa: PLC0415

    losses = privacy_loss_distribution.from_laplace_mechanism(
        1.0,
        sensitivity=reach,
        pessimistic_estimate=False,
        value_discretization_interval=reach * max(GRID, 1e-7 * count),
        use_connect_dots=False,
    )
    return float(losses.self_compose(count).get_epsilon_for_delta(delta))


def _interval(length: float, count: int, confidence: float) -> tuple[float, float]:
    """Return an exact interval of b from the summed sizes S of Laplace noise: 2 S/b is chi^2."""
    tail = (1 - confidence) / 2
    low = 2 * length / float(chi2.isf(tail, 2 * count))
    return low, 2 * length / float(chi2.ppf(tail, 2 * count))


class ShareRounds:
    def __init__(self) -> None:
        self._rounds: list[tuple[float, int]] = []
        self._fits = True

    def observe(self, observed: ObservedRound) -> None:
        scaled = _scaled(observed)
        self._fits = self._fits and scaled is not None
        if scaled is not None:
            self._rounds.append((float(scaled @ scaled), scaled.size))

    def measured(self) -> tuple[str, FilterReport] | None:
        """Return meaning and measurement; None unless every round may have such noise.

        The measurement has "identified", with epsilon, only if other noise would not fit.
        """
        if not self._rounds or not self._fits:
            return None
        # Bonferroni: the intervals of all rounds hold together.
        confidence = 1 - (1 - ALARM_CONFIDENCE) / len(self._rounds)
        intervals = [std_interval(energy, size, confidence) for energy, size in self._rounds]
        if not all(one.low <= 1 <= one.high for one in intervals):
            return None
        energy, size = (sum(part) for part in zip(*self._rounds, strict=True))
        sure = std_interval(energy, int(size), ALARM_CONFIDENCE)
        ratio = Ratio(math.sqrt(energy / size), sure.low, sure.high, ALARM_CONFIDENCE)
        measurement = FilterReport(
            filter=FILTER, rounds=len(intervals), scale_over_configured=ratio
        )
        if not all(one.low >= 1 - NARROW and one.high <= 1 + NARROW for one in intervals):
            return TOO_FEW.format(sure.low, sure.high, len(intervals), NARROW), measurement
        why = NO_BOUND.format(len(intervals), sure.low, sure.high)
        return why, replace(measurement, identified=Identified(math.inf, BY))


def _scaled(observed: ObservedRound) -> Floats | None:
    share, percentile = (
        number(observed.mechanism, f"gaussian_{name}") for name in ("sigma0", "max_percentile")
    )
    layout = Layout.of(observed.unprotected or {})
    update, sent = (layout.vector(arrays) for arrays in (observed.unprotected or {}, observed.own))
    if not share or percentile is None or not 0 <= percentile <= 100:
        return None
    if update is None or sent is None or not update.any() or not believable(update, sent):
        return None
    most = float(np.percentile(np.abs(update[update != 0]), percentile))
    with np.errstate(over="ignore", divide="ignore"):  # a share of numbers near 0
        scaled = (sent - update) / (share * most)
    return scaled if believable(scaled) else None


TOWARDS = "the server, which sees this client's noised update by itself"

NOTHING_MEASURED = (
    "a participant sees only aggregates of unknown updates, which do not show the noise; attach "
    "canary_mod, record at the server, or record a local mechanism with "
    "recording_mod(local_dp=...)"
)


SELECTION = (
    "the audit measures SVTPrivacy's noise on the numbers that it sends, but not what its choice "
    "of numbers reveals: it can disprove a claim, but cannot support it"
)


NO_NOISE = (
    "PercentilePrivacy cuts and clips numbers, but adds no noise: the epsilon of what it sends "
    "is infinite"
)

UNCLIPPED = (
    "the noise moves with the updates (p = {:.1g}): the updates were not clipped to the declared "
    "norm, or the noise depends on them"
)

UNDECLARED = (
    "the noise of {} cannot be read. If it clips the whole update (L2) and adds Gaussian noise, "
    "declare that: NVFlareFilter(..., clipping_norm=, noise_std=)"
)


class ParticipantRounds:
    def __init__(self, notes: Notes, node: int) -> None:
        self._notes = notes
        self._node = node
        self._dither = Dither()
        self._local: list[Release] = []
        self._svt = SvtRounds(notes)
        self._share = ShareRounds()
        self._unread: set[str] = set()
        self._scored: list[ScoredRounds] = []
        self._pending: ObservedRound | None = None

    def observe(self, observed: ObservedRound) -> None:
        pending = self._pending
        if pending is not None:
            after = observed.aggregate if observed.round == pending.round else None
            if observed.model and observed.round == pending.round + 1:
                after = observed.model
            if pending.canary is not None and after is not None:
                self._pending = None
                self._score(pending, pending.canary, after)
        if observed.model:
            self._pending = observed
        named = str(observed.mechanism.get("filter", ""))
        declared = "local_noise_std" in observed.mechanism
        if named == "SVTPrivacy":
            self._svt.observe(observed)
        elif named and not declared:
            self._unread.add(named)
            if named == FILTER:
                self._share.observe(observed)
        elif observed.unprotected is not None and observed.own:
            self._observe_local(observed, observed.unprotected)

    def measured(self, options: Asked) -> MeasuredRounds:
        findings = options.findings
        release = canary = None
        if self._local:
            release = transcript_release.measured(self._local, TOWARDS, options)
            findings += _understated(release, options.mechanism)
            unlikely = noisy_means.fit(self._local)
            if unlikely < 1 - ALARM_CONFIDENCE:
                findings.append(Finding(UNCLIPPED.format(unlikely)))
        if self._scored:
            canary = canary_measured(self._scored, options.delta, options.confidence)
        if self._unread:
            share = self._share.measured() if self._unread == {FILTER} else None
            if share is not None:
                why, filtered = share
            elif self._unread == {"PercentilePrivacy"}:
                identified = Identified(math.inf, "the class's name")
                why = NO_NOISE
                filtered = FilterReport(filter="PercentilePrivacy", identified=identified)
            else:
                why, filtered = UNDECLARED.format(" and ".join(sorted(self._unread))), None
            findings.append(Finding(why, severity="caution"))
            return MeasuredRounds(None, canary, why, "client", filtered)
        filtered = self._svt.measured(options)
        if filtered is not None:
            return MeasuredRounds(release, canary, SELECTION, filtered=filtered)
        if release is None and canary is None:
            findings.append(Finding(NOTHING_MEASURED, severity="note"))
        return MeasuredRounds(release, canary, "" if release else NOTHING_MEASURED)

    def _score(self, observed: ObservedRound, canary: Canary, after: Arrays) -> None:
        if vector(after).shape != vector(observed.model).shape:
            text = "the aggregate has other shapes than the model"
            self._notes.add("alarm", text, observed.round)
            return
        score = canaries.score(observed.model, after, canary.seed)
        if not math.isfinite(score):
            self._notes.add("alarm", "the aggregate is not finite", observed.round)
            return
        self._scored.append(ScoredRounds(observed.round, canary.coin, score))

    def _observe_local(self, observed: ObservedRound, unprotected: Arrays) -> None:
        layout = Layout.of(observed.model)
        before = vector(observed.model)
        trained, sent = layout.vector(unprotected), layout.vector(observed.own)
        if not before.size or trained is None or sent is None:
            text = "the update has other shapes than the model"
            self._notes.add("alarm", text, observed.round)
            return
        if not noise_level.believable(before, trained, sent):
            self._notes.add("alarm", "the update is not finite", observed.round)
            return
        norm = number(observed.mechanism, "local_clipping_norm")
        change = noisy_means.clipped(trained - before, norm)
        noise = sent - before - change
        units = layout.units(before, sent)
        release = noise_level.reduced(
            observed.round,
            noise,
            {self._node: noise_level.contribution(1.0, change, noise)},
            layout,
            # Clipping, restoring and noise each round in the model's precision.
            Rounding(units, 3, self._dither.draw(units)),
            Claims(norm, claimed_local_std(observed.mechanism)),
            change,
        )
        self._local.append(release)


def _understated(release: ReleaseReport, mechanism: Mapping[str, Any]) -> list[Finding]:
    claimed = number(mechanism, "local_epsilon")
    delta = number(mechanism, "local_delta")
    multiplier = release.proven.noise_multiplier
    if claimed is None or not delta or not 0 < delta < 1 or multiplier is None:
        return []
    # The most noise that the measurement allows gives the least epsilon.
    high = multiplier.high
    real = gaussian.epsilon(1 / high if high else math.inf, delta)
    if real <= claimed:
        return []
    text = (
        f"LocalDpMod claims epsilon {claimed:g} a round at delta {delta:g}, but its noise and "
        f"clipping give at least {real:.3g}"
    )
    return [Finding(text)]


@dataclass(frozen=True)
class ScoredRounds:
    round: int
    coin: bool
    score: float


def canary_measured(
    scored: Sequence[ScoredRounds], delta: float, confidence: float
) -> CanaryReport:
    coins = np.array([one.coin for one in scored])
    scores = np.array([one.score for one in scored])
    effect = canaries.effect(coins, scores, confidence)
    odds = canaries.prequential_log_odds(coins, scores)
    right, guesses, proven = canaries.success_bound(coins, odds, delta, confidence)
    point = None if effect.reason else effect.mu
    mu = CanarySignal(point, effect.interval.low, effect.interval.high, confidence)
    # The mu of k equal releases is sqrt(k) times that of one.
    rounds = math.sqrt(len(scored))
    least = canaries.effect(coins, scores, ALARM_CONFIDENCE).interval.low * rounds
    return CanaryReport(
        towards="any observer of the global models, such as a participant",
        rounds=len(scored),
        loud=int(coins.sum()),
        mu=mu,
        reason=effect.reason,
        p_value=effect.p_value,
        epsilon_one_round=_epsilons(mu, 1.0, delta),
        epsilon_all_rounds=_epsilons(mu, rounds, delta),
        guesses=guesses,
        right_guesses=right,
        epsilon_proven_one_round=proven,
        proven=ProvenByCanaries(gaussian.epsilon(max(0.0, least), delta)),
        round_numbers=[one.round for one in scored],
        scores=scores.tolist(),
        coins=coins.tolist(),
        log_odds=odds.tolist(),
        belief=expit(odds).tolist(),
        assumptions=[
            "mu: scores are normal with one variance. Other clients' updates hide the canary "
            "too, so that mu describes an outsider, and is at most the mu of the noise alone",
            "all rounds: the canary is as loud in each as in the measured ones, and all are "
            "about one secret",
            "proven of one round: assumes only that the coin is fair",
        ],
    )


def _epsilons(mu: CanarySignal, factor: float, delta: float) -> OpenEstimate:
    """Return the epsilons of a signal-to-noise ratio and of its ends, each times a factor."""
    point = None if mu.point is None else gaussian.epsilon(max(0.0, mu.point) * factor, delta)
    low, high = (gaussian.epsilon(max(0.0, end) * factor, delta) for end in (mu.low, mu.high))
    return OpenEstimate(point, low, high)
