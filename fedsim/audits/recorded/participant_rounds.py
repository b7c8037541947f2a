"""A participant's transcript, round by round: its own noise, and the canaries that it hid."""

import math
from collections.abc import Mapping
from typing import Any

from adversaries.attacks import noisy_means
from adversaries.attacks.noisy_means import Release
from adversaries.statistics import canaries, gaussian
from adversaries.statistics.canaries import vector
from adversaries.statistics.intervals import ALARM_CONFIDENCE
from fedsim.audits.judgement.finding import Finding
from fedsim.audits.recorded import left_over, transcript_canary, transcript_release
from fedsim.audits.recorded.left_over import Claims, Dither, Layout, Rounding
from fedsim.audits.recorded.recorded_noise import claimed_local_std, number
from fedsim.audits.recorded.share_rounds import FILTER, ShareRounds
from fedsim.audits.recorded.svt_rounds import SvtRounds
from fedsim.audits.recorded.transcript_canary import Scored
from fedsim.audits.recorded.transcript_findings import Asked, Measured, Notes
from fedsim.federation.transcripts.records import Arrays, Canary, ObservedRound

TOWARDS = "the server, which sees this client's noised update by itself"

NOTHING_MEASURED = (
    "a participant sees aggregates of unknown updates, from which no noise can be measured; attach "
    "canary_mod, record at the server, or record a local mechanism with recording_mod(local_dp=...)"
)


SELECTION = (
    "of SVTPrivacy the noise of what it sends is measured, and what its choice of numbers tells is "
    "not: a claim can be disproved, and not supported"
)


NO_NOISE = (
    "PercentilePrivacy cuts and clips numbers, and adds no noise: of what it sends epsilon is "
    "infinite"
)

UNCLIPPED = (
    "what was added to the updates moves with them (p = {:.1g}): they were not clipped to the norm "
    "that was declared, or the noise follows them"
)

UNDECLARED = (
    "what {} adds cannot be read: if it clips the whole update (L2) and adds Gaussian noise, say "
    "so: NVFlareFilter(..., clipping_norm=, noise_std=)"
)


class ParticipantRounds:
    """What a participant's transcript gives, round by round; node: whose it is."""

    def __init__(self, notes: Notes, node: int) -> None:
        self._notes = notes
        self._node = node
        self._dither = Dither()
        self._local: list[Release] = []
        self._svt = SvtRounds(notes)
        self._share = ShareRounds()
        self._unread: set[str] = set()
        self._scored: list[Scored] = []
        self._pending: ObservedRound | None = None

    def observe(self, observed: ObservedRound) -> None:
        """Take in the next round, and with its model the outcome of the one before."""
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

    def measured(self, asked: Asked) -> Measured:
        """Return what all rounds so far say of noise and canaries; append what is wrong."""
        findings = asked.findings
        release = canary = None
        if self._local:
            release = transcript_release.measured(self._local, TOWARDS, asked)
            findings += _understated(release, asked.mechanism)
            unlikely = noisy_means.fit(self._local)
            if unlikely < 1 - ALARM_CONFIDENCE:
                findings.append(Finding("alarm", "", UNCLIPPED.format(unlikely)))
        if self._scored:
            canary = transcript_canary.measured(self._scored, asked.delta, asked.confidence)
        if self._unread:
            return Measured(None, canary, *self._unreadable(findings))
        filtered = self._svt.measured(asked)
        if filtered is not None:
            return Measured(release, canary, SELECTION, filtered=filtered)
        if release is None and canary is None:
            findings.append(Finding("note", "", NOTHING_MEASURED))
        return Measured(release, canary, "" if release else NOTHING_MEASURED)

    def _unreadable(self, findings: list[Finding]) -> tuple[str, str, Any]:
        """Return why nothing is measured, of a client, and what is known of them."""
        share = self._share.measured() if self._unread == {FILTER} else None
        if share is not None:
            why, known = share
        elif self._unread == {"PercentilePrivacy"}:
            identified = {"epsilon": math.inf, "by": "the class's name"}
            why, known = NO_NOISE, {"filter": "PercentilePrivacy", "identified": identified}
        else:
            why, known = UNDECLARED.format(" and ".join(sorted(self._unread))), None
        findings.append(Finding("caution", "", why))
        return why, "client", known

    def _score(self, seen: ObservedRound, canary: Canary, after: Arrays) -> None:
        """Take in the outcome of a round with a canary."""
        if vector(after).shape != vector(seen.model).shape:
            self._notes.add("alarm", "the aggregate has other shapes", seen.round)
            return
        score = canaries.score(seen.model, after, canary.seed)
        if not math.isfinite(score):
            self._notes.add("alarm", "the aggregate is not finite", seen.round)
            return
        self._scored.append(Scored(seen.round, canary.coin, score))

    def _observe_local(self, observed: ObservedRound, unprotected: Arrays) -> None:
        """Take in the noise that a local mechanism added to an update."""
        layout = Layout.of(observed.model)
        before = vector(observed.model)
        trained, sent = layout.vector(unprotected), layout.vector(observed.own)
        if not before.size or trained is None or sent is None:
            text = "the update has other shapes than the model"
            self._notes.add("alarm", text, observed.round)
            return
        if not left_over.believable(before, trained, sent):
            self._notes.add("alarm", "the update is not finite", observed.round)
            return
        norm = number(observed.mechanism, "local_clipping_norm")
        change = noisy_means.clipped(trained - before, norm)
        noise = sent - before - change
        units = layout.units(before, sent)
        release = left_over.reduced(
            observed.round,
            noise,
            {self._node: left_over.contribution(1.0, change, noise)},
            layout,
            # The update is clipped, restored, and gets its noise in the model's precision.
            Rounding(units, 3, self._dither.draw(units)),
            Claims(norm, claimed_local_std(observed.mechanism)),
            change,
        )
        self._local.append(release)


def _understated(release: Mapping[str, Any], mechanism: Mapping[str, Any]) -> list[Finding]:
    """Return what is wrong if the noise gives more than the epsilon that LocalDpMod was given."""
    claimed = number(mechanism, "local_epsilon")
    delta = number(mechanism, "local_delta")
    multiplier = release["proven"]["noise_multiplier"]
    if claimed is None or not delta or not 0 < delta < 1 or multiplier is None:
        return []
    high = multiplier["high"]
    real = gaussian.epsilon(1 / high if high else math.inf, delta)
    if real <= claimed:
        return []
    text = (
        f"LocalDpMod claims epsilon {claimed:g} a round at delta {delta:g}; noise and clipping "
        f"give at least {real:.3g}"
    )
    return [Finding("alarm", "", text)]
