"""Distributed trust, missing clients and colluding clients in a run's report."""

from collections.abc import Sequence
from dataclasses import replace

from fedsim.audits.results.setting import Dropouts, Rounding
from fedsim.config.federation import FederationConfig
from fedsim.config.objects import Scheme
from fedsim.federation.runs.ledger_row import Row
from fedsim.game.mechanisms import privacy, summing

IN_THE_CLEAR = "aggregated in the clear: a simulation of secure aggregation"

UNPROTECTED = (
    " The records of the colluding clients have no protection. The ledger charges these clients an "
    "infinite epsilon towards the server and the participant; bounds and budget are of the others."
)


def rounding(scheme: Scheme, nominal: float, parameters: int, rounds: int) -> Rounding | None:
    """Return the cost of sending integers (`fedsim.game.mechanisms.fixed_point`).

    None unless trust is distributed.
    """
    grid = summing.grid(scheme, nominal, parameters)
    if grid is None:
        return None
    aggregation = scheme.federation.secure_aggregation
    return Rounding(
        secure_aggregation=aggregation,
        note=IN_THE_CLEAR if aggregation == "simulated" else "aggregated by Flower's SecAgg+",
        step=grid.step,
        bits=grid.bits,
        limit=grid.limit,
        sensitivity=grid.sensitivity,
        relative_growth=grid.growth,
        total_variation=grid.total_variation(rounds),
    )


def dropouts(scheme: Scheme, nominal: float, rows: Sequence[Row]) -> Dropouts | None:
    """Return the rounds with missing clients, over all batches of trials; None if none may miss.

    Each batch of trials and each attempt has its own rounds. Rounds that the seed repeats count
    once.
    """
    federation = scheme.federation
    tolerated = federation.tolerated_dropouts
    if not tolerated:
        return None
    settled = [row for row in rows if not row.provisional]
    lacking = [row for row in settled if row.kind.participants != len(row.participants)]
    kinds = tuple(replace(row.kind, count=1) for row in settled) or None
    described = privacy.describe(scheme, nominal)
    if kinds is not None:
        described = replace(described, rounds=tuple(dict.fromkeys(kinds)))
    multipliers = [group.noise_multiplier for group in described.towards(federation.vantage).groups]
    return Dropouts(
        tolerated=tolerated,
        rounds_with_missing_clients=len({(row.batch, *row.place) for row in lacking}),
        fewest_shares=min(
            (row.kind.participants or 0 for row in settled), default=federation.clients
        ),
        effective_noise_multiplier=(min(multipliers), max(multipliers)),
    )


def cautions(
    federation: FederationConfig, cost: Rounding | None, missing: Dropouts | None
) -> list[str]:
    """Return the cautions about aggregation in the clear, missing clients and colluding clients."""
    texts, colluding = [], federation.colluding
    if cost and cost.note == IN_THE_CLEAR:
        texts.append(
            f"Clients' messages were {IN_THE_CLEAR}. The released sums equal those of secure "
            "aggregation to the last bit. But here the server saw single messages, each with only "
            "a share of the noise. The numbers towards the server assume secure aggregation."
        )
    if missing and missing.rounds_with_missing_clients:
        low, high = missing.effective_noise_multiplier
        # With central trust the server adds the noise, so that a missing client takes none away.
        noise = (
            ""
            if federation.trust.model.server_draws
            else f" The effective noise multiplier was between {low:.4g} and {high:.4g}; the "
            "bounds use it."
        )
        texts.append(
            f"Clients were missing in {missing.rounds_with_missing_clients} rounds of all "
            f"batches of trials and attempts. The worst round had {missing.fewest_shares} of "
            f"{federation.clients} clients.{noise}"
        )
    if colluding:
        unprotected = "" if federation.trust.model.server_draws else UNPROTECTED
        texts.append(
            f"{colluding} of {federation.clients} clients colluded with the adversary. The bounds "
            f"hold against that many colluding clients, and not against more.{unprotected}"
        )
    return texts
