"""`fedsim calibrate` and `fedsim account`: what theory says, before there is a run."""

import json
import math
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from fedsim import identifiability
from fedsim.accounting import ACCOUNTANTS
from fedsim.calibration import noise_multiplier as least_noise
from fedsim.errors import InputError
from fedsim.identifiability import Bounds, epsilon_of_rho_beta
from fedsim.mechanism import (
    Mechanism,
    Neighbouring,
    Trust,
    Vantage,
    effective_noise_multiplier,
    nominal_noise_multiplier,
)

Delta = Annotated[float, typer.Option(help="Probability with which the bounds may fail.")]
Steps = Annotated[int, typer.Option(help="Training steps that are released, k.")]
SamplingRate = Annotated[
    float, typer.Option(help="Probability with which a record joins a step (1: full batch).")
]
NeighbouringOption = Annotated[
    Neighbouring, typer.Option(help="How D and D' differ: one record more, or one replaced.")
]
TrustOption = Annotated[Trust, typer.Option(help="Who adds the noise.")]
Clients = Annotated[int, typer.Option(help="Data owners in the federation, m.")]
VantageOption = Annotated[Vantage, typer.Option(help="What the adversary sees.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]

EXPLANATION = (
    "The noise multiplier is the standard deviation of the noise in units of the most that one "
    "record can change a released sum."
)


def calibrate(
    delta: Delta,
    steps: Steps,
    rho_beta: Annotated[
        float | None, typer.Option(help="Bound on the adversary's belief, e.g. 0.9.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Or the privacy budget itself.")] = None,
    sampling_rate: SamplingRate = 1.0,
    neighbouring: NeighbouringOption = Neighbouring.ADD_REMOVE,
    trust: TrustOption = Trust.CENTRAL,
    clients: Clients = 2,
    vantage: VantageOption = Vantage.PARTICIPANT,
    accountant: Annotated[
        str, typer.Option(help=f"Which mathematics decides: {', '.join(ACCOUNTANTS)}.")
    ] = "pld",
    json_: Json = False,
) -> None:
    """Find the least noise that keeps an adversary's belief below a bound.

    Example: fedsim calibrate --rho-beta 0.9 --delta 0.01 --steps 30
    """
    if (rho_beta is None) == (epsilon is None):
        raise InputError("give exactly one of --rho-beta and --epsilon")
    if rho_beta is not None:
        target = epsilon_of_rho_beta(rho_beta)
    else:
        assert epsilon is not None
        target = epsilon

    def calibrated(name: str) -> dict[str, Any]:
        effective = least_noise(target, delta, steps, sampling_rate, neighbouring, name)
        nominal = nominal_noise_multiplier(effective, trust, vantage, clients)
        mechanism = Mechanism(effective, steps, sampling_rate, neighbouring)
        return {
            "noise_multiplier": nominal,
            "effective_noise_multiplier": effective,
            "rho_alpha": identifiability.rho_alpha(mechanism),
        }

    chosen = calibrated(accountant)
    mechanism = Mechanism(chosen["effective_noise_multiplier"], steps, sampling_rate, neighbouring)
    document = {
        **_request(mechanism, trust, clients, vantage),
        **chosen,
        **asdict(identifiability.bounds(mechanism, delta, accountant)),
        # What was asked for, rather than what rounding makes of it.
        "epsilon": target,
        "rho_beta": identifiability.rho_beta_of_epsilon(target),
        "accountants": {name: _or_reason(calibrated, name) for name in ACCOUNTANTS},
    }
    if json_:
        _print_json(document)
        return
    console = Console()
    console.print(
        f"Noise multiplier [bold]{document['noise_multiplier']:.6g}[/bold] "
        f"({ACCOUNTANTS[accountant].title}) keeps the belief of an adversary with vantage "
        f"{vantage.value} below {document['rho_beta']:.4g} (epsilon {target:.4g} at delta "
        f"{delta:g}, {steps} steps), and its advantage over a coin below "
        f"{document['rho_alpha']:.4g}."
    )
    console.print(EXPLANATION, style="dim")
    table = Table("accountant", "noise multiplier", "effective", "advantage at most")
    for name, row in document["accountants"].items():
        _add_row(table, name, row, "noise_multiplier", "effective_noise_multiplier", "rho_alpha")
    console.print(table)


def account(
    noise_multiplier: Annotated[float, typer.Option(help="Noise over sensitivity, z.")],
    steps: Steps,
    delta: Delta,
    sampling_rate: SamplingRate = 1.0,
    neighbouring: NeighbouringOption = Neighbouring.ADD_REMOVE,
    trust: TrustOption = Trust.CENTRAL,
    clients: Clients = 2,
    vantage: VantageOption = Vantage.PARTICIPANT,
    json_: Json = False,
) -> None:
    """Say what a noise multiplier guarantees, by every accountant.

    Example: fedsim account --noise-multiplier 8.38 --steps 30 --delta 0.01
    """
    effective = effective_noise_multiplier(noise_multiplier, trust, vantage, clients)
    mechanism = Mechanism(effective, steps, sampling_rate, neighbouring)
    headline = identifiability.bounds(mechanism, delta)

    def accounted(name: str) -> dict[str, Any]:
        bound: Bounds = identifiability.bounds(mechanism, delta, name)
        note = ACCOUNTANTS[name].note(mechanism, delta)
        return {"epsilon": bound.epsilon, "rho_beta": bound.rho_beta} | (
            {"note": note} if note else {}
        )

    document = {
        **_request(mechanism, trust, clients, vantage),
        "noise_multiplier": noise_multiplier,
        "effective_noise_multiplier": effective,
        **asdict(headline),
        "accountants": {name: _or_reason(accounted, name) for name in ACCOUNTANTS},
    }
    if json_:
        _print_json(document)
        return
    console = Console()
    console.print(
        f"An adversary with vantage {vantage.value} (noise multiplier {effective:.6g} towards it) "
        f"has an advantage over a coin of at most [bold]{headline.rho_alpha:.4g}[/bold] after "
        f"{steps} steps; its belief stays below {headline.rho_beta:.4g}"
        + (
            f" except with probability {headline.tail_probability:.2g}."
            if headline.tail_probability is not None
            else "."
        )
    )
    console.print(EXPLANATION, style="dim")
    table = Table("accountant", f"epsilon at delta {delta:g}", "belief at most")
    for name, row in document["accountants"].items():
        _add_row(table, name, row, "epsilon", "rho_beta")
    console.print(table)
    console.print(
        f"Advantage by the paper (Theorem 2), not a bound: {headline.theorem2_rho_alpha:.4g}. "
        f"Membership inference (Yeom et al.): e^epsilon - 1 = {headline.yeom_bound:.4g}."
    )


def _request(mechanism: Mechanism, trust: Trust, clients: int, vantage: Vantage) -> dict[str, Any]:
    return {
        "steps": mechanism.steps,
        "sampling_rate": mechanism.sampling_rate,
        "neighbouring": mechanism.neighbouring.value,
        "trust": trust.value,
        "clients": clients,
        "vantage": vantage.value,
    }


def _or_reason(answer: Any, name: str) -> dict[str, Any]:
    """Return an accountant's answer, or why it has none."""
    try:
        result: dict[str, Any] = answer(name)
    except InputError as error:
        return {"note": str(error)}
    return result


def _add_row(table: Table, name: str, row: dict[str, Any], *columns: str) -> None:
    title = f"{name}: {ACCOUNTANTS[name].title}"
    cells = [f"{row[column]:.6g}" if column in row else "–" for column in columns]
    table.add_row(f"{title}\n[dim]{row['note']}[/dim]" if "note" in row else title, *cells)


def _print_json(document: dict[str, Any]) -> None:
    def finite(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: finite(item) for key, item in value.items()}
        if isinstance(value, float) and not math.isfinite(value):
            return None
        return value

    if not math.isfinite(document["epsilon"]):
        document = {**document, "note": "no noise, no guarantee: epsilon is infinite"}
    typer.echo(json.dumps(finite(document), indent=2, allow_nan=False))
