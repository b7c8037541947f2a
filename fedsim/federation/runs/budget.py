"""The rounds that a budget allows, planned in advance, and the cost of a continued run."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from adversaries.errors import InputError
from fedsim.configuration import Config
from fedsim.federation.runs import ledger
from fedsim.federation.runs.batches import Batches, rounds_of
from fedsim.federation.runs.rows import Account, kept, planned_kind
from fedsim.game.mechanisms.privacy import Counts, adds_up, epsilon_of, times, within
from fedsim.privacy.releases import Rounds

Course = Sequence[Rounds | None]
"""The planned rounds of a client; None for one that it does not join."""


@dataclass(frozen=True)
class Ahead:
    """Trainings still to run, beside what each client has spent."""

    config: Config
    trainings: int
    clients: Sequence[tuple[Counts, Course]]

    def after(self, rounds: int) -> list[Counts]:
        """Return the final rounds of every client; equal accounts appear once."""
        alike = {(frozenset(spent.items()), id(course)): 0 for spent, course in self.clients}
        final = []
        for spent, course in self.clients:
            if alike.pop((frozenset(spent.items()), id(course)), None) is not None:
                own = Counter(kind for kind in course[:rounds] if kind is not None)
                final.append(spent + times(own, self.trainings))
        return final

    def epsilon(self, rounds: int) -> float:
        """Return the final epsilon of the worst client, at the configured vantage."""
        vantage = self.config.federation.vantage
        return max(epsilon_of(self.config, counts, vantage) for counts in self.after(rounds))

    def affordable(self, most: int) -> int:
        """Return the number of rounds that keep epsilon within privacy.stop-at."""
        limit = self.config.privacy.stop_at

        def affords(rounds: int) -> bool:
            return all(within(self.config, counts, limit) for counts in self.after(rounds))

        if affords(most):
            return most
        low, high = 0, most
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if affords(middle) else (low, middle)
        return low


def courses(config: Config, nominal: float, rounds: int, done: int = 0) -> list[Course]:
    """Return the planned rounds after the first `done`; equal accounts have the same object."""
    training, participation = config.training, config.participation
    accounts, numbers = participation.accounts, range(done + 1, rounds + 1)
    if not participation.varying:
        return [[planned_kind(training, participation, nominal)] * len(numbers)] * len(accounts)
    kinds = [planned_kind(training, participation, nominal, number) for number in numbers]
    joining = [frozenset(participation.charged(number)) for number in numbers]
    return [
        [kind if client in who else None for kind, who in zip(kinds, joining, strict=True)]
        for client in accounts
    ]


def plan(campaign: Batches, nominal: float, done: int = 0) -> int:
    """Return the number of rounds of every batch: training.rounds, or as many as are affordable.

    campaign: its directory is that of a run to continue, whose finished batches fix the number.
    done: rounds of the continued training that need not be run again.
    Raises InputError if the budget does not allow that, if interrupted attempts make the run exceed
    its configured cost without privacy.stop-at, or if the ledger is damaged or of another source of
    noise.
    """
    config, directory = campaign.config, campaign.directory
    rows = [] if directory is None else ledger.verified(directory)
    if config.run.job == "training":
        rows = kept(rows, done, nominal)
    finished = campaign.finished()
    left = [trials for trials in campaign.ranges() if trials.start not in finished]
    fixed = rounds_of(directory, finished[0]) if directory and finished else None
    rounds = fixed or config.training.rounds
    if not left:
        return rounds
    ahead = courses(config, nominal, rounds, done)
    if adds_up(config.privacy.noise_source):
        account, trainings = Account(rows, all_trials=True), sum(map(len, left))
    else:
        account, trainings = Account(), 1  # a new attempt repeats what earlier ones released
    spent = [account.spent(client) for client in config.participation.accounts]
    work = Ahead(config, trainings, list(zip(spent, ahead, strict=True)))
    if config.privacy.stop_at:
        most = done + work.affordable(rounds - done)
        if most == 0 or (fixed is not None and most < fixed):
            raise InputError(_too_dear(work, nominal, fixed or 1))
        return most
    if directory and adds_up(config.privacy.noise_source):
        _check_planned(work, nominal, rounds - done)
    return rounds


def _check_planned(ahead: Ahead, nominal: float, rounds: int) -> None:
    """Raise InputError if a run would cost more than its configuration plans."""
    config, vantage = ahead.config, ahead.config.federation.vantage
    kind = planned_kind(config.training, config.participation, nominal)
    whole = times(Counter({kind: config.training.rounds}), config.trials.count)
    target, final = epsilon_of(config, whole, vantage), ahead.epsilon(rounds)
    if final > target * (1 + 1e-9):
        enough = f"{math.ceil(final * 1000) / 1000:g}"
        raise InputError(
            "the releases of interrupted attempts stay spent. In the end this run will have "
            f"released epsilon {final:.4g} at delta {config.privacy.delta:g} towards the "
            f"{vantage.value}, while its configuration plans {target:.4g}. To continue anyway, set "
            f"privacy.stop-at: add privacy.stop-at={enough} to the command that began the "
            f"run, or write stop-at = {enough} under [privacy] in its config.toml"
        )


def _too_dear(ahead: Ahead, nominal: float, needed: int) -> str:
    """Return a message with the spent epsilon, the least cost to continue, and the remedy."""
    privacy, vantage = ahead.config.privacy, ahead.config.federation.vantage
    before, after = ahead.epsilon(0), ahead.epsilon(needed)
    rounds = "one round" if needed == 1 else f"{needed} rounds (as in the finished trials)"
    trials = f" of each of the {ahead.trainings} trials to come" * (ahead.trainings > 1)
    return (
        f"privacy.stop-at is {privacy.stop_at:g}, but {rounds}{trials} would cost epsilon "
        f"{after:.4g} at delta {privacy.delta:g} towards the {vantage.value}, of which "
        f"{before:.4g} is spent; raise privacy.stop-at, add noise (the noise multiplier is "
        f"{nominal:.4g}), or begin with fewer trials"
    )
