"""The rows of a recorded transcript: what each observer may learn under the measured noise."""

import math

from fedsim.audits.recorded.recorded_noise import MeasuredRounds
from fedsim.audits.recorded.recorded_report import CanaryReport, MeanRelease, ReleaseReport
from fedsim.audits.results.rows import Attack, Limit, Noise, Row
from fedsim.federation.transcripts.records import LOOP

UNSEEN = "the server sees every update, and noise that clients add themselves is not recorded"
CANARIES = "canaries measure from outside what one update reveals, and set no limit"
NOISE_ELSEWHERE = (
    "no noise was added after the clients sent their updates. Noise that clients add before is "
    "part of the recorded updates. If they add noise, record a client with "
    "recording_mod(local_dp=...) or canary_mod"
)
UNBOUNDED = (
    "no clipping norm was recorded, and noise gives no guarantee without one; declare it: "
    "record(..., clipping_norm=...)"
)
UNKNOWN_COUNT = (
    "adaptive clipping also releases a count of clipped updates, but no noise on it was recorded"
)
HIDDEN = "the configured noise is so small that rounding hides whether it was added"


def observed_rows(measured: MeasuredRounds, vantage: str, confidence: float) -> list[Row]:
    """Return a row for each observer, the judged one last.

    Args:
        vantage: vantage point of the recorder; "loop" for a training loop.
    """
    release, canary, rows = measured.release, measured.canary, []
    if isinstance(release, MeanRelease):
        everything = Limit.of_epsilon(math.inf, 1.0, "measured")
        rows.append(_row("server", everything, note=UNSEEN))
    if canary is not None:
        rows.append(_row("participant", None, _by_canaries(canary, confidence), note=CANARIES))
    if release is not None:
        names = {"server": "participant", LOOP: LOOP}
        rows.append(_released(names.get(vantage, "server"), release, confidence))
    if not rows:
        observer = LOOP if vantage == LOOP else "participant"
        rows.append(_row(observer, None, note=measured.unmeasured))
    return rows


def _row(
    observer: str,
    limit: Limit | None,
    attack: Attack | None = None,
    noise: Noise | None = None,
    detects: float | None = None,
    note: str = "",
) -> Row:
    return Row(observer, "not-measured", limit, attack, None, detects, note, noise=noise)


def _released(observer: str, release: ReleaseReport, confidence: float) -> Row:
    proven, ratio = release.proven, release.realised_over_claimed
    limit = None
    if release.noise != "hidden":
        # The configured noise counts where nothing contradicts it.
        configured = release.noise in ("as claimed", "more")
        limit = Limit.of_epsilon(
            proven.epsilon_at_most,
            proven.rho_alpha_at_most,
            "theory" if configured else "measured",
        )
    # Nothing is proven about a mechanism that the recording does not show whole.
    shown = not unjudgeable(release)
    believed = [client.log_odds[-1] for client in release.clients]
    attack = Attack.proving(
        release.epsilon_at_least if shown else None,
        proven.epsilon if shown else None,
        "noise",
        confidence,
        log_odds=max(0.0, *believed) if believed else None,
    )
    noise = None if ratio is None else Noise(ratio.low, ratio.high, confidence)
    return _row(observer, limit, attack, noise, release.seen_below)


def unjudgeable(release: ReleaseReport) -> str:
    """Return why no epsilon of a release can be compared with a claim; "" where one can."""
    if release.noise == "none":
        return "" if all(release.claimed_std) else NOISE_ELSEWHERE
    if release.noise == "hidden":
        return HIDDEN
    if not release.clipped:
        return UNBOUNDED
    return "" if release.count_known else UNKNOWN_COUNT


def _by_canaries(canary: CanaryReport, confidence: float) -> Attack:
    proven, at_least = canary.epsilon_proven_all_rounds, canary.epsilon_all_rounds.low
    return Attack.proving(at_least, proven, "canaries", confidence, trials=canary.rounds)
