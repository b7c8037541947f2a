"""The options of `fedsim account` and `fedsim calibrate`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fedsim.cli.options import CLIENTS, ROUNDS, Delta, bundled
from fedsim.privacy.accounting import ACCOUNTANTS
from fedsim.privacy.mechanism import Neighbouring
from fedsim.privacy.trust import Trust
from fedsim.privacy.trust.model import Vantage

LocalSteps = Annotated[
    int | None,
    typer.Option(
        help="Number of noisy local steps of each client in each round. The accounting covers "
        "rounds x local-steps steps. More than 1 needs --trust local.",
        show_default="1",
    ),
]
NeighbouringChoice = Annotated[
    Neighbouring | None,
    typer.Option(
        help="Difference between the two worlds: a missing record (add-remove) or a "
        "replaced one (replace).",
        show_default="add-remove",
    ),
]
TrustChoice = Annotated[
    Trust | None,
    typer.Option(
        help="Party that adds the noise: the server (central), each client to its own "
        "message (local), or each client a share of it (distributed).",
        show_default="central",
    ),
]
Clients = Annotated[int | None, typer.Option(help=f"{CLIENTS}.", show_default="2")]
Colluding = Annotated[
    int | None,
    typer.Option(
        help="Number of other clients that disclose their noise, at most m - 2.", show_default="0"
    ),
]
VantageChoice = Annotated[
    Vantage | None, typer.Option(help="Vantage point of the adversary.", show_default="participant")
]

Source = Annotated[
    Path | None,
    typer.Argument(
        metavar="[SOURCE]",
        help="Configuration, run directory, or TOML file with different [[rounds]]. "
        "Replaces --noise-multiplier and --rounds.",
        callback=bundled,
    ),
]
NoiseMultiplierGiven = Annotated[
    float | None,
    typer.Option(help="Standard deviation of the noise, divided by the sensitivity of a sum."),
]
RoundsGiven = Annotated[
    int | None, typer.Option(help=f"{ROUNDS}: noisy sums that a client or the server releases.")
]
SamplingRateGiven = Annotated[
    float | None,
    typer.Option(help="Probability that a record joins a step. 1: full batches.", show_default="1"),
]
Participants = Annotated[
    int | None, typer.Option(help="Number of clients in each round.", show_default="all")
]
Plot = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Figure of epsilon by round and of the belief (.svg or .png)."
    ),
]

RhoBeta = Annotated[
    float | None,
    typer.Option(help="Largest belief of the adversary about one person, 0.5 to 1."),
]
RhoAlpha = Annotated[
    float | None, typer.Option(help="Largest advantage of the adversary over guessing, 0 to 1.")
]
Epsilon = Annotated[float | None, typer.Option(help="Epsilon to reach. Replaces --rho-beta.")]
MaxRisk = Annotated[
    float | None,
    typer.Option(help="Largest success of any attack with the release, such as 0.005."),
]
BaselineRisk = Annotated[
    float | None,
    typer.Option(
        help="Success of an attack without the release, such as 0.001 for naming one of 1,000 "
        "people. Default: 0.001."
    ),
]
RoundsSought = Annotated[
    int | None,
    typer.Option(help=f"{ROUNDS}. To compute it, leave it out and give --noise-multiplier."),
]
NoiseMultiplierSought = Annotated[
    float | None,
    typer.Option(
        help="Standard deviation of the noise, divided by the sensitivity. To compute it, "
        "leave it out."
    ),
]
SamplingRateSought = Annotated[
    float | None,
    typer.Option(
        help="Probability that a record joins a step. 1: full batches. To compute it, leave "
        "it out and give --noise-multiplier and --rounds.",
        show_default="1",
    ),
]
Accountant = Annotated[str, typer.Option(help=f"Accountant: {', '.join(ACCOUNTANTS)}.")]


@dataclass(frozen=True)
class GivenMechanism:
    """The mechanism to account for, by hand or beside a source."""

    noise_multiplier: NoiseMultiplierGiven = None
    rounds: RoundsGiven = None
    delta: Delta = None
    local_steps: LocalSteps = None
    sampling_rate: SamplingRateGiven = None
    neighbouring: NeighbouringChoice = None
    trust: TrustChoice = None
    clients: Clients = None
    participants: Participants = None
    colluding: Colluding = None
    vantage: VantageChoice = None


@dataclass(frozen=True)
class SoughtMechanism:
    """A mechanism without the number to compute."""

    rounds: RoundsSought = None
    noise_multiplier: NoiseMultiplierSought = None
    local_steps: LocalSteps = None
    sampling_rate: SamplingRateSought = None
    neighbouring: NeighbouringChoice = None
    trust: TrustChoice = None
    clients: Clients = None
    colluding: Colluding = None
    vantage: VantageChoice = None
