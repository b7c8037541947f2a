"""One attempt to train a batch of trials: a round is charged before anything of it leaves."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from fedsim.configuration.objects import Scheme
from fedsim.federation.runs.accounts import HELPED, Account
from fedsim.federation.runs.ledger_row import LedgerRow, Spent, planned_kind
from fedsim.game.mechanisms.privacy import Counts, adds_up, at_vantages, epsilon_of, within


class BudgetExceededError(RuntimeError):
    """A round would exceed `privacy.stop-at`, so it was refused before anything of it left."""


class OtherClientsError(RuntimeError):
    """A round repeats the noise of an earlier attempt over other clients; its sum is withheld."""


class Attempt:
    """One attempt to train a batch of trials.

    Attributes:
        epsilon: the worst client's so far: of all releases, or of one training with noise from the
            seed.
        earlier: rounds of these trials in earlier attempts, whose noise it does not draw again.
        released: rounds of all trials together before it.
        first: its first round; above 1 where it continues from a checkpoint.
    """

    def __init__(
        self,
        scheme: Scheme,
        append: Callable[[LedgerRow], None],
        trials: range,
        account: Account,
        everything: Account,
        rounds: int,
        noise_multiplier: float,
        colluders: tuple[int, ...],
        first: int = 1,
    ) -> None:
        self._scheme, self._append, self._account = scheme, append, account
        kind = planned_kind(scheme.training, scheme.participation, noise_multiplier)
        self._provisional = scheme.federation.tolerated_dropouts > 0
        self._template = LedgerRow(
            trials.start,
            len(trials),
            account.attempts,
            0,
            kind.noise_multiplier,
            kind.sampling_rate,
            kind.local_steps,
            tuple(scheme.participation.accounts),
            scheme.privacy.noise_source,
            scheme.privacy.delta,
            {},
            {},
            colluders=colluders,
        )
        planned = [
            self._asked(round, scheme.participation.charged(round))
            for round in range(first, rounds + 1)
        ]
        self._training = _Course.of(scheme, account, planned)
        self._everything = (
            _Course.of(scheme, everything, planned)
            if adds_up(scheme.privacy.noise_source)
            else None
        )
        self.earlier = account.most if adds_up(scheme.privacy.noise_source) else 0
        self.released = everything.most if adds_up(scheme.privacy.noise_source) else 0
        self.first = first
        vantage = scheme.federation.vantage
        self.epsilon = max(
            epsilon_of(scheme, self._limited.account.spent(client), vantage)
            for client in self._template.participants
            if client not in colluders
        )

    @property
    def before(self) -> tuple[int, int, int]:
        """Rounds of earlier attempts, rounds of all trainings before, and the first round."""
        return self.earlier, self.released, self.first

    @property
    def _limited(self) -> "_Course":
        return self._everything or self._training

    def charge(self, round: int, participants: Iterable[int]) -> None:
        """Enter a round before it leaves. Raises BudgetExceededError, with nothing entered."""
        row = self._asked(round, tuple(sorted(participants)))
        self._before = self._after(replace(row, participants=()))
        self._enter(row)

    def withdraw(self, round: int) -> None:
        """Take back the charge of the last round, which no client answered."""
        if not adds_up(self._scheme.privacy.noise_source):
            return  # the seed's round may be one that an earlier attempt released
        row = replace(self._template, round=round, participants=(), shares=1, present=())
        training, released = self._before
        self._append(replace(row, epsilon=training, released=released))

    def settle(self, round: int, present: Iterable[int]) -> None:
        """Enter the actual noise of a round. Raises OtherClientsError, with nothing entered."""
        if not self._provisional:
            return
        answered = tuple(sorted(present))
        row = replace(
            self._template,
            round=round,
            participants=self._scheme.participation.charged(round),
            # A round without clients releases nothing, but a row needs a share.
            shares=max(1, len(answered)),
            present=answered,
        )
        if self._account.clashes(row):
            raise OtherClientsError(
                f"round {round} of the trials from {row.batch} on would repeat the seed's noise "
                "over other clients than an earlier attempt. The difference of the two sums has no "
                "noise, so this sum is not released. Begin another run (run.out), or use "
                'privacy.noise-source = "system".'
            )
        self._enter(row)

    def _asked(self, round: int, participants: tuple[int, ...]) -> LedgerRow:
        every = not self._provisional and self._scheme.participation.complete
        return replace(
            self._template,
            round=round,
            participants=participants,
            provisional=self._provisional,
            shares=None if every else self._scheme.participation.shares(round),
        )

    def _enter(self, row: LedgerRow) -> None:
        training, released = self._after(row)
        spent, vantage = released or training, self._scheme.federation.vantage
        honest = [client for client in spent if client not in row.colluders]
        for client in honest:
            self._check(row, client, spent[client][vantage])
        self._append(replace(row, epsilon=training, released=released))
        self.epsilon = max(spent[client][vantage] for client in honest)

    def _after(self, row: LedgerRow) -> tuple[Spent, Spent]:
        """Return the epsilons of one training, and of all, with a row."""
        training = self._training.after(row)
        return training, {} if self._everything is None else self._everything.after(row)

    def _check(self, row: LedgerRow, client: int, epsilon: float) -> None:
        scheme, limit = self._scheme, self._scheme.privacy.stop_at or math.inf
        if epsilon <= limit:
            return
        # A rounded value may exceed a budget that the exact value keeps.
        counts = self._limited.counts(row, client)
        if not within(scheme, counts, limit):
            vantage = scheme.federation.vantage
            reached = epsilon_of(scheme, counts, vantage)
            raise BudgetExceededError(
                f"round {row.round} would bring client {client} to epsilon {reached:.4g} at "
                f"delta {scheme.privacy.delta:g} towards the {vantage.value}, above "
                f"privacy.stop-at = {limit:g}; the earlier rounds stay released"
            )


@dataclass(frozen=True)
class _Course:
    """An account, with every client's rounds at the end of the attempt."""

    scheme: Scheme
    account: Account
    total: Mapping[int, Counts]
    epsilons: dict[Any, dict[str, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, scheme: Scheme, account: Account, planned: Iterable[LedgerRow]) -> Self:
        final = account.copy()
        for row in planned:
            final.add(row)
        return cls(
            scheme,
            account,
            {client: final.spent(client) for client in scheme.participation.accounts},
        )

    def counts(self, row: LedgerRow, client: int) -> Counts:
        asked = client in row.participants
        return self.account.after(row, client) if asked else self.account.spent(client)

    def after(self, row: LedgerRow) -> Spent:
        """Return every client's epsilons with a row."""
        spent: dict[int, Mapping[str, float]] = {}
        for client, total in self.total.items():
            counts = self.counts(row, client)
            history = frozenset(counts.items()), frozenset(total.items())
            if history not in self.epsilons:
                self.epsilons[history] = at_vantages(self.scheme, counts, total)
            spent[client] = self.epsilons[history]
            if client in row.colluders:
                spent[client] = self.epsilons[history] | {
                    vantage.value: math.inf for vantage in HELPED
                }
        return spent
