"""The training of batches by workers, several at once. Only this process writes the run.

Every batch is charged in the ledger before a worker receives it. Findings may arrive in any order,
but the campaign reads them in the order of the trials, so it ends as it would in one process. All
random numbers come from the seed. So a batch of a lost worker is repeated with the same noise, and
counts once.
"""

import secrets
from collections.abc import Callable, Iterable
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, wait
from dataclasses import asdict, dataclass, field

from adversaries.errors import InputError
from fedsim.common.strict_json import strict_json
from fedsim.config import to_run_config
from fedsim.federation.runtimes.batch_task import Done, Program, Task
from fedsim.federation.runtimes.pools import Pool
from fedsim.federation.server.batch_run import Campaign
from fedsim.game.mechanisms.privacy import adds_up

MOST_REPEATS = 3
"""Number of losses of workers without a finished batch, after which the run fails."""

PAUSE = 2.0
"""Seconds between two checks for lost workers."""


def check(noise_source: str, tolerated_dropouts: int) -> None:
    """Raise InputError for a campaign whose batches cannot be charged in advance."""
    if adds_up(noise_source):
        raise InputError(
            "workers repeat a lost batch, but noise from the operating system cannot be drawn "
            'again; leave out --workers and --cluster, or set privacy.noise-source = "seed"'
        )
    if tolerated_dropouts:
        raise InputError(
            f"federation.tolerated-dropouts is {tolerated_dropouts}, so the cost of a round is "
            "known only after its clients have answered; leave out --workers and --cluster, or "
            "set it to 0"
        )


@dataclass(frozen=True)
class Sent:
    """A batch that a worker trains.

    Attributes:
        trials: trials of the batch.
        name: name of its task.
        epsilons: the charged epsilon before the first round and after each round.
    """

    trials: range
    name: str
    epsilons: list[float]


@dataclass
class Dispatcher:
    """Trains the batches of a campaign with a pool of workers (a `Trainer`).

    Attributes:
        pool: the workers.
        train: the function that a worker runs.
        say: shows a line to the user.
    """

    pool: Pool
    train: Callable[[Task], Done]
    say: Callable[[str], None]
    _sent: dict[Future[Done], Sent] = field(default_factory=dict)
    _repeats: int = 0
    _program: dict[str, str] = field(default_factory=dict)

    def __call__(self, campaign: Campaign, trials: range) -> None:
        """Wait until the findings of a batch are in the run directory.

        Raises InputError if a worker has another program or other data.
        Raises RuntimeError if workers were lost too often.
        """
        while not campaign.is_finished(trials):
            self._hand_out(campaign, trials.start)
            if lost := self._accept(campaign, FIRST_COMPLETED):
                # The other tasks of a broken pool fail at once.
                lost += self._accept(campaign, ALL_COMPLETED)
                self._repeats += 1
                if self._repeats > MOST_REPEATS:
                    raise RuntimeError(
                        f"workers were lost {self._repeats} times, and no batch was finished in "
                        "the meantime; look for lack of memory (run.max-memory); finished batches "
                        f"are kept: {campaign.directory.resumed_by}"
                    )
                self._note(campaign, lost)
                self.pool.restart()
            names = self.pool.repeated()
            self._note(campaign, [sent for sent in self._sent.values() if sent.name in names])

    def _hand_out(self, campaign: Campaign, first: int) -> None:
        """Charge and submit the next batches, from a trial on."""
        away = {sent.trials for sent in self._sent.values()}
        for trials in campaign.plan.batches:
            if len(self._sent) >= self.pool.width:
                break
            if trials.start >= first and trials not in away and not campaign.is_finished(trials):
                self._send(campaign, trials)

    def _send(self, campaign: Campaign, trials: range) -> None:
        plan, attempt = campaign.plan, campaign.begin(trials)
        epsilons = [attempt.epsilon]
        for round in range(1, plan.rounds + 1):
            attempt.charge(round, plan.config.participation.charged(round))
            epsilons.append(attempt.epsilon)
        name = f"trials-{trials.start}-{secrets.token_hex(4)}"
        task = self._task(campaign, trials)
        self._sent[self.pool.submit(self.train, task, name)] = Sent(trials, name, epsilons)

    def _task(self, campaign: Campaign, trials: range) -> Task:
        plan, batch = campaign.plan, campaign.batch(trials)
        self._program = self._program or asdict(Program.here(plan))
        return Task(
            to_run_config(plan.config) | self.pool.settings(plan.config.run),
            self._program,
            asdict(batch.challenge),
            dict(batch.nodes),
            batch.noise_multiplier,
            plan.rounds,
            trials.start,
            batch.worlds,
        )

    def _accept(self, campaign: Campaign, until: str) -> list[Sent]:
        """Write the findings that have arrived, and return the lost batches.

        until: condition of `concurrent.futures.wait`, for PAUSE seconds at most.
        """
        lost = []
        for future in wait(self._sent, PAUSE, until).done:
            sent = self._sent.pop(future)
            try:
                done = future.result()
            except self.pool.broken:
                lost.append(sent)
                continue
            for event in done.events:
                spent = {"epsilon": sent.epsilons[event["round"]]} if "round" in event else {}
                campaign.directory.log_event(**event, **strict_json(spent))
            campaign.keep(sent.trials, done.findings)
            self._repeats = 0
        return lost

    def _note(self, campaign: Campaign, lost: Iterable[Sent]) -> None:
        trials = [[sent.trials.start, sent.trials.stop] for sent in lost]
        if not trials:
            return
        campaign.directory.log_event(repeated=sorted(trials))
        named = ", ".join(f"{first} to {stop - 1}" for first, stop in sorted(trials))
        self.say(f"a worker was lost; the trials {named} are repeated with the same noise")
