"""The options of `fedsim account`."""

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
NoiseMultiplier = Annotated[
    float | None,
    typer.Option(help="Standard deviation of the noise, divided by the sensitivity of a sum."),
]
Rounds = Annotated[
    int | None, typer.Option(help=f"{ROUNDS}: noisy sums that a client or the server releases.")
]
SamplingRate = Annotated[
    float | None,
    typer.Option(help="Probability that a record joins a step. 1: full batches.", show_default="1"),
]
Participants = Annotated[
    int | None, typer.Option(help="Number of clients in each round.", show_default="all")
]
RhoBeta = Annotated[
    float | None,
    typer.Option(
        help="Limit on the adversary's belief about one person, 0.5 to 1. A limit finds the least "
        "noise; or the most rounds, if you give the noise."
    ),
]
RhoAlpha = Annotated[
    float | None, typer.Option(help="Limit on the adversary's advantage over guessing, 0 to 1.")
]
Epsilon = Annotated[float | None, typer.Option(help="Limit on epsilon.")]
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
Accountant = Annotated[
    str | None,
    typer.Option(
        help=f"Accountant of --epsilon and --rho-beta: {', '.join(ACCOUNTANTS)}.",
        show_default="pld",
    ),
]


Halfwidth = Annotated[
    float | None,
    typer.Option(
        help="Also state the number of trials for an interval of the advantage with this halfwidth."
    ),
]


@dataclass(frozen=True)
class Mechanism:
    """The mechanism by hand or beside a source; a limit decides the number that is left out."""

    noise_multiplier: NoiseMultiplier = None
    rounds: Rounds = None
    delta: Delta = None
    local_steps: LocalSteps = None
    sampling_rate: SamplingRate = None
    neighbouring: NeighbouringChoice = None
    trust: TrustChoice = None
    clients: Clients = None
    participants: Participants = None
    colluding: Colluding = None
    vantage: VantageChoice = None


@dataclass(frozen=True)
class Target:
    """A limit on what an adversary achieves."""

    epsilon: Epsilon = None
    rho_beta: RhoBeta = None
    rho_alpha: RhoAlpha = None
    max_risk: MaxRisk = None
    baseline_risk: BaselineRisk = None
    accountant: Accountant = None
