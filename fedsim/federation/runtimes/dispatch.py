"""The training of batches by workers, several at once. Only this process writes the run.

Every batch is charged in the ledger before a worker receives it. Findings may arrive in any order,
but the campaign reads them in the order of the trials, so it ends as it would in one process. All
random numbers come from the seed: a batch whose worker is lost has the same noise when the run
continues, and counts once.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from functools import partial

from adversaries.errors import InputError
from fedsim.common.strict_json import strict_json
from fedsim.configuration import Scalar, to_run_config
from fedsim.federation.runtimes.batch_task import BatchTask, Done, Program
from fedsim.federation.runtimes.pools import WorkerPool
from fedsim.federation.runtimes.spread import LostWorkersError, spread
from fedsim.federation.server.batch_run import Campaign
from fedsim.game.mechanisms.privacy import adds_up

LEAVES = (
    "get the configuration with its seed, the position of the target, and the paths of the data. "
    "They read the data themselves and send their measurements back."
)
"""What the workers of a cluster get."""


def check_chargeable(noise_source: str, tolerated_dropouts: int) -> None:
    """Raise InputError for a campaign whose batches cannot be charged in advance."""
    if adds_up(noise_source):
        raise InputError(
            "the batch of a lost worker is trained again, but noise from the operating system "
            "cannot be drawn again; leave out --workers and --cluster, or set "
            'privacy.noise-source = "seed"'
        )
    if tolerated_dropouts:
        raise InputError(
            f"federation.tolerated-dropouts is {tolerated_dropouts}, so the cost of a round is "
            "known only after its clients have answered; leave out --workers and --cluster, or "
            "set it to 0"
        )


@dataclass
class Dispatcher:
    """Trains the batches of a campaign with a pool of workers (a `Trainer`).

    Attributes:
        pool: the workers.
        train: the function that a worker runs.
    """

    pool: WorkerPool
    train: Callable[[BatchTask], Done]
    _results: Iterator[tuple[str, Future[Done]]] = field(default_factory=lambda: iter(()))
    _batches: dict[str, range] = field(default_factory=dict)
    _epsilons: dict[str, list[float]] = field(default_factory=dict)
    _program: dict[str, str] = field(default_factory=dict)
    _run_config: dict[str, Scalar] = field(default_factory=dict)

    def __call__(self, campaign: Campaign, trials: range) -> None:
        """Wait until the findings of a batch are in the run directory.

        Raises InputError if a worker has another program or other data.
        Raises RuntimeError if a worker was lost.
        """
        if not self._batches:
            self._begin(campaign)
        while not campaign.is_finished(trials):
            try:
                name, future = next(self._results)
                done = future.result()
            except LostWorkersError as error:
                kept = f"finished batches are kept: {campaign.directory.resumed_by}"
                raise RuntimeError(f"{error}; {kept}") from None
            for event in done.events:
                epsilons = self._epsilons[name]
                spent = {"epsilon": epsilons[event["round"]]} if "round" in event else {}
                campaign.directory.log_event(**event, **strict_json(spent))
            campaign.keep(self._batches[name], done.findings)

    def _begin(self, campaign: Campaign) -> None:
        left = [trials for trials in campaign.plan.batches if not campaign.is_finished(trials)]
        self._batches = {f"trials-{trials.start}": trials for trials in left}
        config = campaign.plan.config
        self._run_config = to_run_config(config) | self.pool.settings(config.run)
        self._program = asdict(Program.here(campaign.plan.config.experiment))
        tasks = {name: partial(self._charged, campaign, name) for name in self._batches}
        self._results = spread(self.pool, self.train, tasks)

    def _charged(self, campaign: Campaign, name: str) -> BatchTask:
        """Return the task of a batch, after its rounds are charged."""
        plan, trials = campaign.plan, self._batches[name]
        attempt = campaign.begin(trials)
        epsilons = self._epsilons[name] = [attempt.epsilon]
        for round in range(1, plan.rounds + 1):
            attempt.charge(round, plan.config.participation.charged(round))
            epsilons.append(attempt.epsilon)
        batch = campaign.batch(trials)
        return BatchTask(
            self._run_config,
            self._program,
            asdict(batch.challenge),
            dict(batch.nodes),
            plan.noise_multiplier,
            plan.rounds,
            trials.start,
            batch.worlds,
        )
