"""What a report says of distributed trust, of missing clients and of those that collude."""

from collections.abc import Sequence
from dataclasses import replace

from fedsim.audits.results.setting import Dropouts, Rounding
from fedsim.config.federation import FederationConfig
from fedsim.config.objects import Scheme
from fedsim.federation.runs.ledger_row import Row
from fedsim.game.mechanisms import privacy, summing

IN_THE_CLEAR = "aggregated in the clear: a simulation of secure aggregation"

UNPROTECTED = (
    " Their own records have no protection: the ledger charges these clients an infinite epsilon "
    "towards the server and the participant, and bounds and budget are those of the others."
)


def rounding(scheme: Scheme, nominal: float, parameters: int, rounds: int) -> Rounding | None:
    """Return what sending integers costs, None unless trust is distributed.

    See `fedsim.game.mechanisms.fixed_point`.
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
    """Return which rounds lacked clients, over all batches of trials; None if none may lack any.

    Every batch of trials and every attempt has rounds of its own, but what the seed repeats counts
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
    found = [group.noise_multiplier for group in described.towards(federation.vantage).groups]
    return Dropouts(
        tolerated=tolerated,
        rounds_with_missing_clients=len({(row.batch, *row.place) for row in lacking}),
        fewest_shares=min(
            (row.kind.participants or 0 for row in settled), default=federation.clients
        ),
        effective_noise_multiplier=(min(found), max(found)),
    )


def cautions(
    federation: FederationConfig, cost: Rounding | None, missing: Dropouts | None
) -> list[str]:
    """Return what a reader must know of aggregation in the clear, missing clients and colluders."""
    found, colluding = [], federation.colluding
    if cost and cost.note == IN_THE_CLEAR:
        found.append(
            f"Clients' messages were {IN_THE_CLEAR}. The released sums are those of secure "
            "aggregation to the last bit, but here the server saw single messages, each under a "
            "share of the noise: what is stated towards it is as if aggregated securely."
        )
    if missing and missing.rounds_with_missing_clients:
        low, high = missing.effective_noise_multiplier
        # Under central trust the noise is the server's, of which nobody takes any along.
        noise = (
            ""
            if federation.trust.model.server_draws
            else f": the effective noise multiplier was between {low:.4g} and {high:.4g}, which "
            "the bounds count"
        )
        found.append(
            f"Clients were missing in {missing.rounds_with_missing_clients} rounds of all "
            f"batches of trials and attempts, of which the worst had {missing.fewest_shares} of "
            f"{federation.clients}{noise}."
        )
    if colluding:
        unprotected = "" if federation.trust.model.server_draws else UNPROTECTED
        found.append(
            f"{colluding} of {federation.clients} clients colluded with the adversary: the "
            f"bounds hold against as many, not against more.{unprotected}"
        )
    return found
