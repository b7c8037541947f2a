"""The options of an audit: one object for every command and for `fedsim.audit`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adversaries.errors import InputError
from fedsim.audits.judgement.claim import Claim
from fedsim.privacy.delta import ASSUMED
from fedsim.privacy.mechanism import Neighbouring

CONFIDENCE = 0.95
"""The default confidence of every interval that a report shows."""

CODE = ("trials", "neighbouring", "seed", "time_limit")
TAKEN: Mapping[str, tuple[str, ...]] = {
    "a Flower app": (*CODE, "rounds", "clients", "run_config"),
    "a training loop": (*CODE, "data", "records", "target"),
    "a recorded transcript": ("delta",),
    "an auditor's transcript": (
        *("data_root", "weights", "canary_seed_file", "no_challenge", "worlds"),
    ),
}
"""By what is audited, the options that it takes beside a claim and a confidence."""


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """How something is audited; None for an option that was left out.

    Attributes:
        delta: at which the epsilons of a recorded transcript are stated without a claim.
        trials: runs of an app under attack, or judged runs of a loop.
        time_limit: seconds that one run of an app, or up to 25 runs of a loop, may take.
        rounds: of an app, its num-server-rounds.
        clients: of an app, how many it is run with.
        run_config: of an app, keys of its run configuration that change.
        data: of a loop, what it trains on.
        records: of a loop, the number of records in D.
        target: of a loop, "crafted" or "real".
        data_root: of an auditor's transcript, where this machine has the run's dataset.
        weights: of an auditor's transcript, this machine's copy of the run's model.weights.
        canary_seed_file: of an auditor's transcript, seeds and numbers of the clients' canaries.
        no_challenge: of an auditor's transcript, whether beliefs about the challenge, which need
            the data, are left out.
        worlds: of an auditor's transcript, the run directory that tells which beliefs were right.
    """

    claim: Claim | None = None
    delta: float | None = None
    confidence: float | None = None
    trials: int | None = None
    neighbouring: Neighbouring | None = None
    seed: int | None = None
    time_limit: float | None = None
    rounds: int | None = None
    clients: int | None = None
    run_config: Mapping[str, Any] | None = None
    data: str | None = None
    records: int | None = None
    target: str | None = None
    data_root: Path | None = None
    weights: Path | None = None
    canary_seed_file: Path | None = None
    no_challenge: bool | None = None
    worlds: Path | None = None

    def __post_init__(self) -> None:
        if self.claim is not None and self.delta is not None:
            raise InputError("with a claim every epsilon is stated at its delta; leave delta out")

    @property
    def level(self) -> float:
        """The confidence of every interval."""
        return CONFIDENCE if self.confidence is None else self.confidence

    @property
    def stated_at(self) -> float:
        """The delta at which a recorded transcript's epsilons are stated: the claim's, if any."""
        if self.claim is not None:
            return self.claim.delta
        return ASSUMED if self.delta is None else self.delta

    def taken(self, what: str) -> dict[str, Any]:
        """Return the options of its own that an audit was given, by name.

        Args:
            what: is audited, a key of `TAKEN`.
        """
        own = {name for names in TAKEN.values() for name in names}
        found = {
            name: value
            for name, value in vars(self).items()
            if name in own and value is not None and value is not False
        }
        if wrong := [name for name in found if name not in TAKEN[what]]:
            takers = " or ".join(kind for kind, names in TAKEN.items() if wrong[0] in names)
            options = ", ".join(name.replace("_", "-") for name in wrong)
            raise InputError(f"{options}: for {takers}; this is {what}, so leave it out")
        return found
