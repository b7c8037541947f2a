"""The preflight of a run: what is wrong is found, and what is decided is decided, once.

`fedsim run`, `fedsim sweep`, `fedsim deploy run` and `flwr run` make a Plan before a directory is
written or a message sent, and hand it on: no later step works any of it out again.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from adversaries.errors import InputError
from fedsim.common import device
from fedsim.common.memory import readable
from fedsim.config import Config
from fedsim.config.campaign import RunConfig
from fedsim.config.federation import FederationConfig
from fedsim.config.objects import Scheme
from fedsim.federation.runs import batches, budget, run_directory
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.server import checkpoint
from fedsim.game import challenge, federation, membership, one_run
from fedsim.game.challenge import Challenge
from fedsim.game.federation import Federation
from fedsim.game.mechanisms import fixed_point, privacy
from fedsim.game.mechanisms.vantages import measured
from fedsim.game.observers import at_server, released_model
from fedsim.learning.data import distribution
from fedsim.learning.training import models, schedules
from fedsim.learning.training.optimizers import ServerOptimizer
from fedsim.privacy import identifiability
from fedsim.privacy.accounting import accountant
from fedsim.privacy.participation.rule import Participation
from fedsim.privacy.trust.model import Vantage


@dataclass(frozen=True)
class Plan:
    """What is decided before the first round of a run.

    Attributes:
        config: the experiment, with batches of trials that fit in memory.
        noise_multiplier: sigma over the sensitivity of what adds the noise, 0 under PAC noise.
        rounds: how many every trial has: training.rounds, or as many as privacy.stop-at allows.
        batches: the trials of each batch, in the order in which they are run.
    """

    config: Config
    noise_multiplier: float
    rounds: int
    batches: tuple[range, ...]

    @property
    def path(self) -> Path:
        """The directory that the run has or will have."""
        return Path(self.config.run.out)

    def challenge(self, searched: Callable[[float], None] | None = None) -> Challenge:
        """Return the target and who attacks it, searched for once in a process."""
        chosen, rounds = challenge.choose(self.config, searched), self.config.training.rounds
        there = map(self.config.participation.participants, range(1, rounds + 1))
        if chosen is not challenge.NOBODY and not any(chosen.client in each for each in there):
            raise InputError(
                f"client {chosen.client}, which holds the target, joins none of the {rounds} "
                "rounds by the coins of run.seed; choose another with challenge.client, or take "
                "more rounds or another seed"
            )
        return chosen

    def federation(self) -> Federation:
        """Return the data, the model and the device, with work in blocks that fit in memory.

        Raises InputError if not even one example's does.
        """
        config = self.config
        known = federation.load(config)
        if not len(known.client_of):  # clients have records of their own, and the server none
            return known
        sampled = config.training.sampling_rate < 1
        known.cut(config.trials.batch, sampled, config.candidates)
        return known

    def begin(self, searched: Callable[[float], None] | None = None) -> RunDirectory:
        """Return the run's directory, made if it is not there, after the search for the target."""
        self.challenge(searched)
        return RunDirectory.create(self.path, self.config)

    def left(self, directory: RunDirectory) -> "Plan":
        """Return the plan of what a directory's finished batches leave."""
        kept = checkpoint.read(directory)
        done = 0 if kept is None else kept.round
        rounds = budget.plan(self.config, self.noise_multiplier, directory, done)
        return replace(self, rounds=rounds, batches=tuple(batches.ranges(self.config, directory)))


def prepare(config: Config, processes: int = 1) -> Plan:
    """Return the plan of an experiment, with nothing written.

    config: the experiment, whose `run.out` is the directory. The batches of a run that this
    directory holds stay as small as they are there.
    processes: how many share the memory of this machine.
    Raises InputError for what is wrong with it.
    """
    check(config)
    path = Path(config.run.out)
    if (path / "config.toml").is_file():
        size = RunDirectory.open(path).config.trials.batch
        fitting = config.with_batch(min(size, config.trials.batch))
    else:
        fitting = fit_batch(config, processes)
    run_directory.check(path, fitting)
    return preflight(fitting)


def preflight(config: Config) -> Plan:
    """Return the plan of a checked experiment whose batches fit.

    The noise multiplier is searched for here and nowhere else.

    Raises InputError if its noise, its budget or its report is impossible.
    """
    nominal = privacy.noise_multiplier(config.scheme)
    made = Plan(config, nominal, config.training.rounds, tuple(batches.ranges(config)))
    check_rounding(config.scheme, nominal, models.size(made.federation().model))
    # What the report will need, before the work rather than after it.
    mechanism = privacy.mechanism(config.scheme, nominal)
    identifiability.bounds(mechanism, config.privacy.delta, config.privacy.accountant)
    return replace(made, rounds=budget.plan(config, nominal))


