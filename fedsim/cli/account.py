"""`fedsim account`: what a given amount of noise guarantees, by every accountant."""

import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from fedsim import config as configuration
from fedsim import description as described
from fedsim import identifiability, ledger, pac, privacy
from fedsim.bayesian_audit import bayesian_report
from fedsim.cli import guarantees
from fedsim.cli.guarantees import (
    AsJson,
    Clients,
    LocalSteps,
    NeighbouringChoice,
    Row,
    TrustChoice,
    VantageChoice,
)
from fedsim.description import Description, Rounds
from fedsim.errors import InputError
from fedsim.mechanism import Mechanism, Neighbouring, Trust, Vantage
from fedsim.run_directory import RunDirectory

BELIEFS = np.round(np.arange(0.01, 1.0, 0.01), 2)
"""Where the curve of the worst-case belief is given."""


def account(
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="[SOURCE]",
            help="A configuration, a run directory, or a TOML file with [[rounds]] that differ; "
            "instead of --noise-multiplier and --steps.",
        ),
    ] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise standard deviation over the sensitivity of a sum.")
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="Number of rounds, k: noisy sums that leave an owner or the server."),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="Probability with which the guarantee may fail, e.g. 1/records."),
    ] = None,
    local_steps: LocalSteps = None,
    sampling_rate: Annotated[
        float | None,
        typer.Option(
            help="Probability that a record joins a step; 1: full batches.", show_default="1"
        ),
    ] = None,
    neighbouring: NeighbouringChoice = None,
    trust: TrustChoice = None,
    clients: Clients = None,
    participants: Annotated[
        int | None,
        typer.Option(help="How many owners take part in each round.", show_default="all"),
    ] = None,
    vantage: VantageChoice = None,
    prior: Annotated[
        float | None,
        typer.Option(
            help="How sure the adversary is before anything is released.", show_default="0.5"
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Draw epsilon against rounds, and the belief (SVG, PNG)."
        ),
    ] = None,
    json_: AsJson = False,
) -> None:
    """Say what a given amount of noise guarantees any one person, by every accountant.

    Example, 30 rounds with noise of 8.38 times the clipping norm:

    fedsim account --noise-multiplier 8.38 --steps 30 --delta 0.01

    Rounds that differ, or what a run really released:

    fedsim account rounds.toml --delta 1e-5

    fedsim account fedsim-runs/digits
    """
    by_hand = {
        "noise-multiplier": noise_multiplier,
        "steps": steps,
        "local-steps": local_steps,
        "sampling-rate": sampling_rate,
        "neighbouring": neighbouring,
        "clients": clients,
        "participants": participants,
    }
    if source is not None:
        given = [f"--{name}" for name, value in by_hand.items() if value is not None]
        if given:
            raise InputError(
                f"'{source}' says what {' and '.join(given)} would; give one or the other"
            )
        description, usual_vantage, usual_delta = _read(source)
        description = description if trust is None else description.under(trust)
    elif noise_multiplier is None or steps is None:
        raise InputError(
            "what mechanism? Give --noise-multiplier and --steps, a configuration, a run "
            "directory, or a file with [[rounds]]"
        )
    else:
        rounds = Rounds(
            noise_multiplier,
            steps,
            1.0 if sampling_rate is None else sampling_rate,
            1 if local_steps is None else local_steps,
            participants,
        )
        description = Description(
            (rounds,),
            neighbouring or Neighbouring.ADD_REMOVE,
            trust or Trust.CENTRAL,
            2 if clients is None else clients,
        )
        usual_vantage, usual_delta = Vantage.PARTICIPANT, None
    at, where = usual_delta if delta is None else delta, vantage or usual_vantage
    if at is None:
        raise InputError(
            "at which delta? Give the probability with which the guarantee may fail, for example "
            "--delta 1e-5"
        )
    _check_plot(plot)
    document = _document(description, where, at)
    if prior is not None:
        document["from_prior"] = _from_prior(description.towards(where), document["epsilon"], prior)
    document["bayesian"] = _bayesian(source, description, at)
    if plot is not None:
        with Console(stderr=True).status("accounting round by round"):
            document["by_round"] = _plot(description, where, at, document, plot)
    if json_:
        guarantees.print_json(document)
    else:
        _print(description, where, at, document, Console(highlight=False))
        if plot is not None:
            Console(highlight=False).print(f"Drawn: {plot}", soft_wrap=True)


