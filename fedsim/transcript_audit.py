"""From a recorded transcript to a report: what its vantage point learnt of each owner.

`Auditor` takes rounds one by one, keeps a few numbers of each, and can report at any time: the same
for a file and for a federation that is still running.

- The *server's* transcript has every update. What is left over of the aggregate is the noise, so
  its size is measured, and so is what the aggregate tells about one owner to somebody who knows all
  others.
- A *participant's* transcript with a local mechanism has its update before and after the noise: the
  same, towards the server.
- A participant's transcript with *canaries* measures the privacy of one update through whatever the
  server does, by a coin that only this client knows.

The unit of privacy is an owner's whole update of a round; neighbours differ in whether the owner's
update, or no change, is in the mean, under weights and a number of owners that stay as they are.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from adversaries import canaries, lower_bounds, noisy_means
from adversaries.canaries import vector
from adversaries.intervals import ALARM_CONFIDENCE, Interval
from adversaries.noisy_means import FINGERPRINT, Contribution, Release
from fedsim import gaussian, transcript_claim
from fedsim.errors import InputError
from fedsim.identifiability import rho_beta_of_epsilon
from fedsim.strict_json import strict_json
from fedsim.transcript import Arrays, Facts, ObservedRound, Reader, Transcript

Floats = npt.NDArray[np.float64]

BYSTANDERS = 20
"""Directions of nobody's update that are scored in every round, for the false positive rate."""

SIMULATION_SEED = 0x7EA1
"""Of bystanders and of dither: whoever audits the same transcript gets the same report."""

LARGEST = 1e30
"""Parameters this large, and NaN, are refused: their squares, over those of noise, overflow."""

CONFIGURED = 1e-30, 1e30
"""Between these a configured number other than 0 is believed: squares of noise can be formed."""

NUMBERS = (
    "noise_multiplier",
    "clipping_norm",
    "noise_clipping_norm",
    "num_sampled_clients",
    "clipped_count_std",
    "local_clipping_norm",
    "local_sensitivity",
    "local_epsilon",
    "local_delta",
)
"""What an audit takes of a mechanism as a number."""

EXCESS = 1e-3
"""Share by which an update may pass the clipping norm: clients clip in single precision."""

EVIDENCE = -math.log(1 - ALARM_CONFIDENCE)
"""The logarithm of an e-value that counts as proof: larger ones are that rare by chance."""

WEIGHTINGS = ("uniform", "examples")

NEIGHBOURS = (
    "neighbours: the owner's update of every round, or no change in its place; weights and number "
    "of owners stay (replacing an update by another doubles the sensitivity)"
)


@dataclass(frozen=True)
class Scored:
    """A canary round whose outcome was seen."""

    round: int
    coin: bool
    score: float


