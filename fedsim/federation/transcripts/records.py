"""What one vantage point saw of a federation: facts, rounds, replies and canaries."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from adversaries.errors import InputError

LOOP = "loop"
"""The vantage of a training loop, whose steps stand in the place of rounds."""

VANTAGES = ("server", "participant", "auditor", LOOP)

UNITS = ("client", "record")
"""Whom a claim protects: a client, with its whole update, or a record of a client's data."""

AUDITOR = "fedsim auditor"
"""Who recorded, in the header of the transcript of an auditor's node (`fedsim.audits.live.app`)."""

Arrays = Mapping[str, npt.NDArray[Any]]
Scalar = bool | int | float | str
Value = Scalar | None | list[int] | list[float]


@dataclass(frozen=True)
class Facts:
    """Who recorded what, in the first record of a transcript.

    Raises InputError if there is no such vantage.

    Attributes:
        vantage: "server" (sees every reply), "participant" (sees global models and its own
            messages), "auditor" (a participant that joined to audit) or "loop" (sees every step of
            DP-SGD, before and after its noise).
        recorder: the program or mod that recorded.
        app: name of the recorded Flower app.
        node: partition of a participant or auditor, its node id if it has none; None for the
            server.
        run: the run that was recorded, where its recorder knows it.
        versions: of the packages that matter, by name.
    """

    vantage: str
    recorder: str
    app: str = ""
    node: int | None = None
    run: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.vantage not in VANTAGES:
            raise InputError(
                f"the vantage is '{self.vantage}'; a transcript is of one of {', '.join(VANTAGES)}"
            )


@dataclass(frozen=True)
class Reply:
    """What one node sent.

    Attributes:
        arrays: its model, by name.
        num_examples: behind that model; None if it sent none.
        metrics: by name.
    """

    arrays: Arrays
    num_examples: float | None = None
    metrics: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Canary:
    """A consented canary: the sender added a direction to its model, long or short by a fair coin.

    Attributes:
        coin: whether it was the long one.
        seed: of the direction (`adversaries.statistics.canaries.direction`).
        norm: Euclidean length of the long one.
        idle_norm: Euclidean length of the short one.
    """

    coin: bool
    seed: int
    norm: float
    idle_norm: float


@dataclass(frozen=True)
class ObservedRound:
    """What a vantage point saw of one round.

    Keys of the mechanism: "strategy", "noise_multiplier", "clipping_norm", "noise_clipping_norm"
    (what the noise was scaled to), "num_sampled_clients", "adaptive" (whether the clipping norm
    follows a noisy count of clipped updates), "clipped_count_std" (of that noise; where
    "adaptive"), "weighted_by" and "clipping" ("server" or "client") for a strategy; "aggregation":
    "mean" if Flower's own code releases the plain mean, "declared" if clipping and noise were
    declared rather than read, else "other"; "unit" (one of `UNITS`) if it was declared;
    "local_clipping_norm", "local_sensitivity", "local_epsilon", "local_delta" for a local one;
    "client_epsilon" and "client_epsilon_metric" if it reports one; absent keys are unknown.

    Of a training loop (vantage "loop") a round is a step of DP-SGD without a model. `replies` has
    one, of node 0: the sum of the clipped gradients, and the size of the batch as `num_examples`.
    `aggregate` is what was released, (sum + noise)/divisor; `participants` are the records of the
    batch. The keys of its mechanism are listed with the format.

    Attributes:
        round: the number that the strategy gave it.
        model: the global model before the round, by name; empty where it was not seen.
        replies: by node id, as they reached the server and before it clipped them; empty elsewhere.
        own: the model that a participant sent; empty where it sent none.
        unprotected: that model before a local mechanism clipped it and added noise, if there was
            one.
        aggregate: the global model after the round; None where it was not seen (a participant sees
            it as the model of the next round).
        participants: the node ids that were asked to train, None where unknown.
        mechanism: the noise configuration in force.
        canary: None where the sender hid none.
    """

    round: int
    model: Arrays = field(default_factory=dict)
    replies: Mapping[int, Reply] = field(default_factory=dict)
    own: Arrays = field(default_factory=dict)
    unprotected: Arrays | None = None
    aggregate: Arrays | None = None
    participants: tuple[int, ...] | None = None
    mechanism: Mapping[str, Scalar] = field(default_factory=dict)
    canary: Canary | None = None


def not_of_an_auditor(observed: ObservedRound) -> InputError:
    """Return the error for a round that no auditor's node of fedsim recorded."""
    return InputError(
        f"round {observed.round} of this transcript was not recorded by an auditor's node of "
        "fedsim; give the transcript that the node wrote"
    )


@dataclass(frozen=True)
class Transcript:
    """A transcript as it was found.

    Attributes:
        facts: of the header.
        rounds: whole ones, in the file's order.
        ended: whether the recorder said that there is no more to come.
        incomplete: why rounds are missing, as the recorder said; "" if nothing failed.
        torn: how many bytes of an unfinished last record were dropped.
    """

    facts: Facts
    rounds: tuple[ObservedRound, ...]
    ended: bool
    incomplete: str
    torn: int