def _read(source: Path) -> tuple[Description, Vantage, float | None]:
    """Return the description in a run directory or file, and what it says of vantage and delta."""
    if source.is_dir():
        directory = RunDirectory.open(source)
        config = directory.config
        description = ledger.describe_run(directory)
    else:
        try:
            tree = tomllib.loads(source.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InputError(f"cannot read '{source}': {error}") from None
        if "rounds" in tree:
            return described.load(source), Vantage.PARTICIPANT, None
        config = configuration.load(source)
        description = privacy.describe(config, privacy.noise_multiplier(config))
    return description, config.federation.vantage, config.privacy.delta


def _document(description: Description, vantage: Vantage, delta: float) -> Row:
    mechanism = description.towards(vantage)
    bounds = identifiability.bounds(mechanism, delta)
    curve = identifiability.belief_curve(mechanism, BELIEFS)
    rows = guarantees.accounted(mechanism, delta)
    return {
        **guarantees.asked(description, vantage),
        **asdict(bounds),
        "rho_alpha_by_route": identifiability.rho_alpha_by_route(mechanism, bounds.epsilon, delta),
        "note": rows[bounds.accountant]["note"],
        "accountants": rows,
        "pac": asdict(pac.guarantee(pac.mutual_information(mechanism), delta)),
        "to_whom": guarantees.to_whom(description, delta),
        "belief_curve": None
        if curve is None
        else {name: values.tolist() for name, values in asdict(curve).items()},
    }


def _from_prior(mechanism: Mechanism, epsilon: float, prior: float) -> Row:
    """Return what the bounds become for an adversary that does not start from even odds.

    Its best guess before is the likelier world, right with probability max(prior, 1 - prior).
    """
    rho_beta = identifiability.rho_beta_of_epsilon(epsilon, prior)
    before = max(prior, 1 - prior)
    information = pac.mutual_information(mechanism, prior)
    return {
        "prior": prior,
        "rho_beta": rho_beta,
        "prior_success": before,
        "mutual_information": information,
        "pac_success_bound": pac.success_bound(information, before),
    }


def _bayesian(source: Path | None, description: Description, delta: float) -> Row:
    """Return what the Bayesian accountant says of a run that gathered distances, or its refusal."""
    if source is not None and source.is_dir():
        directory = RunDirectory.open(source)
        if directory.has("transcript.npz"):
            found = bayesian_report(
                directory.config, directory.read_arrays("transcript.npz"), delta, description
            )
            if found is not None:
                return found
    return {
        "refusal": "the Bayesian accountant does not apply: it needs the distances between "
        "gradients that a run gathers; fedsim run CONFIG --set audit.bayesian-pairs=16, then "
        "fedsim account RUN_DIRECTORY"
    }


def _print(
    description: Description, vantage: Vantage, delta: float, document: Row, console: Console
) -> None:
    mechanism = description.towards(vantage)
    bounds = identifiability.bounds(mechanism, delta)
    guarantees.print_description(description, vantage, console)
    console.print(guarantees.verdict(bounds))
    console.print(guarantees.NOISE_MULTIPLIER_EXPLAINED)
    if not mechanism.noiseless:
        columns = {
            "epsilon": "epsilon",
            "rho_beta": "rho_beta",
            "tail_probability": "exceeded with",
        }
        guarantees.print_accountants(
            f"Bounds at delta {delta:g}", document["accountants"], columns, console
        )
        routes = document["rho_alpha_by_route"]
        sound = ", ".join(
            f"{name} {value:.4f}"
            for name, value in routes.items()
            if name != identifiability.THEOREM2
        )
        console.print(
            f"Advantage by the paper (Theorem 2), not a bound: {bounds.theorem2_rho_alpha:.4f}; "
            f"the bound is rho_alpha = {bounds.rho_alpha:.4f} (by {sound}). Membership inference: "
            f"at most {guarantees.cell(bounds.yeom_bound)} (Yeom, e^epsilon - 1)."
        )
        guarantees.print_pac(document["pac"], console)
        if found := document.get("from_prior"):
            console.print(
                f"From a prior belief of {found['prior']:g} rather than even odds: rho_beta "
                f"{guarantees.cell(found['rho_beta'])}; by PAC privacy, the best guess which world "
                f"it is, right with probability {found['prior_success']:g} before, is right with "
                f"at most {found['pac_success_bound']:.6f} after."
            )
    guarantees.print_bayesian(document["bayesian"], console)
    guarantees.print_to_whom(document["to_whom"], console)


def _check_plot(plot: Path | None) -> None:
    if plot is None:
        return
    if plot.suffix not in (".svg", ".png"):
        raise InputError(f"'{plot}' is neither .svg nor .png; name the figure's file so")
    if not plot.absolute().parent.is_dir():
        raise InputError(f"'{plot.parent}' is no directory; make it, or name another file")


def _plot(
    description: Description, vantage: Vantage, delta: float, document: Row, path: Path
) -> Row:
    """Draw the figure; return epsilon by round, as JSON repeats it."""
    from fedsim import figures  # noqa: PLC0415  (matplotlib is slow to import)

    names = [name for name, row in document["accountants"].items() if "refusal" not in row]
    rounds, epsilons = identifiability.epsilon_by_round(description, vantage, delta, names)
    if document["belief_curve"] is None:
        curve = None
    else:
        curve = identifiability.belief_curve(description.towards(vantage), BELIEFS)
    figure = figures.guarantee(rounds, epsilons, delta, curve, document["rho_beta"])
    drawn = figures.to_png(figure) if path.suffix == ".png" else figures.to_svg(figure).encode()
    path.write_bytes(drawn)
    return {
        "rounds": rounds.tolist(),
        "epsilon": {name: values.tolist() for name, values in epsilons.items()},
    }