class Auditor:
    """Reads a transcript round by round. Not for several threads."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.rounds = 0
        self._last_round = -1
        self._releases: dict[str, list[Release]] = {name: [] for name in WEIGHTINGS}
        self._against = dict.fromkeys(WEIGHTINGS, 0.0)
        self._local: list[Release] = []
        self._scored: list[Scored] = []
        self._pending: ObservedRound | None = None
        self._mechanism: dict[str, Any] = {}
        self._findings: dict[tuple[str, str], list[int]] = {}
        self._dither = np.random.default_rng([SIMULATION_SEED, 0, 1])  # no bystanders'

    def observe(self, observed: ObservedRound) -> None:
        """Take in the next round."""
        self._mechanism |= {
            # Strict JSON has no NaN.
            name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in observed.mechanism.items()
        }
        for name in NUMBERS:
            if _unbelievable(observed.mechanism.get(name)):
                self._note("caution", UNBELIEVABLE.format(name), observed.round)
        if observed.model or observed.replies:
            self.rounds += 1
            if observed.round <= self._last_round:
                self._note(
                    "caution",
                    "rounds were repeated: the recorded run was begun again, and every "
                    "attempt counts",
                    observed.round,
                )
            self._last_round = observed.round
        if self.facts.vantage == "server":
            self._observe_server(observed)
        else:
            self._observe_participant(observed)

    def report(
        self,
        delta: float,
        confidence: float,
        claimed_epsilon: float | None = None,
        missing: str = "the run goes on",
    ) -> dict[str, Any]:
        """Return the report so far, as strict JSON values; infinity is null, said beside it.

        delta: at which every epsilon is stated, the claimed one too; confidence: of every interval;
        missing: why there may be more rounds, "" if there are none. Raises InputError for values
        out of range.
        """
        check(delta, confidence, claimed_epsilon)
        findings = [
            {"severity": severity, "text": text, "rounds": rounds}
            for (severity, text), rounds in self._findings.items()
        ]
        release = canary = None
        if self.facts.vantage == "server":
            release = self._server_release(delta, confidence, findings)
        else:
            if self._local:
                towards = "the server, which sees this owner's noised update by itself"
                release = _release(self._local, towards, delta, confidence, findings)
                self._check_local(release, findings)
            if self._scored:
                canary = _canary(self._scored, delta, confidence)
            if not self._local and not self._scored:
                findings.append(_finding("note", NOTHING_MEASURED))
        claim = None
        if claimed_epsilon is not None:
            claim = transcript_claim.judge(
                claimed_epsilon, delta, release, canary, findings, missing
            )
        finite: dict[str, Any] = strict_json(
            {
                "kind": "transcript audit",
                "facts": asdict(self.facts),
                "rounds": self.rounds,
                "delta": delta,
                "confidence": confidence,
                "claim": claim,
                "mechanism": self._mechanism,
                "release": release,
                "canary": canary,
                "findings": findings,
            }
        )
        return finite

    def _note(self, severity: str, text: str, round: int) -> None:
        self._findings.setdefault((severity, text), []).append(round)

    def _observe_server(self, observed: ObservedRound) -> None:
        if observed.aggregate is None or not observed.replies:
            self._note("note", "no aggregate: the round released nothing", observed.round)
            return
        names = [name for name, array in observed.model.items() if array.dtype.kind == "f"]
        shapes = [observed.model[name].shape for name in names]
        before, after = vector(observed.model), _aligned(observed.aggregate, names, shapes)
        if not before.size:
            self._note("alarm", "the model has no floating-point parameters", observed.round)
            return
        if after is None or not max(np.abs(after).max(), np.abs(before).max()) < LARGEST:
            self._note("alarm", "the aggregate is not finite, or has other shapes", observed.round)
            return
        mechanism = observed.mechanism
        norm = _number(mechanism, "clipping_norm")
        server_clips = mechanism.get("clipping") == "server"

        def change(node: int) -> Floats | None:
            sent = _aligned(observed.replies[node].arrays, names, shapes)
            if sent is None or not np.abs(sent).max() < LARGEST:
                return None
            return noisy_means.clipped(sent - before, norm if server_clips else None)

        candidates = {name: _weights(observed, name) for name in WEIGHTINGS}
        weightings = {name: weights for name, weights in candidates.items() if weights}
        means = {name: np.zeros_like(before) for name in weightings}
        # Twice over the replies, rather than keeping every update.
        for node in observed.replies:
            update = change(node)
            if update is None:
                self._note(
                    "alarm",
                    f"node {node} sent numbers that are not finite, or other shapes; the round "
                    "cannot be audited",
                    observed.round,
                )
                return
            length = math.sqrt(update @ update)
            if norm and length > norm * (1 + EXCESS):
                self._note(
                    "alarm",
                    f"node {node} sent an update longer than the clipping norm, and nobody "
                    "clipped it: is fixedclipping_mod missing?",
                    observed.round,
                )
            for name in means:
                means[name] += weightings[name][node] * update
        sizes = {name: math.prod(shape) for name, shape in zip(names, shapes, strict=True)}
        # Each of n updates is restored, weighted and summed in the model's precision: the partial
        # sums make up n/3 roundings of the whole; then come noise and what clients round.
        rounding = len(observed.replies) / 3 + 3
        units = _units(before, after, observed.model, names)
        dither = self._dithered(units)
        claimed, count_std = _claimed_std(mechanism), self._count_std(observed)
        noises = {name: after - before - mean for name, mean in means.items()}
        parts: dict[str, dict[int, Contribution]] = {name: {} for name in means}
        for node in observed.replies:
            update = change(node)
            assert update is not None  # as before
            for name, noise in noises.items():
                parts[name][node] = _contribution(weightings[name][node], update, noise)
        for name, noise in noises.items():
            release = _reduced(
                observed.round,
                noise,
                dither,
                parts[name],
                sizes,
                units,
                rounding,
                norm,
                claimed,
                count_std,
            )
            self._releases[name].append(release)
        if len(means) == len(WEIGHTINGS):
            self._weigh(means)

    def _dithered(self, units: Floats) -> Floats:
        """Return a dither for each coordinate of a fingerprint, even over one unit."""
        return units[:FINGERPRINT] * self._dither.uniform(-0.5, 0.5, units[:FINGERPRINT].size)

    def _weigh(self, means: Mapping[str, Floats]) -> None:
        """Take in what the last release says against either way to weight it."""
        apart = means["uniform"] - means["examples"]
        gap = float(apart @ apart)
        last = {name: self._releases[name][-1] for name in WEIGHTINGS}
        for name, other in (WEIGHTINGS, WEIGHTINGS[::-1]):
            one = last[name]
            said = noisy_means.evidence_against(one.energy, last[other].energy, gap, one.size)
            # What rounding may have left says nothing against the weights that left it.
            self._against[name] += min(said, 0.0) if one.noiseless else said

    def _count_std(self, observed: ObservedRound) -> float | None:
        """Return the noise on the count that adaptive clipping releases, None if it is fixed."""
        mechanism = observed.mechanism
        before, after = (_number(mechanism, f"{of}clipping_norm") for of in ("", "noise_"))
        moved = after is not None and before != after
        named = "AdaptiveClipping" in str(mechanism.get("strategy"))
        if not (mechanism.get("adaptive") is True or moved or named):
            return None
        found = _number(mechanism, "clipped_count_std")
        if not found:
            self._note("alarm", NO_COUNT_NOISE, observed.round)
        return found or 0.0

    def _observe_participant(self, observed: ObservedRound) -> None:
        pending = self._pending
        if pending is not None:
            after = observed.aggregate if observed.round == pending.round else None
            if observed.model and observed.round == pending.round + 1:
                after = observed.model
            if pending.canary is not None and after is not None:
                self._score(pending, after)
        if observed.model:
            self._pending = observed
        if observed.unprotected is not None and observed.own:
            self._observe_local(observed)

    def _score(self, seen: ObservedRound, after: Arrays) -> None:
        canary = seen.canary
        assert canary is not None
        self._pending = None
        if vector(after).shape != vector(seen.model).shape:
            self._note("alarm", "the aggregate has other shapes", seen.round)
            return
        score = canaries.score(seen.model, after, canary.seed)
        if not math.isfinite(score):
            self._note("alarm", "the aggregate is not finite", seen.round)
            return
        self._scored.append(Scored(seen.round, canary.coin, score))

    def _observe_local(self, observed: ObservedRound) -> None:
        names = [name for name, array in observed.model.items() if array.dtype.kind == "f"]
        shapes = [observed.model[name].shape for name in names]
        before = vector(observed.model)
        trained = _aligned(observed.unprotected or {}, names, shapes)
        sent = _aligned(observed.own, names, shapes)
        if not before.size or trained is None or sent is None:
            self._note("alarm", "the update has other shapes than the model", observed.round)
            return
        if not max(np.abs(part).max() for part in (before, trained, sent)) < LARGEST:
            self._note("alarm", "the update is not finite", observed.round)
            return
        norm = _number(observed.mechanism, "local_clipping_norm")
        change = noisy_means.clipped(trained - before, norm)
        node, noise = self.facts.node or 0, sent - before - change
        sizes = {name: math.prod(shape) for name, shape in zip(names, shapes, strict=True)}
        units = _units(before, sent, observed.model, names)
        self._local.append(
            _reduced(
                observed.round,
                noise,
                self._dithered(units),
                {node: _contribution(1.0, change, noise)},
                sizes,
                units,
                # The update is clipped, restored, and gets its noise in the model's precision.
                3,
                norm,
                _claimed_local_std(observed.mechanism),
            )
        )

    def _server_release(
        self, delta: float, confidence: float, findings: list[dict[str, Any]]
    ) -> dict[str, Any] | None:
        if not self._releases["uniform"]:
            findings.append(_finding("note", "no round released an aggregate; nothing to audit"))
            return None
        weighting, basis = self._weighting()
        towards = (
            "whoever sees the aggregates and knows all other owners' updates (the server itself "
            "sees every update without noise)"
        )
        release = _release(self._releases[weighting], towards, delta, confidence, findings)
        release |= {
            "weighting": weighting,
            "weighting_basis": basis,
            "weighting_evidence": {f"against_{name}": self._against[name] for name in WEIGHTINGS},
        }
        if self._mechanism.get("aggregation") == "other":
            findings.append(
                _finding(
                    "alarm", NO_MEAN.format(self._mechanism.get("inner_strategy", "the strategy"))
                )
            )
        if release["claimed_noise_multiplier"]:
            self._check_weights(weighting, findings)
        return release

    def _weighting(self) -> tuple[str, str]:
        """Return how replies are weighted, and what says so.

        FedAvg's own code is believed unless the aggregates prove it wrong.
        """
        uniform, examples = (self._releases[name] for name in WEIGHTINGS)
        if len(uniform) != len(examples):
            return "uniform", "some node did not say how many examples it has"
        if self._mechanism.get("aggregation") == "mean" and self._against["examples"] <= EVIDENCE:
            return "examples", "FedAvg's own code"
        likelier = self._against["uniform"] > self._against["examples"]
        return ("examples" if likelier else "uniform"), "the aggregate"

    def _check_weights(self, weighting: str, findings: list[dict[str, Any]]) -> None:
        """Look for owners that weigh more in the mean than the 1/n that the noise presumes."""
        presumed = 1 / max(1.0, _number(self._mechanism, "num_sampled_clients") or 1.0)
        releases = self._releases[weighting]
        heaviest = max(part.weight for one in releases for part in one.contributions.values())
        if heaviest <= presumed * (1 + EXCESS):
            return
        if all(len({part.weight for part in one.contributions.values()}) == 1 for one in releases):
            text, severity = FEWER, "alarm"
        elif self._against["uniform"] > EVIDENCE:
            text, severity = f"{WEIGHTED}; the aggregates prove it", "alarm"
        else:
            text, severity = f"{WEIGHTED}; by FedAvg's code, too few rounds to see it", "caution"
        findings.append(_finding(severity, text.format(heaviest=heaviest, presumed=presumed)))

    def _check_local(self, release: Mapping[str, Any], findings: list[dict[str, Any]]) -> None:
        """Compare the epsilon that LocalDpMod was given with that of the noise it added."""
        claimed = _number(self._mechanism, "local_epsilon")
        delta = _number(self._mechanism, "local_delta")
        multiplier = release["proven"]["noise_multiplier"]
        if claimed is None or not delta or not 0 < delta < 1 or multiplier is None:
            return
        high = multiplier["high"]
        real = gaussian.epsilon(1 / high if high else math.inf, delta)
        if real > claimed:
            findings.append(
                _finding(
                    "alarm",
                    f"LocalDpMod claims epsilon {claimed:g} a round at delta {delta:g}; noise and "
                    f"clipping give at least {real:.3g}",
                )
            )


COUNT = "the noisy count of clipped updates is released too, and composed; of beliefs it is no part"
NOTHING_MEASURED = (
    "a participant sees aggregates of unknown updates, from which no noise can be measured; attach "
    "canary_mod, record at the server, or record a local mechanism with recording_mod(local_dp=...)"
)
NO_MEAN = (
    "{} does not release the mean of the updates: what is left over is not noise "
    "alone, and neither noise nor beliefs can be trusted"
)
WEIGHTED = (
    "the mean is weighted by num-examples: an owner weighs up to {heaviest:.3g}, while the noise "
    "presumes {presumed:.3g} of each, so that this owner is protected less than configured"
)
NO_COUNT_NOISE = (
    "adaptive clipping releases a count of clipped updates, and no noise on it was recorded: "
    "epsilon has no upper limit that is known"
)
UNBELIEVABLE = "the recorded {} is no number from 1e-30 to 1e30, nor 0: it is taken as not recorded"
NO_SCORES = (
    "no lower bound on one release: no owner changed the model in any round, and there is nothing "
    "to find one by"
)
SHAPE_UNSEEN = (
    "whether the noise is Gaussian was not tested{}: it is too close to what rounding leaves over, "
    "which is not"
)
HIDDEN = (
    "rounding hides the noise: the configured noise is no larger than what rounding may leave over "
    "of a model in this precision, so that nobody can tell from here whether it was added"
)
FEWER = (
    "fewer owners replied than num_sampled_clients: each weighs up to {heaviest:.3g}, while the "
    "noise presumes {presumed:.3g}"
)
NO_NOISE = (
    "no noise: nothing but rounding is left over. Epsilon is infinite and the belief certain, "
    "unless the owners add noise of their own before they send"
)


def audit(
    transcript: Transcript | Reader,
    delta: float = 1e-5,
    confidence: float = 0.95,
    claimed_epsilon: float | None = None,
) -> dict[str, Any]:
    """Return the report of a whole transcript. Raises InputError for values out of range.

    A `Reader` is read to its end, one round in memory at a time.
    """
    check(delta, confidence, claimed_epsilon)
    auditor = Auditor(transcript.facts)
    rounds = transcript.rounds() if isinstance(transcript, Reader) else transcript.rounds
    for observed in rounds:
        auditor.observe(observed)
    report = auditor.report(delta, confidence, claimed_epsilon, _missing(transcript))
    report["transcript"] = {
        "ended": transcript.ended,
        "incomplete": transcript.incomplete,
        "torn_bytes": transcript.torn,
    }
    if transcript.incomplete:
        text = f"the transcript is incomplete: {transcript.incomplete}"
        report["findings"].insert(0, _finding("caution", text))
    if transcript.torn:
        text = "the last round was not finished when the recorder stopped; it was dropped"
        report["findings"].append(_finding("note", text))
    return report


def _missing(transcript: Transcript | Reader) -> str:
    """Return why rounds may be missing of a transcript that was read to its end."""
    if transcript.incomplete:
        return f"the transcript is incomplete ({transcript.incomplete})"
    # No client is told that a run has ended.
    if transcript.torn or (transcript.facts.vantage == "server" and not transcript.ended):
        return "the transcript does not say that the run has ended"
    return ""


def _release(
    releases: Sequence[Release],
    towards: str,
    delta: float,
    confidence: float,
    findings: list[dict[str, Any]],
) -> dict[str, Any]:
    """Return what the releases of a run say of noise and owners; append what is wrong."""
    noiseless = [release for release in releases if release.noiseless]
    claimed = all(release.claimed_std for release in releases)
    # Noise that is configured below rounding may be there or not.
    hidden = claimed and any(
        (release.claimed_std or 0.0) <= noisy_means.ROUNDING_MARGIN * release.rounding
        for release in noiseless
    )
    # Without a claim every round is presumed to have the same noise.
    scales = [release.claimed_std if claimed else 1.0 for release in releases]
    interval = _relative_std(releases, scales, confidence)
    sure = _relative_std(releases, scales, ALARM_CONFIDENCE)
    point = math.sqrt(
        sum(
            release.energy / (scale or 1.0) ** 2
            for release, scale in zip(releases, scales, strict=True)
        )
        / sum(release.size for release in releases)
    )
    if hidden:
        interval, sure = replace(interval, low=0.0), replace(sure, low=0.0)
    elif noiseless:
        point, interval, sure = (
            0.0,
            Interval(0.0, 0.0, confidence),
            replace(sure, low=0.0, high=0.0),
        )
    noise = "hidden" if hidden else _verdict(bool(noiseless), claimed, sure)
    if hidden:
        findings.append(_finding("caution", HIDDEN))
    elif noiseless:
        where = "" if len(noiseless) == len(releases) else f" in {len(noiseless)} rounds"
        said = "alarm" if claimed else "note"
        findings.append(_finding(said, NO_NOISE.replace("no noise", f"no noise{where}", 1)))
    elif noise in ("less", "more"):
        findings.append(
            _finding(
                "alarm" if noise == "less" else "caution",
                f"the noise is {noise} than configured: {sure.low:.4g} to {sure.high:.4g} "
                f"times its standard deviation ({ALARM_CONFIDENCE:.1%} confidence)",
            )
        )
    if not noiseless:
        # Against the size that was measured: against the claim, too little noise everywhere would
        # be said of every array.
        _check_shape(releases, [point * (scale or 1.0) for scale in scales], findings)
    # A claim that the data do not contradict is more exact than what they say.
    factor = 1.0 if noise in ("as claimed", "hidden") else point
    stds = [
        0.0 if release.noiseless and not hidden else factor * (scale or 1.0)
        for release, scale in zip(releases, scales, strict=True)
    ]
    empirical = None if noiseless else _empirical(releases, stds, delta, confidence)
    if empirical is None and not noiseless:
        findings.append(_finding("note", NO_SCORES))
    ends = {"point": point, "low": interval.low, "high": interval.high}
    sure_ends = {"point": point, "low": sure.low, "high": sure.high}
    # What supports a claim: noise that is there for sure, or configured and not contradicted.
    least = max(sure.low, 1.0) if noise == "as claimed" else sure.low
    return {
        "towards": towards,
        "parameters": releases[0].size,
        "noise": noise,
        "claimed_std": [release.claimed_std for release in releases],
        "left_over_std": [release.left_over for release in releases],
        "left_over_interval": [
            asdict(noisy_means.std_interval(release.energy, release.size, confidence))
            for release in releases
        ],
        "rounding_std": [release.rounding for release in releases],
        "realised_over_claimed": ends | {"confidence": confidence} if claimed else None,
        "claimed_noise_multiplier": _composed(releases, scales) if claimed else None,
        "noise_multiplier": _noise_multipliers(releases, scales, ends),
        "round_numbers": [release.round for release in releases],
        "owners": _owners(releases, scales, stds, ends, delta),
        "proven": _proven(releases, scales, stds, sure_ends, delta, least),
        "empirical": empirical,
        "normality_p_value": noisy_means.normality(releases),
        "assumptions": [
            NEIGHBOURS,
            "every round counts in which the owner took part; no amplification by sampling",
            "the weights of the mean are public",
            *([COUNT] if any(release.count_std is not None for release in releases) else []),
        ],
    }


def _relative_std(
    releases: Sequence[Release], scales: Sequence[float | None], confidence: float
) -> Interval:
    """Return an interval for the noise over its scale; what rounding may have left is no noise."""
    freedom = sum(release.size for release in releases)
    most, least = 0.0, 0.0
    for release, scale in zip(releases, scales, strict=True):
        most += release.energy / (scale or 1.0) ** 2
        least += release.energy_of_noise / (scale or 1.0) ** 2
    high = noisy_means.std_interval(most, freedom, confidence).high
    return Interval(noisy_means.std_interval(least, freedom, confidence).low, high, confidence)


def _proven(
    releases: Sequence[Release],
    scales: Sequence[float | None],
    stds: Sequence[float],
    ends: Mapping[str, float],
    delta: float,
    least: float,
) -> dict[str, Any]:
    """Return what holds as surely as an alarm must: ends of the noise, and the worst epsilon.

    least: the least noise that there may be, over its scale.
    """
    owners = _owners(releases, scales, stds, ends, delta)
    under_least = _owners(releases, scales, stds, dict.fromkeys(ends, least), delta)
    worst = max(owners, key=lambda owner: owner["epsilon"]["low"])
    return {
        "confidence": ALARM_CONFIDENCE,
        "noise_multiplier": _noise_multipliers(releases, scales, ends),
        "node": worst["node"],
        "epsilon": worst["epsilon"]["low"],
        "unbounded": math.isinf(worst["epsilon"]["low"]),
        "epsilon_at_most": max(owner["epsilon"]["point"] for owner in under_least),
    }


def _verdict(noiseless: bool, claimed: bool, sure: Interval) -> str:
    if noiseless:
        return "none"
    if not claimed:
        return "unclaimed"
    if sure.high < 1:
        return "less"
    return "more" if sure.low > 1 else "as claimed"


def _composed(releases: Sequence[Release], scales: Sequence[float | None]) -> float | None:
    """Return the multiplier of equal steps that compose to these: s n/C of n owners alike."""
    inverse = 0.0
    for release, scale in zip(releases, scales, strict=True):
        if not release.clipping_norm or not scale:
            return None
        largest = release.clipping_norm / len(release.contributions)
        inverse += (largest / scale) ** 2
    return math.sqrt(len(releases) / inverse)


def _noise_multipliers(
    releases: Sequence[Release], scales: Sequence[float | None], ends: Mapping[str, float]
) -> dict[str, float] | None:
    composed = _composed(releases, scales)
    return None if composed is None else {name: composed * end for name, end in ends.items()}


def _owners(
    releases: Sequence[Release],
    scales: Sequence[float | None],
    stds: Sequence[float],
    ends: Mapping[str, float],
    delta: float,
) -> list[dict[str, Any]]:
    """Return for each owner the guarantee of the noise that was measured, and the belief."""
    nodes = sorted({node for release in releases for node in release.contributions})
    return [_owner(node, releases, scales, stds, ends, delta) for node in nodes]


def _owner(
    node: int,
    releases: Sequence[Release],
    scales: Sequence[float | None],
    stds: Sequence[float],
    ends: Mapping[str, float],
    delta: float,
) -> dict[str, Any]:
    unit, realised, bounded, steps, counts = 0.0, 0.0, True, 0, 0.0
    log_odds, rounds, total = [], [], 0.0
    for release, scale, std in zip(releases, scales, stds, strict=True):
        part = release.contributions.get(node)
        if part is not None:
            steps += 1
            bounded = bounded and release.clipping_norm is not None
            # Once longer than clipping allows, the update itself is what must be hidden.
            reach = max(part.weight * (release.clipping_norm or 0.0), part.norm / (1 + EXCESS))
            unit = math.hypot(unit, reach / (scale or 1.0))
            loudness = part.norm / std if std else (math.inf if part.norm else 0.0)
            realised = math.hypot(realised, loudness)
            total += noisy_means.log_likelihood_ratio(part, std)
            if release.count_std is not None:
                # One owner changes the count by 1.
                counts += release.count_std**-2 if release.count_std else math.inf
        log_odds.append(total)
        rounds.append(release.round)
    # More noise is less epsilon: the ends of the interval change places.
    mu = {
        name: math.hypot(unit / ends[end], math.sqrt(counts)) if ends[end] else math.inf
        for name, end in (("point", "point"), ("low", "high"), ("high", "low"))
    }
    if math.isinf(counts) and ends["high"]:
        mu["low"] = unit / ends["high"]  # noise that nobody recorded may still be there
    if not bounded:
        mu = dict.fromkeys(mu, math.inf)
    epsilon = {name: gaussian.epsilon(value, delta) for name, value in mu.items()}
    return {
        "node": node,
        "rounds": steps,
        "largest_weight": max(
            release.contributions[node].weight
            for release in releases
            if node in release.contributions
        ),
        "mu": mu,
        "realised_mu": realised,
        "epsilon": epsilon,
        "unbounded": math.isinf(epsilon["point"]),
        "rho_beta": rho_beta_of_epsilon(epsilon["point"]),
        "rho_alpha": gaussian.advantage(mu["point"]),
        "log_odds": log_odds,
        "belief": expit(np.array(log_odds)).tolist(),
        "round_numbers": rounds,
    }


def _empirical(
    releases: Sequence[Release], stds: Sequence[float], delta: float, confidence: float
) -> dict[str, Any] | None:
    """Return lower bounds on one release, from scores of one owner a round and of bystanders.

    Owners that changed the model take turns: projections of one noise on several owners' updates
    are not independent. A bystander is a fresh direction of the owner's norm that is in no mean.
    None where no owner changed anything.
    """
    members, bystanders = [], []
    for turn, (release, std) in enumerate(zip(releases, stds, strict=True)):
        nodes = sorted(node for node, part in release.contributions.items() if part.norm > 0)
        if not nodes or std == 0:
            continue
        part = release.contributions[nodes[turn % len(nodes)]]
        generator = np.random.default_rng([SIMULATION_SEED, turn])
        fresh = part.norm * noisy_means.bystander_projections(release, BYSTANDERS, generator)
        members.append(noisy_means.log_likelihood_ratio(part, std))
        bystanders.extend(((fresh - part.norm**2 / 2) / std**2).tolist())
    if not members:
        return None
    worlds = np.repeat([True, False], [len(members), len(bystanders)])
    scores = np.array(members + bystanders)
    names = ("clopper_pearson", "gaussian")  # bystanders are many: no more than these are needed
    gaussian = lower_bounds.MechanismKind.GAUSSIAN
    bounds = lower_bounds.lower_bounds(worlds, scores, delta, confidence, gaussian, names=names)
    return {
        "unit": "one release",
        "members": len(members),
        "bystanders": len(bystanders),
        "true_positives": sum(score > 0 for score in members),
        "false_positives": sum(score > 0 for score in bystanders),
        "lower_bounds": {name: asdict(bound) for name, bound in bounds.items()},
    }


def _check_shape(
    releases: Sequence[Release], stds: Sequence[float], findings: list[dict[str, Any]]
) -> None:
    """Look for noise that is not independent N(0, s^2) in every parameter and round.

    stds: s as measured in every round.
    """
    repeated = noisy_means.repeated_noise(releases, ALARM_CONFIDENCE)
    if repeated:
        first, second = repeated[0]
        findings.append(
            _finding(
                "alarm",
                f"the noise of round {second} repeats that of round {first} ({len(repeated)} such "
                "pairs): is the random seed set anew in every round? Their difference has no noise",
            )
        )
    unseen = len(releases) - len(noisy_means.clear_of_rounding(releases))
    if unseen:
        where = "" if unseen == len(releases) else f" in {unseen} of {len(releases)} rounds"
        findings.append(_finding("note", SHAPE_UNSEEN.format(where)))
    normal = noisy_means.normality(releases)
    if normal is not None and normal < 1 - ALARM_CONFIDENCE:
        findings.append(
            _finding("alarm", f"the noise is not Gaussian (Kolmogorov-Smirnov p = {normal:.2g})")
        )
    names = list(releases[0].by_array)
    if any(list(release.by_array) != names for release in releases):
        return
    bonferroni = 1 - (1 - ALARM_CONFIDENCE) / len(names)
    for name in names:
        most, least, freedom = 0.0, 0.0, 0
        for release, std in zip(releases, stds, strict=True):
            size, energy, rounding = release.by_array[name]
            most += energy / std**2
            least += noisy_means.energy_of_noise(energy, size, rounding) / std**2
            freedom += size
        # What rounding may have left over of large weights is no noise too many.
        low = noisy_means.std_interval(least, freedom, bonferroni).low
        high = noisy_means.std_interval(most, freedom, bonferroni).high
        # All parameters together have been judged already; here the odd array out.
        if len(names) > 1 and (high < 0.5 or low > 2):
            findings.append(
                _finding(
                    "alarm",
                    f"array '{name}' was left over with {low:.3g} to {high:.3g} times the noise of "
                    "the whole model: it is noised or clipped differently",
                )
            )


def _canary(scored: Sequence[Scored], delta: float, confidence: float) -> dict[str, Any]:
    """Return what the canaries of a client measured."""
    coins = np.array([one.coin for one in scored])
    scores = np.array([one.score for one in scored])
    found = canaries.effect(coins, scores, confidence)
    odds = canaries.prequential_log_odds(coins, scores)
    right, guesses, proven = canaries.success_bound(coins, odds, delta, confidence)
    one = {"point": found.mu, "low": found.interval.low, "high": found.interval.high}
    if found.reason:
        one["point"] = None  # type: ignore[assignment]
    rounds = math.sqrt(len(scored))
    least = canaries.effect(coins, scores, ALARM_CONFIDENCE).interval.low * rounds
    composed = {name: None if mu is None else max(0.0, mu) * rounds for name, mu in one.items()}
    return {
        "towards": "whoever sees the global models, as any participant does",
        "rounds": len(scored),
        "loud": int(coins.sum()),
        "mu": one | {"confidence": confidence},
        "reason": found.reason,
        "p_value": found.p_value,
        "epsilon_one_round": _epsilons(one, delta),
        "epsilon_all_rounds": _epsilons(composed, delta),
        "guesses": guesses,
        "right_guesses": right,
        "epsilon_proven_one_round": proven,
        "proven": {
            "confidence": ALARM_CONFIDENCE,
            "epsilon_all_rounds": gaussian.epsilon(max(0.0, least), delta),
        },
        "round_numbers": [one.round for one in scored],
        "scores": scores.tolist(),
        "coins": coins.tolist(),
        "log_odds": odds.tolist(),
        "belief": expit(odds).tolist(),
        "assumptions": [
            "mu: scores normal, of one variance; other clients' updates hide the canary too, so mu "
            "is what an outsider faces, at most that of the noise alone",
            "all rounds: each as loud as the rounds measured, and all of them about one secret",
            "proven of one round: nothing but a fair coin",
        ],
    }


def _epsilons(mu: Mapping[str, float | None], delta: float) -> dict[str, float | None]:
    return {
        name: None if value is None else gaussian.epsilon(max(0.0, value), delta)
        for name, value in mu.items()
    }


def _contribution(weight: float, update: Floats, noise: Floats) -> Contribution:
    norm, projection = float(np.linalg.norm(update)), float(noise @ update)
    return Contribution(weight, weight * norm, weight * projection)


def _reduced(
    round: int,
    noise: Floats,
    dither: Floats,
    contributions: dict[int, Contribution],
    sizes: Mapping[str, int],
    units: Floats,
    roundings: float,
    clipping_norm: float | None,
    claimed_std: float | None,
    count_std: float | None = None,
) -> Release:
    """Return what is kept of a round; units [P]: in the last place, rounded so many times."""
    by_array, position = {}, 0
    for name, size in sizes.items():
        of = slice(position, position + size)
        position = of.stop
        by_array[name] = size, float(noise[of] @ noise[of]), _rounding(units[of], roundings)
    return Release(
        round,
        noise.size,
        claimed_std,
        float(noise @ noise),
        _rounding(units, roundings),
        clipping_norm,
        contributions,
        by_array,
        (noise[:FINGERPRINT] + dither).astype(np.float32),
        count_std,
        _rounding(units[:FINGERPRINT], roundings),
    )


def _weights(observed: ObservedRound, weighting: str) -> dict[int, float] | None:
    """Return each node's weight in the mean; None if the nodes did not say their examples."""
    if weighting == "uniform":
        return dict.fromkeys(observed.replies, 1 / len(observed.replies))
    examples = {node: reply.num_examples for node, reply in observed.replies.items()}
    total = sum(count or 0.0 for count in examples.values())
    if None in examples.values() or not 0 < total < math.inf:
        return None
    return {node: (count or 0.0) / total for node, count in examples.items()}


