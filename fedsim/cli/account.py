"""`fedsim account`: what a given amount of noise guarantees, by every accountant."""

import math
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.text import Text

from fedsim import config as configuration
from fedsim import description as described
from fedsim import guarantee, identifiability, ledger, pac, privacy, reading, run_transcript
from fedsim.bayesian_audit import bayesian_report
from fedsim.cli import guarantees
from fedsim.cli.guarantees import (
    AsJson,
    Clients,
    Colluding,
    LocalSteps,
    NeighbouringChoice,
    Row,
    TrustChoice,
    VantageChoice,
)
from fedsim.cli.terminal import Terminal
from fedsim.config import Config
from fedsim.description import Description, Rounds
from fedsim.errors import InputError
from fedsim.identifiability import Bounds
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
    colluding: Colluding = None,
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
        supposed: Row = {"trust": trust, "colluders": colluding}
        given_too = {name: value for name, value in supposed.items() if value is not None}
        subject = _read(source, given_too)
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
        subject = _Subject(
            Description(
                (rounds,),
                neighbouring or Neighbouring.ADD_REMOVE,
                trust or Trust.CENTRAL,
                2 if clients is None else clients,
                colluders=colluding or 0,
            )
        )
    config, description = subject.config, subject.released
    at, where = subject.delta if delta is None else delta, vantage or subject.vantage
    if at is None:
        raise InputError(
            "at which delta? Give the probability with which the guarantee may fail, for example "
            "--delta 1e-5"
        )
    _check_plot(plot)
    bounds = identifiability.bounds(description.towards(where), at)
    document = _document(description, where, bounds)
    by_pac = config is not None and config.privacy.noise == "pac"
    if config is not None:
        _label(document, source, config, subject, at, where)
    if prior is not None:
        if by_pac:
            raise InputError(
                "--prior restates bounds of DP, but PAC noise is no DP and is shaped for the prior "
                "that privacy.pac-prior states; leave --prior out"
            )
        document["from_prior"] = _from_prior(description.towards(where), document["epsilon"], prior)
    document["bayesian"] = _bayesian(source, subject.training, at, by_pac)
    if plot is not None:
        with Terminal(stderr=True).status("accounting round by round"):
            document["by_round"] = _plot(description, where, at, document, plot)
    if json_:
        guarantees.print_json(document)
    else:
        console = Terminal(highlight=False)
        _print(description, where, bounds, document, config, console)
        if plot is not None:
            console.print(f"Drawn: {plot}", soft_wrap=True)


@dataclass(frozen=True)
class _Subject:
    """What is accounted for.

    training: what one training releases; config: None where there is none; everything: what all
    trainings of a run release, None where the noise is the seed's, and no guarantee; trainings: how
    many they are.
    """

    training: Description
    config: Config | None = None
    everything: Description | None = None
    trainings: int = 1

    @property
    def released(self) -> Description:
        """What the bounds are of."""
        return self.everything or self.training

    @property
    def delta(self) -> float | None:
        """At which delta, where nothing else is asked."""
        return None if self.config is None else self.config.privacy.delta

    @property
    def vantage(self) -> Vantage:
        """Towards whom, where nothing else is asked."""
        return Vantage.PARTICIPANT if self.config is None else self.config.federation.vantage


def _read(source: Path, supposed: Row) -> _Subject:
    """Return what a run directory, a configuration or a file with [[rounds]] is about.

    supposed: what is taken to be otherwise.
    """
    if source.is_dir():
        directory = RunDirectory.open(source)
        config = directory.config
        training, everything = ledger.describe_run(directory)
        trainings = ledger.trainings(ledger.read(directory)) or config.trials.count
    else:
        try:
            tree = reading.toml(source)
        except FileNotFoundError:
            raise InputError(f"cannot read '{source}': there is no such file") from None
        if "rounds" in tree:
            return _Subject(replace(described.load(source), **supposed))
        config = configuration.load(source)
        nominal, trainings = privacy.noise_multiplier(config), config.trials.count
        training = privacy.describe(config, nominal)
        everything = ledger.describe_everything(config, nominal, [])
    return _Subject(
        replace(training, **supposed),
        config,
        None if everything is None else replace(everything, **supposed),
        trainings,
    )


def _label(
    document: Row,
    source: Path | None,
    config: Config,
    run: _Subject,
    delta: float,
    vantage: Vantage,
) -> None:
    """Say in the document whether it is a DP guarantee, and why not, as the report of a run does.

    Notes that blame a lack of noise are replaced where something else keeps epsilon infinite.
    """
    document["unit"] = config.privacy.unit
    # Noise may be all that it should be, and yet none of it stand before the vantage asked for.
    found = guarantee.of(config, run.training, run.everything, run.trainings, delta, vantage)
    document["dp_guarantee"], document["dp_note"] = found.given, found.note
    document["released"] = found.released
    reason = _unbounded(config)
    if reason is not None:
        document["note"] = reason
        for row in (*document["accountants"].values(), *document["to_whom"]):
            if "refusal" not in row:
                row["note"] = reason
    if config.privacy.noise == "pac":
        document["pac"] = _pac(source, config, run, delta)


def _unbounded(config: Config) -> str | None:
    """Return why no epsilon is finite whatever the noise, None where it may be."""
    if config.privacy.noise == "pac":
        return "PAC noise is no multiple of a sensitivity and not DP; epsilon is infinite"
    if not config.training.clipping:
        return (
            "gradients are not clipped, so that nothing bounds what one record can change and no "
            "noise is a multiple of it; epsilon is infinite"
        )
    return None


