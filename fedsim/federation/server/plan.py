"""The preflight of a run: all checks and decisions before the first round."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from adversaries.attacks import membership_attacks
from adversaries.errors import InputError
from fedsim.common import device, report_directory
from fedsim.common.memory import readable
from fedsim.configuration import Config
from fedsim.configuration.campaign import RunConfig
from fedsim.federation.runs import run_directory, spending
from fedsim.federation.runs.batches import Batches
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.server import checkpoint
from fedsim.game import challenge, federation, one_run
from fedsim.game.challenge import Challenge
from fedsim.game.federation import Federation
from fedsim.game.mechanisms import fixed_point, privacy
from fedsim.game.mechanisms.vantages import measured
from fedsim.game.observers import at_server, released_model
from fedsim.game.observers.memory import POPULATION
from fedsim.learning.data import distribution
from fedsim.learning.training import models, schedules
from fedsim.learning.training.optimizers import ServerOptimizer
from fedsim.privacy import identifiability
from fedsim.privacy.accounting import accountant
from fedsim.privacy.trust import Vantage


@dataclass(frozen=True)
class Plan:
    """The decisions before the first round of a run."""

    config: Config
    noise_multiplier: float
    rounds: int
    batches: tuple[range, ...]

    @property
    def path(self) -> Path:
        """The run directory, which may not exist yet."""
        return Path(self.config.run.out)

    def challenge(self, searched: Callable[[float], None] | None = None) -> Challenge:
        """Return the target and the adversary, which are searched for once in a process."""
        config, rounds = self.config, self.config.training.rounds
        chosen = challenge.choose(config, searched)
        joining = map(config.participation.participants, range(1, rounds + 1))
        if chosen is not challenge.NOBODY and not any(chosen.client in each for each in joining):
            raise InputError(
                f"with this run.seed, client {chosen.client}, which holds the target, joins none "
                f"of the {rounds} rounds; choose another with challenge.client, or take more "
                "rounds or another seed"
            )
        return chosen

    def federation(self) -> Federation:
        """Return the data, the model and the device, with work in blocks that fit in memory.

        Raises InputError if one example does not fit.
        """
        config = self.config
        loaded = federation.load(config)
        if not len(loaded.client_of):  # clients have their own records, and the server has none
            return loaded
        sampled = config.training.sampling_rate < 1
        loaded.cut(config.trials.batch, sampled)
        return loaded

    def digest(self, client: int, records: bool) -> str:
        """Return the digest of a client's data, as `federation.digest` does."""
        return federation.digest(self.config, client, records)

    def begin(self, searched: Callable[[float], None] | None = None) -> RunDirectory:
        """Search for the target, and return the run directory, which is created if missing."""
        self.challenge(searched)
        return RunDirectory.create(self.path, self.config)

    def left(self, directory: RunDirectory) -> "Plan":
        """Return the plan of the work that a directory's finished batches leave."""
        kept = checkpoint.read_checkpoint(directory)
        done = 0 if kept is None else kept.round
        batches = Batches(self.config, directory)
        rounds = spending.planned_rounds(batches, self.noise_multiplier, done)
        return replace(self, rounds=rounds, batches=tuple(batches.ranges()))


def prepare(config: Config, processes: int = 1) -> Plan:
    """Return the plan of an experiment. It writes nothing. Raises InputError if impossible."""
    check_possible(config)
    path = Path(config.run.out)
    if (path / "config.toml").is_file():
        size = RunDirectory.open(path).config.trials.batch
        fitting = config.with_batch(min(size, config.trials.batch or size))
    else:
        fitting = fit_batch(config, processes)
    run_directory.holds_run(path, fitting)
    return preflight(fitting)