def _aligned(
    arrays: Arrays, names: Iterable[str], shapes: Iterable[tuple[int, ...]]
) -> Floats | None:
    """Return these arrays as one vector, None if one is missing or has another shape."""
    parts = [np.zeros(0)]
    for name, shape in zip(names, shapes, strict=True):
        array = arrays.get(name)
        if array is None or array.shape != shape:
            return None
        parts.append(array.ravel())
    return np.concatenate(parts, dtype=np.float64)


def _units(before: Floats, after: Floats, model: Arrays, names: Sequence[str]) -> Floats:
    """Return the unit in the last place [P] of each parameter, of the larger of two values."""
    parts, position = [np.zeros(0)], 0
    for name in names:
        part = slice(position, position + model[name].size)
        position = part.stop
        sizes = np.maximum(np.abs(before[part]), np.abs(after[part]))
        limits = np.finfo(model[name].dtype)
        parts.append(np.spacing(np.minimum(sizes, float(limits.max)).astype(model[name].dtype)))
    return np.concatenate(parts, dtype=np.float64)


def _rounding(units: Floats, roundings: float) -> float:
    """Return the root mean square that so many roundings leave over.

    A rounding to the nearest is off by up to half a unit in the last place, evenly: 1/sqrt(12).
    """
    return math.sqrt(roundings * float(units @ units) / 12 / max(1, units.size))


