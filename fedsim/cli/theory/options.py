"""The options of `fedsim account` and `fedsim calibrate`."""

from pathlib import Path
from typing import Annotated

import typer

from fedsim.cli.options import CLIENTS, DELTA, DELTA_DEFAULT, ROUNDS, bundled
from fedsim.privacy.accounting import ACCOUNTANTS
from fedsim.privacy.mechanism import Neighbouring
from fedsim.privacy.trust import Trust
from fedsim.privacy.trust.model import Vantage

LocalSteps = Annotated[
    int | None,
    typer.Option(
        help="Noisy steps that every client takes on its own model in each round; steps x "
        "local-steps are accounted. More than 1 needs --trust local.",
        show_default="1",
    ),
]
NeighbouringChoice = Annotated[
    Neighbouring | None,
    typer.Option(
        help="The two worlds differ by a missing or by a replaced record.",
        show_default="add-remove",
    ),
]
TrustChoice = Annotated[
    Trust | None,
    typer.Option(
        help="Who adds noise: the server, every client its own, or clients a share.",
        show_default="central",
    ),
]
Clients = Annotated[int | None, typer.Option(help=f"{CLIENTS}.", show_default="2")]
Colluding = Annotated[
    int | None,
    typer.Option(
        help="How many other clients disclose their noise; at most m - 2.", show_default="0"
    ),
]
VantageChoice = Annotated[
    Vantage | None, typer.Option(help="Where the adversary sits.", show_default="participant")
]

Source = Annotated[
    Path | None,
    typer.Argument(
        metavar="[SOURCE]",
        help="A configuration, a run directory, or a TOML file with [[rounds]] that differ; "
        "instead of --noise-multiplier and --rounds.",
        callback=bundled,
    ),
]
NoiseMultiplierGiven = Annotated[
    float | None, typer.Option(help="Noise standard deviation over the sensitivity of a sum.")
]
RoundsGiven = Annotated[
    int | None,
    typer.Option(help=f"{ROUNDS}: noisy sums that leave a client or the server."),
]
SamplingRateGiven = Annotated[
    float | None,
    typer.Option(help="Probability that a record joins a step; 1: full batches.", show_default="1"),
]
Participants = Annotated[
    int | None,
    typer.Option(help="How many clients take part in each round.", show_default="all"),
]
Prior = Annotated[
    float | None,
    typer.Option(help="How sure the adversary is before anything is released.", show_default="0.5"),
]
Plot = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Draw epsilon against rounds, and the belief (SVG, PNG)."),
]

RhoBeta = Annotated[
    str | None,
    typer.Option(
        metavar="BELIEF",
        help="How sure the adversary may become of one person: 0.5 to 1. Several with commas "
        "compare the paper's noise with the tight one.",
    ),
]
RhoAlpha = Annotated[
    float | None,
    typer.Option(help="By how much it may do better than guessing: 0 to 1."),
]
Epsilon = Annotated[
    float | None, typer.Option(help="The bound on belief as epsilon, instead of --rho-beta.")
]
MutualInformation = Annotated[
    float | None,
    typer.Option(
        help="Information about the world that all rounds may release, in nats (PAC privacy): 0 to "
        "0.69. Bounds an average, and is no DP guarantee."
    ),
]
Deltas = Annotated[
    str | None,
    typer.Option(metavar="DELTA", help=f"{DELTA} Several with commas.", show_default=DELTA_DEFAULT),
]
RoundsSought = Annotated[
    int | None,
    typer.Option(help=f"{ROUNDS}. Leave it out beside --noise-multiplier to have it found."),
]
NoiseMultiplierSought = Annotated[
    float | None,
    typer.Option(
        help="Noise standard deviation over the sensitivity. Leave it out to have it found."
    ),
]
SamplingRateSought = Annotated[
    float | None,
    typer.Option(
        help="Probability that a record joins a step; 1: full batches. Leave it out "
        "beside --noise-multiplier and --rounds to have it found.",
        show_default="1",
    ),
]
Accountant = Annotated[str, typer.Option(help=f"Method of accounting: {', '.join(ACCOUNTANTS)}.")]