def _pac(source: Path | None, config: Config, run: _Subject, delta: float) -> Row:
    """Return what PAC noise allows: a run's own report at this delta, or the budget."""
    reported: Row = {}
    if source is not None and source.is_dir():
        directory = RunDirectory.open(source)
        if directory.has("report.json"):
            reported = directory.read_report().get("pac", {})
    information = reported.get("mutual_information", config.privacy.mutual_information)
    if run.everything is not None:
        information *= run.trainings
    return {
        "prior": config.privacy.pac_prior,
        **reported,
        **asdict(pac.guarantee(information, delta)),
    }


def _document(description: Description, vantage: Vantage, bounds: Bounds) -> Row:
    mechanism, delta = description.towards(vantage), bounds.delta
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


def _bayesian(source: Path | None, description: Description, delta: float, by_pac: bool) -> Row:
    """Return what the Bayesian accountant says of a run that gathered distances, or its refusal."""
    if by_pac:
        return {
            "refusal": "the Bayesian accountant does not apply: it speaks of noise that is alike "
            "in all directions, and PAC noise is not"
        }
    if source is not None and source.is_dir():
        directory = RunDirectory.open(source)
        if directory.has(run_transcript.FILE):
            found = bayesian_report(
                directory.config, run_transcript.read(directory), delta, description
            )
            if found is not None:
                return found
    return {
        "refusal": "the Bayesian accountant does not apply: it needs the distances between "
        "gradients that a run gathers; fedsim run CONFIG --set audit.bayesian-pairs=16, then "
        "fedsim account RUN_DIRECTORY"
    }


def _print(
    description: Description,
    vantage: Vantage,
    bounds: Bounds,
    document: Row,
    config: Config | None,
    console: Console,
) -> None:
    reason = None if config is None else _unbounded(config)
    by_pac = config is not None and config.privacy.noise == "pac"
    if not by_pac:
        guarantees.print_description(description, vantage, console)
    if config is not None:
        label = "A DP guarantee" if document["dp_guarantee"] else "No DP guarantee"
        console.print(Text(f"{label}. {document['dp_note']}"))
    if reason is not None:
        console.print(Text(f"No bound on the belief: {reason} for every trust and vantage."))
        if by_pac:
            guarantees.print_pac(document["pac"], console)
        guarantees.print_bayesian(document["bayesian"], console)
        return
    by_client = config is not None and config.privacy.unit == "client"
    unit = guarantees.OWNER if by_client else guarantees.PERSON
    console.print(guarantees.verdict(bounds, unit))
    console.print(guarantees.NOISE_MULTIPLIER_EXPLAINED.format(unit=unit))
    if not description.towards(vantage).noiseless:
        columns = {
            "epsilon": "epsilon",
            "rho_beta": "rho_beta",
            "tail_probability": "exceeded with",
        }
        guarantees.print_accountants(
            f"Bounds at delta {bounds.delta:g}", document["accountants"], columns, console
        )
        routes = document["rho_alpha_by_route"]
        sound = ", ".join(
            f"{name} {guarantees.advantage(value)}"
            for name, value in routes.items()
            if name != identifiability.THEOREM2
        )
        console.print(
            "Advantage by the paper (Theorem 2), not a bound: "
            f"{guarantees.advantage(bounds.theorem2_rho_alpha)}; the bound is rho_alpha = "
            f"{guarantees.advantage(bounds.rho_alpha)} (by {sound}). Membership inference: at most "
            f"{guarantees.cell(bounds.yeom_bound)} (Yeom, e^epsilon - 1, of pure epsilon)."
        )
        guarantees.print_pac(document["pac"], console)
        if found := document.get("from_prior"):
            after = found["pac_success_bound"]
            console.print(
                f"From a prior belief of {found['prior']:g} rather than even odds: rho_beta "
                f"{guarantees.cell(found['rho_beta'])}; by PAC privacy, the best guess which world "
                f"it is, right with probability {found['prior_success']:g} before, "
                + ("may always be right after." if after == 1 else "is right with at most ")
                + ("" if after == 1 else f"{after:.6f} after.")
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
    # Whether it can be written is known for sure only by opening it; what is there stays.
    there = os.path.lexists(plot)
    try:
        plot.open("ab").close()
        if not there:
            plot.unlink()
    except IsADirectoryError:
        raise InputError(f"'{plot}' is a directory; name a file in it") from None
    except OSError as error:
        raise InputError(f"cannot write '{plot}': {error.strerror}; name another file") from None


def _plot(
    description: Description, vantage: Vantage, delta: float, document: Row, path: Path
) -> Row:
    """Draw the figure; return epsilon by round, as JSON repeats it. Raises InputError."""
    if math.isinf(document["epsilon"]):
        raise InputError(f"nothing to draw: epsilon is infinite ({document['note']})")
    from fedsim import figures  # noqa: PLC0415  (matplotlib is slow to import)

    names = [name for name, row in document["accountants"].items() if "refusal" not in row]
    rounds, epsilons = identifiability.epsilon_by_round(description, vantage, delta, names)
    if document["belief_curve"] is None:
        curve = None
    else:
        curve = identifiability.belief_curve(description.towards(vantage), BELIEFS)
    figure = figures.guarantee(rounds, epsilons, delta, curve, document["rho_beta"])
    drawn = figures.to_png(figure) if path.suffix == ".png" else figures.to_svg(figure).encode()
    try:
        path.write_bytes(drawn)
    except OSError as error:
        raise InputError(f"cannot write '{path}': {error.strerror}; name another file") from None
    return {
        "rounds": rounds.tolist(),
        "epsilon": {name: values.tolist() for name, values in epsilons.items()},
    }