def _claimed_std(mechanism: Mapping[str, Any]) -> float | None:
    """Return the noise of Flower's central DP: z C/n, with the C that scaled the noise."""
    multiplier = _number(mechanism, "noise_multiplier")
    norm = _number(mechanism, "noise_clipping_norm") or _number(mechanism, "clipping_norm")
    clients = _number(mechanism, "num_sampled_clients")
    if multiplier is None or norm is None or not clients:
        return None
    return multiplier * norm / clients


def _claimed_local_std(mechanism: Mapping[str, Any]) -> float | None:
    """Return the noise of Flower's LocalDpMod: sensitivity sqrt(2 ln(1.25/delta)) / epsilon."""
    sensitivity, epsilon, delta = (
        _number(mechanism, f"local_{name}") for name in ("sensitivity", "epsilon", "delta")
    )
    if sensitivity is None or not epsilon or not delta or delta >= 1.25:
        return None
    return sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def _number(mechanism: Mapping[str, Any], name: str) -> float | None:
    """Return a configured number, None if there is none that can be believed."""
    value = mechanism.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return None if _unbelievable(value) else float(value)


def _unbelievable(value: Any) -> bool:
    """Whether this is a number, but none that noise can be worked out from."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    smallest, largest = CONFIGURED
    return not (value == 0 or smallest <= value <= largest)


def _finding(severity: str, text: str) -> dict[str, Any]:
    return {"severity": severity, "text": text, "rounds": []}


def check(delta: float, confidence: float, claimed_epsilon: float | None) -> None:
    """Raise InputError for values that no report can be stated at."""
    for name, value in (("delta", delta), ("confidence", confidence)):
        if not 0 < value < 1:
            raise InputError(f"{name} is {value}; it must lie between 0 and 1")
    if claimed_epsilon is not None and not 0 <= claimed_epsilon < math.inf:
        raise InputError(f"the claimed epsilon is {claimed_epsilon}; give a number of at least 0")
