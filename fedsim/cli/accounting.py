"""`fedsim calibrate` and `fedsim account`: what theory promises, before there is a run."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedsim import identifiability
from fedsim.accounting import ACCOUNTANTS
from fedsim.accounting import accountant as find_accountant
from fedsim.calibration import noise_multiplier as least_noise_multiplier
from fedsim.errors import InputError
from fedsim.identifiability import Bounds
from fedsim.mechanism import (
    Mechanism,
    Neighbouring,
    Trust,
    Vantage,
    effective_noise_multiplier,
    nominal_noise_multiplier,
)
from fedsim.strict_json import strict_json

Row = dict[str, Any]

Delta = Annotated[
    float, typer.Option(help="Probability with which the guarantee may fail, e.g. 1/records.")
]
Steps = Annotated[
    int, typer.Option(help="Number of rounds, k: noisy sums that leave an owner or the server.")
]
LocalSteps = Annotated[
    int,
    typer.Option(
        help="Noisy steps that every owner takes on its own model in each round; steps x "
        "local-steps are accounted. More than 1 needs --trust local."
    ),
]
SamplingRate = Annotated[
    float, typer.Option(help="Probability that a record joins a step; 1 means full batches.")
]
NeighbouringChoice = Annotated[
    Neighbouring, typer.Option(help="The two worlds differ by a missing or by a replaced record.")
]
TrustChoice = Annotated[
    Trust, typer.Option(help="Who adds noise: the server, every owner its own, or owners a share.")
]
Clients = Annotated[int, typer.Option(help="Number of data owners, m.")]
VantageChoice = Annotated[Vantage, typer.Option(help="Where the adversary sits.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, nothing else.")]

NOISE_MULTIPLIER_EXPLAINED = (
    "The noise multiplier is how much noise is added to each sum: its standard deviation, in units "
    "of the most that one person's record can change that sum."
)


def calibrate(
    delta: Delta,
    steps: Steps,
    rho_beta: Annotated[
        float | None,
        typer.Option(help="How sure the adversary may become of one person: 0.5 to 1."),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="The same bound as epsilon, instead of --rho-beta.")
    ] = None,
    local_steps: LocalSteps = 1,
    sampling_rate: SamplingRate = 1.0,
    neighbouring: NeighbouringChoice = Neighbouring.ADD_REMOVE,
    trust: TrustChoice = Trust.CENTRAL,
    clients: Clients = 2,
    vantage: VantageChoice = Vantage.PARTICIPANT,
    accountant: Annotated[
        str, typer.Option(help=f"Method of accounting: {', '.join(ACCOUNTANTS)}.")
    ] = "pld",
    json_: AsJson = False,
) -> None:
    """Find the least noise that keeps an adversary unsure enough of any one person.

    Example, 30 rounds after which nobody is more than 90 % sure of anyone:

    fedsim calibrate --rho-beta 0.9 --delta 0.01 --steps 30
    """
    target = _target_epsilon(rho_beta, epsilon)
    # Refuse what makes no sense before the search for the noise, whose answer it would not use.
    nominal_noise_multiplier(1.0, trust, vantage, clients, local_steps)
    composed = steps * local_steps

    def calibrated(name: str) -> Row:
        effective = least_noise_multiplier(
            target, delta, composed, sampling_rate, neighbouring, name
        )
        mechanism = Mechanism.alike(effective, composed, sampling_rate, neighbouring)
        return {
            "noise_multiplier": nominal_noise_multiplier(
                effective, trust, vantage, clients, local_steps
            ),
            "effective_noise_multiplier": effective,
            "rho_alpha": identifiability.rho_alpha(mechanism),
            "note": ACCOUNTANTS[name].note(mechanism, delta),
        }

    chosen = calibrated(find_accountant(accountant).name)
    rows = {
        name: chosen if name == accountant else _or_reason(calibrated, name) for name in ACCOUNTANTS
    }
    effective = chosen["effective_noise_multiplier"]
    bounds = identifiability.bounds(
        Mechanism.alike(effective, composed, sampling_rate, neighbouring), delta, accountant
    )
    document = {
        "noise_multiplier": chosen["noise_multiplier"],
        "effective_noise_multiplier": effective,
        **asdict(bounds),
        "epsilon": target,  # as asked; bounds.epsilon differs in the last digits
        "rho_beta": identifiability.rho_beta_of_epsilon(target),
        **_request(steps, local_steps, sampling_rate, neighbouring, trust, vantage, clients),
        "note": chosen["note"],
        "accountants": rows,
    }
    if json_:
        _print_json(document)
        return
    console = Console(highlight=False)
    console.print(
        f"Noise multiplier [bold]{chosen['noise_multiplier']:.6g}[/bold] "
        f"({_effective(effective, trust, vantage, clients)})."
    )
    _print_local_steps(steps, local_steps, console)
    console.print(_verdict(target, bounds))
    console.print(NOISE_MULTIPLIER_EXPLAINED)
    _print_table(
        "The same request by every accountant",
        rows,
        {
            "noise_multiplier": "noise multiplier",
            "effective_noise_multiplier": "effective",
            "rho_alpha": "rho_alpha",
        },
        console,
    )


def account(
    noise_multiplier: Annotated[
        float, typer.Option(help="Noise standard deviation over the sensitivity of a sum, z.")
    ],
    steps: Steps,
    delta: Delta,
    local_steps: LocalSteps = 1,
    sampling_rate: SamplingRate = 1.0,
    neighbouring: NeighbouringChoice = Neighbouring.ADD_REMOVE,
    trust: TrustChoice = Trust.CENTRAL,
    clients: Clients = 2,
    vantage: VantageChoice = Vantage.PARTICIPANT,
    json_: AsJson = False,
) -> None:
    """Say what a given amount of noise guarantees any one person, by every accountant.

    Example, 30 rounds with noise of 8.38 times the clipping norm:

    fedsim account --noise-multiplier 8.38 --steps 30 --delta 0.01
    """
    effective = effective_noise_multiplier(noise_multiplier, trust, vantage, clients, local_steps)
    mechanism = Mechanism.alike(effective, steps * local_steps, sampling_rate, neighbouring)
    bounds = identifiability.bounds(mechanism, delta)

    def accounted(name: str) -> Row:
        bound = identifiability.bounds(mechanism, delta, name)
        return {
            "epsilon": bound.epsilon,
            "rho_beta": bound.rho_beta,
            "tail_probability": bound.tail_probability,
            "theorem2_rho_alpha": bound.theorem2_rho_alpha,
            "note": ACCOUNTANTS[name].note(mechanism, delta),
        }

    rows = {name: _or_reason(accounted, name) for name in ACCOUNTANTS}
    document = {
        "noise_multiplier": noise_multiplier,
        "effective_noise_multiplier": effective,
        **asdict(bounds),
        **_request(steps, local_steps, sampling_rate, neighbouring, trust, vantage, clients),
        "note": rows[bounds.accountant]["note"],
        "accountants": rows,
    }
    if json_:
        _print_json(document)
        return
    console = Console(highlight=False)
    console.print(
        f"Noise multiplier [bold]{noise_multiplier:.6g}[/bold] "
        f"({_effective(effective, trust, vantage, clients)})."
    )
    if math.isinf(bounds.epsilon):
        console.print("[bold]No protection[/bold]: nothing hides a record from an adversary there.")
        console.print(NOISE_MULTIPLIER_EXPLAINED)
        return
    _print_local_steps(steps, local_steps, console)
    console.print(_verdict(bounds.epsilon, bounds))
    console.print(NOISE_MULTIPLIER_EXPLAINED)
    columns = {
        "epsilon": "epsilon",
        "rho_beta": "rho_beta",
        "tail_probability": "exceeded with",
    }
    _print_table(f"Bounds at delta {delta:g}", rows, columns, console)
    console.print(
        f"Advantage by the paper (Theorem 2), not a bound: {bounds.theorem2_rho_alpha:.4f}; "
        f"the bound is rho_alpha = {bounds.rho_alpha:.4f}."
    )


def _target_epsilon(rho_beta: float | None, epsilon: float | None) -> float:
    if rho_beta is not None and epsilon is None:
        return identifiability.epsilon_of_rho_beta(rho_beta)
    if epsilon is not None and rho_beta is None:
        return epsilon
    raise InputError("give exactly one of --rho-beta and --epsilon, for example --rho-beta 0.9")


def _request(
    steps: int,
    local_steps: int,
    sampling_rate: float,
    neighbouring: Neighbouring,
    trust: Trust,
    vantage: Vantage,
    clients: int,
) -> Row:
    return {
        "steps": steps,
        "local_steps": local_steps,
        "sampling_rate": sampling_rate,
        "neighbouring": neighbouring.value,
        "trust": trust.value,
        "vantage": vantage.value,
        "clients": clients,
    }


def _or_reason(answer: Callable[[str], Row], name: str) -> Row:
    """Return an accountant's row, or a row with only its reason for refusing."""
    try:
        return answer(name)
    except InputError as reason:
        return {"refusal": str(reason)}