def preflight(config: Config) -> Plan:
    """Return the plan of a checked experiment whose batches fit in memory.

    Only this function searches for the noise multiplier.

    Raises InputError if the noise, the budget or the report is impossible.
    """
    nominal = privacy.noise_multiplier(config)
    made = Plan(config, nominal, config.training.rounds, tuple(Batches(config).ranges()))
    check_rounding(config, nominal, models.size(made.federation().model))
    # The bounds of the report may be impossible, so compute them before the training.
    mechanism = privacy.mechanism(config, nominal)
    identifiability.bounds(mechanism, config.privacy.delta, config.privacy.accountant)
    return replace(made, rounds=spending.planned_rounds(Batches(config), nominal))


def default_directory(run: RunConfig) -> Path:
    """Return `run.out`, or a new directory under fedsim-runs/ named after experiment and time."""
    return Path(run.out) if run.out else report_directory.timed(run.name)


def check_possible(config: Config) -> None:
    """Raise InputError for a setting that would fail in the middle of a run."""
    ServerOptimizer(config.training, config.data.records)
    schedules.factor(config.training, 1)
    if config.run.job == "training":
        return
    at_server.check_seat(config)
    released_model.check_attackable(config)
    if config.canaries.count:
        one_run.check_room(config.canaries, federation.load(config))
    others = min(POPULATION, config.data.held_out)
    _check_attacks(config.audit.attacks, config.trials.count, others)


def _check_attacks(attacks: str, trials: int, others: int) -> None:
    """Raise InputError for `audit.attacks` that a run cannot play; "all" leaves them out."""
    listed = membership_attacks.chosen(attacks)
    if attacks.strip() == "all":
        return
    for name, attack in listed.items():
        if "members" in attack.needs:
            raise InputError(
                f"audit.attacks has '{name}', which compares a record with all others of its "
                "model, and which every run reports as 'yeom'; remove it here, or use fedsim "
                "attack"
            )
    membership_attacks.rehearse(listed.values(), trials, 1, others)


def check_rounding(config: Config, nominal: float, parameters: int) -> None:
    """Raise InputError if the integers of distributed trust are too coarse for its noise."""
    if config.federation.trust.model.summed_securely:
        worst = max(planned_epsilons(config, nominal).values())
        grid = fixed_point.agreed(config, nominal, parameters)
        fixed_point.check_rounding(grid, config.training.rounds, config.privacy.delta, worst)


def planned_epsilons(config: Config, nominal: float) -> dict[Vantage, float]:
    """Return epsilon at privacy.delta of all planned rounds, towards each vantage point."""
    chosen, delta = accountant(config.privacy.accountant), config.privacy.delta
    return {
        vantage: chosen.epsilon(privacy.describe(config, nominal, vantage).towards(vantage), delta)
        for vantage in Vantage
    }


def fit_batch(config: Config, processes: int = 1) -> Config:
    """Return the experiment with as many trials in a batch as fit in half of the memory."""
    dataset = distribution.dataset(config.data, config.model.weights)
    model = models.structural_model(
        partial(federation.build_model, config, dataset), config.run.seed
    )
    where = device.resolve(config.run.device)
    memory = federation.memory_limit(config.run.memory_limit, where) // processes
    # Numbers of each parameter: model, aggregate and messages; noise, optimiser, belief and
    # residuals in float64; all replies of a round. The attack on the released model replays all.
    clients = config.federation.clients
    attacked = measured(config.federation.vantage, config.audit.vantages)
    replayed = config.training.rounds if Vantage.RELEASED_MODEL in attacked else 0
    asked = min(math.ceil(config.federation.sampling_rate * clients) + 2, clients)
    numbers = 160 + 16 * asked + 4 * replayed
    each = models.size(model) * numbers
    if each > memory // 2:
        raise InputError(
            f"one trial of this model takes {readable(each)} between the rounds and as much again "
            f"for its gradients, but the limit is {readable(memory)} (run.max-memory); allow "
            "more, or choose a smaller model"
        )
    wanted, batch = config.trials.together(where.type == "cuda"), memory // 2 // each
    if batch >= min(wanted, config.trials.count):
        return config.with_batch(wanted)
    return config.with_batch(batch)
