"""The mechanism that a configuration describes, at each vantage."""

from collections import Counter
from dataclasses import replace
from functools import lru_cache

from fedsim.configuration import Config
from fedsim.privacy.accounting import accountant
from fedsim.privacy.mechanism import Mechanism
from fedsim.privacy.participation.rule import History
from fedsim.privacy.releases import Releases, Rounds
from fedsim.privacy.trust import Vantage


def noise_multiplier(config: Config) -> float:
    """Return the nominal noise multiplier, sigma over the sensitivity.

    A target holds at the configured vantage, with the configured colluding clients, and with as
    many clients missing as are tolerated. Raises InputError if no noise multiplier reaches it.
    """
    if config.privacy.noise_multiplier:
        return config.privacy.noise_multiplier
    from fedsim.game.mechanisms import calibrating  # noqa: PLC0415  (targets only, before a run)

    return calibrating.least_nominal(config, _histories(config), _releases)


def describe(config: Config, nominal: float, vantage: Vantage | None = None) -> Releases:
    """Return all planned rounds of the worst-off client towards a vantage."""
    first, *others = _histories(config)
    described = _releases(config, nominal, first)
    if not (others and nominal and config.training.clipping):
        return described
    seen_by, privacy = vantage or config.federation.vantage, config.privacy
    chosen_accountant = accountant(privacy.accountant)

    def epsilon(releases: Releases) -> float:
        return chosen_accountant.epsilon(releases.towards(seen_by), privacy.delta)

    return max((described, *(_releases(config, nominal, each) for each in others)), key=epsilon)


def _histories(config: Config) -> tuple[History, ...]:
    """Return the planned rounds of clients, one of which loses the most privacy."""
    rule, rounds = config.participation, config.training.rounds
    if not rule.varying:
        return (((rule.shares(1), rounds),),)
    from fedsim.privacy.participation import histories  # noqa: PLC0415  (sampled clients only)

    return histories.histories(rule, rounds)


def _releases(config: Config, nominal: float, history: History) -> Releases:
    federation, training = config.federation, config.training
    rounds = tuple(
        Rounds(
            nominal if training.clipping else 0.0,
            count,
            config.participation.rate,
            training.local_steps,
            None if present == federation.clients else present,
        )
        for present, count in history
    )
    return Releases(
        rounds,
        config.privacy.neighbouring,
        federation.trust,
        federation.clients,
        training.clipping_norm,
        federation.colluding,
        federation.summed_in_the_clear,
        config.participation.joining_rate,
    )


def mechanism(config: Config, nominal: float) -> Mechanism:
    """Return the mechanism between the configured vantage and the target, by all noisy steps."""
    return describe(config, nominal).towards(config.federation.vantage)


ROUNDING = 1e-12
"""Relative excess over a limit that is rounding, where noise is calibrated to the limit."""

Counts = Counter[Rounds]
"""Number of rounds of each kind; the kinds have count 1."""


def adds_up(noise_source: str) -> bool:
    """Return whether all trainings of a run are one release, which a guarantee may cover."""
    return noise_source == "system"


def times(counts: Counts, trainings: int) -> Counts:
    """Return the rounds of several trainings."""
    return Counter({kind: count * trainings for kind, count in counts.items()})


def described(config: Config, counts: Counts) -> Releases:
    """Return the releases of a federation in some rounds."""
    rounds = (replace(kind, count=count) for kind, count in counts.items())
    return replace(describe(config, 0.0), rounds=tuple(rounds))


def epsilon_of(config: Config, counts: Counts, vantage: Vantage) -> float:
    """Return epsilon of rounds at privacy.delta by privacy.accountant; infinite without noise."""
    if not counts:
        return 0.0
    mechanism = described(config, counts).towards(vantage)
    return _epsilon(mechanism, config.privacy.delta, config.privacy.accountant)


def running_epsilon(config: Config, counts: Counts, total: Counts, vantage: Vantage) -> float:
    """Return an upper bound on epsilon after some rounds of a training, exact at its end.

    Counts are rounded up by `rounded_up`. Where records are sampled, and so are the clients that
    add noise, all rounds count as the one with the least noise, for fewer slow evaluations.
    """
    if counts == total:
        return epsilon_of(config, counts, vantage)
    # Rounding up may exceed the plan of all rounds; its exact epsilon is then the smaller bound.
    within_total = counts <= total
    if config.participation.varying and config.participation.secret:
        shares = [kind.participants for kind in (*counts, *total)]
        fewest = min((share for share in shares if share is not None), default=None)
        alike: Counts = Counter()
        for kind, count in counts.items():
            alike[replace(kind, participants=fewest)] += count
        counts = alike
    elif not within_total:
        return epsilon_of(config, counts, vantage)
    more = Counter({kind: rounded_up(count) for kind, count in counts.items()})
    bound = epsilon_of(config, more, vantage)
    return min(bound, epsilon_of(config, total, vantage)) if within_total else bound


def at_vantages(config: Config, counts: Counts, total: Counts) -> dict[str, float]:
    """Return the `running_epsilon` of every vantage, by name."""
    return {vantage.value: running_epsilon(config, counts, total, vantage) for vantage in Vantage}


def within(config: Config, counts: Counts, limit: float) -> bool:
    """Return whether some rounds keep epsilon within a limit at the configured vantage."""
    return epsilon_of(config, counts, config.federation.vantage) <= limit * (1 + ROUNDING)


def rounded_up(count: int) -> int:
    """Return a count of rounds, rounded up by at most 1/16 if it is above 16."""
    # Keep the five leading bits, so that few different counts need an evaluation.
    unit = 1 << max(0, count.bit_length() - 5)
    return -(-count // unit) * unit


@lru_cache(maxsize=8192)
def _epsilon(mechanism: Mechanism, delta: float, accountant_name: str) -> float:
    return accountant(accountant_name).epsilon(mechanism, delta)
