"""The options of an audit, and which kind of audit takes which."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adversaries.errors import InputError
from adversaries.statistics.gaussian import check_positive_delta
from adversaries.statistics.intervals import significance
from fedsim.audits.judgement.claim import Claim
from fedsim.privacy.delta import ASSUMED
from fedsim.privacy.mechanism import Neighbouring

CONFIDENCE = 0.95
CODE = ("trials", "neighbouring", "seed", "time_limit")
TAKEN: Mapping[str, tuple[str, ...]] = {
    "a Flower app": (*CODE, "rounds", "clients", "run_config"),
    "a training loop": (*CODE, "data", "records", "target"),
    "a recorded transcript": ("delta",),
    "a table of canary scores": ("delta", "guesses"),
    "an auditor's transcript": (*("data_root", "weights", "canary_seed_file", "no_challenge"),),
}


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """Options of an audit; None for an option that the user left out.

    Attributes:
        delta: at which epsilons are stated; for a transcript or scores without a claim.
        time_limit: seconds allowed for one run of an app, or for up to 25 runs of a loop.
        data_root: directory of the run's dataset on this machine, for an auditor's transcript.
        canary_seed_file: seeds and numbers of the clients' canaries, for an auditor's transcript.
        no_challenge: whether to leave out beliefs about the challenge, which need the data.
        guesses: number of canaries of scores to guess; 0 for one in eight, -1 for the best of
            several numbers.
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
    guesses: int | None = None

    def __post_init__(self) -> None:
        if self.claim is not None and self.delta is not None:
            raise InputError("A claim states its own delta; leave delta out.")
        if self.delta is not None:
            check_positive_delta(self.delta)
        significance(self.level)

    @property
    def level(self) -> float:
        return CONFIDENCE if self.confidence is None else self.confidence

    @property
    def stated_at(self) -> float:
        if self.claim is not None:
            return self.claim.delta
        return ASSUMED if self.delta is None else self.delta

    def taken(self, audited: str) -> dict[str, Any]:
        """Return the options that the user set and only this audit takes, by name."""
        own = {name for names in TAKEN.values() for name in names}
        chosen = {
            name: value
            for name, value in vars(self).items()
            if name in own and value is not None and value is not False
        }
        if wrong := [name for name in chosen if name not in TAKEN[audited]]:
            takers = " or ".join(kind for kind, names in TAKEN.items() if wrong[0] in names)
            option = wrong[0].replace("_", "-")
            raise InputError(f"{option} is only for {takers}; this is {audited}, so leave it out")
        return chosen


LEAST_TRIALS, LONGEST_TIME = 20, 1e6


def check_numbers(
    trials: int, confidence: float, seed: int, time_limit: float | None = None
) -> None:
    """Refuse numbers with which no audit can run, before any code of the app runs."""
    significance(confidence)
    if trials < LEAST_TRIALS:
        raise InputError(f"{trials} trials cannot prove anything; give at least {LEAST_TRIALS}")
    if not 0 <= seed < 2**64:
        raise InputError(f"--seed is {seed}; give a whole number from 0 to 2^64 - 1")
    if time_limit is not None and not 0 < time_limit <= LONGEST_TIME:
        raise InputError(
            f"--time-limit is {time_limit:g} s; it must be above 0 and at most {LONGEST_TIME:.0f}"
        )
