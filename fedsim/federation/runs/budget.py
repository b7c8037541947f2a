"""How many rounds a budget affords, and what a run that is continued may cost.

Everything is planned before the first round leaves, so that all batches of a campaign have as many:
trainings of different lengths are no repetitions. With noise from the operating system the budget
is that of all trainings together (`fedsim.game.mechanisms.composition`), and all that are
planned are counted, also where a campaign may stop earlier by what it showed. From the seed it is
that of one training.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from adversaries.errors import InputError
from fedsim.config import Config
from fedsim.config.objects import Scheme
from fedsim.federation.runs import accounts, batches, ledger
from fedsim.federation.runs.accounts import Account
from fedsim.federation.runs.ahead import Ahead, affordable
from fedsim.federation.runs.ledger_row import Row, planned_course, planned_kind
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.game.mechanisms.composition import adds_up, epsilon_of, times
from fedsim.privacy.releases import Rounds

ACCEPTED = "accepted.json"
"""The file of a run that says which epsilon was accepted for its continuation."""


def plan(
    config: Config, nominal: float, directory: RunDirectory | None = None, done: int = 0
) -> int:
    """Return how many rounds every batch runs: training.rounds, or as many as the budget allows.

    directory: of a run to be continued, where finished batches of trials fix the number; None for
    one that has not begun.
    done: how many rounds of the training that is continued need not be run again.
    Raises InputError if not one round can be afforded, or what is left cannot afford the rounds of
    the finished batches; interrupted attempts make the run cost more than it was configured for and
    nobody accepted that; the ledger is damaged, lacks rounds or has some whose noise is of another
    source; or an interrupted batch released noise that cannot be drawn again.
    """
    rows = [] if directory is None else ledger.verified(directory)
    source, mechanism = config.privacy.noise_source, config.privacy.noise.mechanism
    if others := {row.noise_source for row in rows} - {source}:
        raise InputError(
            f"privacy.noise-source is '{source}', but rounds of this run had noise from "
            f"'{min(others)}', and the two do not add up; put it back in config.toml of the run "
            "directory, or begin another run (run.out)"
        )
    finished = batches.finished(config, directory) if directory else []
    left = [trials for trials in batches.ranges(config, directory) if trials.start not in finished]
    interrupted = {row.batch for row in rows} - set(finished)
    if mechanism.by_candidate and adds_up(source) and interrupted:
        raise InputError(
            f"the trials from {min(interrupted)} on were interrupted, and their {mechanism.title} "
            "can neither be drawn again nor be counted in the mutual information; begin another "
            'run (run.out), or use privacy.noise-source = "seed"'
        )
    scheme = config.scheme
    fixed = batches.rounds_of(directory, finished[0]) if directory and finished else None
    rounds = fixed or config.training.rounds
    kind = planned_kind(config.training, config.participation, nominal)
    if config.privacy.stop_at:
        for ahead in _ahead(scheme, kind, rows, left, rounds, done):
            most = done + affordable(scheme, kind, rounds - done, ahead)
            if most == 0 or (fixed is not None and most < fixed):
                raise InputError(_too_dear(scheme, kind, fixed or 1, ahead))
            rounds = most
    if directory and adds_up(source):
        for ahead in _ahead(scheme, kind, rows, left, rounds, done):
            _check_accepted(scheme, kind, ahead, rounds - done, directory)
    return rounds


def accept(directory: RunDirectory, epsilon: float) -> None:
    """Let the run in a directory cost so much in the end.

    epsilon: above 0 and finite.
    Raises InputError if it is no such number, or nothing was released that could make the run cost
    more.
    """
    if not 0 < epsilon < math.inf:
        raise InputError(f"--accept-epsilon is {epsilon}; give a positive number")
    if not directory.has(ledger.FILE):
        raise InputError(
            "--accept-epsilon is for a run that was interrupted, and this one has not released "
            "anything; leave it out, or set what it may release with privacy.stop-at"
        )
    directory.write_json(ACCEPTED, {"epsilon": epsilon})


def _ahead(
    scheme: Scheme, kind: Rounds, rows: Sequence[Row], left: Sequence[range], rounds: int, done: int
) -> list[Ahead]:
    """Return what is still to run: all of it together, or from the seed every batch by itself."""
    participation = scheme.participation
    clients = participation.accounts
    if not left:
        return []
    if adds_up(scheme.privacy.noise_source):
        account = accounts.together(rows)
        return [Ahead(sum(map(len, left)), [account.spent(client) for client in clients])]
    # A new attempt repeats these rounds' noise, but for rounds that are not the same again.
    kept = accounts.by_batch(
        row
        for row in rows
        if row.round > rounds
        or row.participants != participation.charged(row.round)
        or replace(row.kind, participants=None) != replace(kind, participants=None)
    )
    each = (kept.get(trials.start, Account()) for trials in left)
    courses: list[list[Rounds | None]] = []
    if participation.varying:
        planned = planned_course(scheme.training, participation, kind.noise_multiplier, rounds)
        planned = planned[done:]
        courses = [[of if client in who else None for of, who in planned] for client in clients]
    return [Ahead(1, [account.spent(client) for client in clients], courses) for account in each]


def _check_accepted(
    scheme: Scheme, kind: Rounds, ahead: Ahead, rounds: int, directory: RunDirectory
) -> None:
    """Raise InputError where interrupted attempts take a run beyond what it was configured for."""
    vantage = scheme.federation.vantage
    whole = times(Counter({kind: scheme.training.rounds}), scheme.trial_count)
    target, final = epsilon_of(scheme, whole, vantage), ahead.epsilon(scheme, kind, rounds)
    accepted = 0.0
    if directory.has(ACCEPTED):
        try:
            accepted = float(directory.read_json(ACCEPTED, needed=["epsilon"])["epsilon"])
        except (TypeError, ValueError):
            raise directory.damaged(ACCEPTED) from None
    if final > max(target, accepted) * (1 + 1e-9):
        raise InputError(
            "what interrupted attempts released stays spent, so that this run will have released "
            f"epsilon {final:.4g} at delta {scheme.privacy.delta:g} towards the {vantage.value} "
            f"in the end, and not the {target:.4g} that it was configured for; to go on all the "
            f"same, add --accept-epsilon {math.ceil(final * 1000) / 1000:g}"
        )


def _too_dear(scheme: Scheme, kind: Rounds, needed: int, ahead: Ahead) -> str:
    """Say what was spent, what the least cost is of going on, and what to do."""
    vantage, stop_at = scheme.federation.vantage, scheme.privacy.stop_at
    before, after = (ahead.epsilon(scheme, kind, rounds) for rounds in (0, needed))
    where = f"at delta {scheme.privacy.delta:g} towards the {vantage.value}"
    rounds = "one round" if needed == 1 else f"the {needed} rounds of the others"
    together = f" of the {ahead.trainings} trials together" * (ahead.trainings > 1)
    if not any(ahead.spent):
        fewer = ", or run fewer trials" * (ahead.trainings > 1)
        return (
            f"privacy.stop-at is {stop_at:g}, but {rounds}{together} costs epsilon {after:.4g} "
            f"{where}; raise privacy.stop-at, add noise (the noise multiplier is "
            f"{kind.noise_multiplier:.4g}){fewer}"
        )
    return (
        f"this run has spent epsilon {before:.4g} {where}, and {rounds}{together} would bring it "
        f"to {after:.4g}, above privacy.stop-at = {stop_at:g}: what is left does not suffice for "
        "the trials that are left; to allow it, raise privacy.stop-at in config.toml of the run "
        "directory"
    )
