"""What takes arithmetic to refuse: numbers that bound each other, and one target for the noise."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from fedsim.config import targets

if TYPE_CHECKING:  # which checks itself against these
    from fedsim.config.experiment import Config


def _honest_clients(config: "Config") -> None:
    """Raise ValueError where no honest client besides that of the record may be left."""
    federation = config.federation
    clients, colluding = federation.clients, federation.colluding
    dropouts = f"federation.tolerated-dropouts is {federation.tolerated_dropouts}"
    if colluding > clients - 2:
        raise ValueError(
            f"federation.colluding is {colluding}, but of {clients} clients one is the "
            f"adversary and one holds the challenge; give 0 to {clients - 2}"
        )
    if colluding + federation.tolerated_dropouts > clients - 2:
        raise ValueError(
            f"{dropouts}, but with the adversary and {colluding} colluding clients that may leave "
            f"no honest one of {clients}; give 0 to {clients - 2 - colluding}"
        )
    # A server that asked one half for keys and the other half for seeds would unmask a client.
    if federation.secure_aggregation == "secagg+" and 2 * federation.fewest_participants <= clients:
        raise ValueError(
            f"{dropouts}, but secagg+ keeps messages secret only while more than half of {clients} "
            f"clients must answer; give 0 to {(clients - 1) // 2}"
        )


def _one_target(config: "Config") -> None:
    """Raise ValueError unless exactly one number says how much noise there is."""
    privacy = config.privacy
    values = privacy.model_dump(by_alias=True)
    given = targets.given({f"{targets.TABLE}.{name}": value for name, value in values.items()})
    if not given:
        raise ValueError(
            "privacy.rho-beta, privacy.rho-alpha, privacy.epsilon, privacy.noise-multiplier "
            "and privacy.mutual-information are all 0; give one of them, for example "
            "privacy.rho-beta = 0.9"
        )
    if len(given) > 1:
        raise ValueError(
            f"{' and '.join(given)} are both set, but one decides the other; set one of them "
            f"to 0, for example {given[0]}=0"
        )
    if 0 < privacy.rho_beta <= 0.5:
        raise ValueError(
            f"privacy.rho-beta is {privacy.rho_beta}, but a belief of 0.5 is a coin's; "
            "give a bound above 0.5 and below 1"
        )


def _clients_and_records(config: "Config") -> None:
    """Raise ValueError for a client or a record that there is not."""
    clients, records = config.federation.clients, config.data.records
    numbered = f"but the clients are numbered 0 to {clients - 1}"
    for key, client in (
        ("federation.adversary", config.federation.adversary),
        ("challenge.client", config.challenge.client),
    ):
        if client >= clients:
            raise ValueError(
                f"{key} is {client}, {numbered}; name one of them, or -1 to let fedsim choose"
            )
    for name in filter(None, (name.strip() for name in config.canaries.clients.split(","))):
        if config.canaries.count and (not name.isdecimal() or int(name) >= clients):
            raise ValueError(
                f"canaries.clients has '{name}', {numbered}; give some of them with commas "
                'between, or "" for all'
            )
    if records < clients:
        raise ValueError(
            f"data.records is {records}, fewer than the {clients} clients; each needs a record"
        )
    if config.challenge.record >= records:
        raise ValueError(
            f"challenge.record is {config.challenge.record}, but D has records 0 to {records - 1}"
        )


def _first_trials(config: "Config") -> None:
    """Raise ValueError where a campaign cannot have begun with so many trials."""
    trials = config.trials
    if trials.first > trials.count or (trials.worlds == "both" and trials.first % 2):
        raise ValueError(
            f"trials.first is {trials.first} of {trials.count} trials; give an even number below "
            "that, or 0 where the campaign was not extended"
        )


def _enough_canaries(config: "Config") -> None:
    """Raise ValueError for more canaries than there are records, or more guesses than canaries."""
    canaries, pool = config.canaries, config.data.pool
    if canaries.kind == "mislabelled" and 0 < pool < canaries.count:
        raise ValueError(
            f"canaries.count is {canaries.count} and mislabelled canaries are records of the pool, "
            f"but data.pool is {pool}; raise it to {canaries.count}, or 0 for all that is left"
        )
    if canaries.guesses > canaries.count > 0:
        raise ValueError(
            f"canaries.guesses is {canaries.guesses}, but there are {canaries.count} canaries; "
            f"give at most {canaries.count}"
        )


LIMITS: tuple[Callable[["Config"], None], ...] = (
    _honest_clients,
    _one_target,
    _first_trials,
    _clients_and_records,
    _enough_canaries,
)
"""Checked in this order, each raising ValueError with one line."""