def default_directory(run: RunConfig) -> Path:
    """Return `run.out`, or a new directory under fedsim-runs/ named for experiment and time."""
    if run.out:
        return Path(run.out)
    return Path("fedsim-runs") / f"{run.name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"


def check(config: Config) -> None:
    """Check for what would fail in the middle of a run. Raises InputError if something would."""
    ServerOptimizer(config.training, config.data.records)
    schedules.factor(config.training, 1)
    if config.run.job == "training":
        return
    _check_aggregation(config.participation, config.federation, config.training.rounds)
    at_server.check(config.scheme, config.audit.mode)
    released_model.check(config.scheme)
    if config.canaries.count:
        one_run.check(config.canaries, federation.load(config))
    membership.check(config.audit.attacks)


def _check_aggregation(
    participation: Participation, federation: FederationConfig, rounds: int
) -> None:
    """Raise InputError where a round has too few clients for secure aggregation to hide one.

    A server that asked one half for keys and the other half for seeds would unmask a client.
    """
    if not participation.varying or federation.secure_aggregation != "secagg+":
        return
    needed = max(2, 2 * federation.tolerated_dropouts + 1)
    for round in range(1, rounds + 1):
        there = len(participation.participants(round))
        if 0 < there < needed:
            raise InputError(
                f"by the coins of run.seed {there} of the clients join round {round}, but secagg+ "
                f"keeps messages secret only among {needed} or more; raise "
                "federation.sampling-rate or federation.clients, or take another seed"
            )


def check_rounding(scheme: Scheme, nominal: float, parameters: int) -> None:
    """Check that the integers of distributed trust are fine enough for its noise.

    Raises InputError if they are too coarse.
    """
    if scheme.federation.trust.model.summed_securely:
        delta = scheme.privacy.delta
        chosen_accountant = accountant(scheme.privacy.accountant)
        worst = max(
            chosen_accountant.epsilon(
                privacy.describe(scheme, nominal, vantage).towards(vantage), delta
            )
            for vantage in Vantage
        )
        grid = fixed_point.agreed(scheme, nominal, parameters)
        fixed_point.check(grid, scheme.training.rounds, delta, worst)


def fit_batch(config: Config, processes: int = 1) -> Config:
    """Return the experiment with no more trials in a batch than fit in half of the memory.

    The other half is for gradients.

    processes: how many share the memory.

    Raises InputError if not even one trial fits, or a pair where trials come in pairs.
    """
    dataset = distribution.dataset(config)
    model = models.structural_model(
        partial(federation.build_model, config.game, dataset), config.run.seed
    )
    where = device.resolve(config.run.device)
    memory = federation.memory_limit(config.run.memory_limit, where) // processes
    # For each parameter: the model, the aggregate and their messages, noise, optimiser, belief and
    # residuals in float64, and the replies of the clients that are asked, the target and the
    # adversary among them; under PAC noise also those of all candidates; for the attack on the
    # released model a whole training, replayed.
    clients = config.federation.clients
    several = config.candidates if config.candidates > 1 else 0
    attacked = measured(config.federation.vantage, config.audit.vantages)
    replayed = config.training.rounds if Vantage.RELEASED_MODEL in attacked else 0
    asked = min(math.ceil(config.federation.sampling_rate * clients) + 2, clients)
    numbers = 160 + 16 * asked + several * (32 + 16 * asked) + 4 * replayed
    each = models.size(model) * numbers
    if each > memory // 2:
        raise InputError(
            f"one trial of this model takes {readable(each)} between the rounds and as much again "
            f"for its gradients, but there are {readable(memory)} (run.max-memory); allow more, or "
            "choose a smaller model"
        )
    batch = min(config.trials.batch, config.trials.count, memory // 2 // each)
    if batch == min(config.trials.batch, config.trials.count):
        return config
    if config.trials.in_pairs:
        if batch < 2:
            raise InputError(
                f"two trials of this model, which pairs need, take {readable(2 * each)}, but there "
                f"are {readable(memory // 2)} for them (half of run.max-memory); allow "
                'more, or set trials.pairing = "independent" and trials.until-halfwidth = 0'
            )
        batch -= batch % 2
    return config.with_batch(batch)