def _effective(effective: float, trust: Trust, vantage: Vantage, clients: int) -> str:
    return (
        f"{effective:.6g} towards the vantage {vantage.value}, with {trust.value} trust and "
        f"{clients} clients"
    )


def _verdict(epsilon: float, bounds: Bounds) -> str:
    rho_beta, tail = identifiability.rho_beta_of_epsilon(epsilon), bounds.tail_probability
    return (
        f"An adversary there becomes at most {100 * rho_beta:.6g} % sure that a given person's "
        f"record was used (rho_beta; epsilon {epsilon:.6g} at delta {bounds.delta:g})"
        f"{'' if tail is None else f', except with probability {tail:.3g}'}, and tells the two "
        "worlds apart with an advantage over guessing of at most "
        f"{bounds.rho_alpha:.4f} (rho_alpha)."
    )


def _print_local_steps(steps: int, local_steps: int, console: Console) -> None:
    if local_steps > 1:
        console.print(
            f"{steps} rounds of {local_steps} local steps: {steps * local_steps} noisy steps are "
            "accounted, as if every one were released under its owner's noise alone."
        )


def _print_table(
    title: str, rows: Mapping[str, Row], columns: Mapping[str, str], console: Console
) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column("accountant")
    for heading in columns.values():
        table.add_column(heading, justify="right")
    for name, row in rows.items():
        cells = (row.get(key) for key in columns)
        table.add_row(
            Text(f"{name}: {ACCOUNTANTS[name].title}"),
            *("–" if cell is None else f"{cell:.6g}" for cell in cells),
        )
    console.print(table)
    for name, row in rows.items():
        if "refusal" in row:
            console.print(Text(row["refusal"]))
        elif row["note"]:
            console.print(Text(f"{name}: {row['note']}"))


def _print_json(document: Row) -> None:
    typer.echo(json.dumps(strict_json(document), indent=2, allow_nan=False))
