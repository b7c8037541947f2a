"""`fedsim trials`: how many trials a statement of a wanted precision needs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from adversaries.errors import InputError
from adversaries.statistics import gaussian, sample_size, stopping
from adversaries.statistics.design import Design
from adversaries.statistics.lower_bounds import LOWER_BOUNDS
from fedsim import config as configuration
from fedsim.audits.results import report as results
from fedsim.cli.options import AsJson, Confidence, Delta, bundled
from fedsim.cli.terminal import Terminal
from fedsim.config import Config
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.game.mechanisms import privacy
from fedsim.privacy import identifiability
from fedsim.privacy.delta import ASSUMED
from fedsim.privacy.noise import Noise
from fedsim.report.document import terminal
from fedsim.report.document.blocks import tabulated
from fedsim.report.document.wording import number

DESIGNS = {
    "as many as planned": ("independent", False),
    "as many as planned, common random numbers": ("common", False),
    "--until-halfwidth": ("independent", True),
    "--until-halfwidth, common random numbers": ("common", True),
}
"""How trials can be played: trials.pairing, and whether they stop by what they show."""


def trials(
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="[SOURCE]",
            help="A configuration or a run directory; instead of --advantage.",
            callback=bundled,
        ),
    ] = None,
    halfwidth: Annotated[
        float, typer.Option(help="Wanted precision of the advantage: ± this, for example 0.05.")
    ] = 0.05,
    confidence: Confidence = None,
    advantage: Annotated[
        float | None, typer.Option(help="The advantage that is expected, instead of SOURCE.")
    ] = None,
    delta: Delta = None,
    share: Annotated[
        float, typer.Option(help="Share of the true epsilon that lower bounds are to reach.")
    ] = 0.5,
    json_: AsJson = False,
) -> None:
    """Say how many trials the advantage's interval needs to be no wider than wanted.

    The forecast uses the exact expected length of the interval that the report prints. The expected
    advantage is the largest that a configuration's noise allows, or what a finished run predicts. A
    smaller advantage needs more independent trials, as the column for 0 says. Lower bounds on
    epsilon reach their share after about as many trials as the table states.

    Example: fedsim trials configs/digits.toml --halfwidth 0.05
    """
    if source is None and advantage is None:
        raise InputError("which advantage is expected? Give a configuration, or --advantage")
    if source is not None and advantage is not None:
        raise InputError(
            f"'{source}' and --advantage both say which advantage is expected; drop one of them"
        )
    if advantage is not None and not 0 <= advantage < 1:
        raise InputError(
            f"--advantage is {advantage:g}; give a number of at least 0 and below 1, such as 0.2"
        )
    if not 0 < share < 1:
        raise InputError(f"--share is {share}; give a number between 0 and 1, such as 0.5")
    expected = _Expected(advantage) if source is None else _expected(source)
    if confidence is not None:
        expected = replace(expected, level=confidence)
    if delta is not None:
        expected = replace(expected, delta=delta)
    document = _document(expected, halfwidth, share)
    if json_:
        print(json.dumps(document, indent=2, allow_nan=False))
    else:
        _print(document)


@dataclass(frozen=True)
class _Expected:
    """What a campaign is planned for.

    advantage: that is expected, and origin: who says so; None if nobody does; mu: of the same, None
    where it follows from the advantage; config: of the experiment, or the defaults; level: of the
    interval; delta: of lower bounds; refused: those that are not to be had, each with its reason;
    given: whether there is an experiment
    """

    advantage: float | None
    origin: str = "--advantage"
    mu: float | None = None
    config: Config = field(default_factory=Config)
    level: float = 0.95
    delta: float = ASSUMED
    refused: Mapping[str, str] = field(default_factory=dict)
    given: bool = False


def _expected(source: Path) -> _Expected:
    """Return what a run predicts, or a configuration allows. Raises InputError for neither."""
    from fedsim.audits.measurements import bounds_audit  # noqa: PLC0415  (torch)

    run = RunDirectory.open(source) if source.is_dir() else None
    config = run.config if run else configuration.load(source)
    found = _Expected(
        None,
        config=config,
        level=config.audit.confidence,
        delta=config.privacy.delta,
        refused=bounds_audit.refused(config),
        given=True,
    )
    if run:
        prediction = results.read(run).prediction
        advantage, origin = prediction.advantage, "the run's own prediction"
        found = replace(found, advantage=advantage, mu=prediction.mu, origin=origin)
    elif config.privacy.noise.mechanism.by_candidate:
        raise InputError(
            f"privacy.noise is '{config.privacy.noise}' in '{source}', which bounds what is told "
            "on average and sets the advantage no limit to plan for; give --advantage in its place"
        )
    else:
        mechanism = privacy.mechanism(config.scheme, privacy.noise_multiplier(config.scheme))
        advantage = identifiability.bounds(
            mechanism, config.privacy.delta, config.privacy.accountant
        ).rho_alpha
        origin = "rho_alpha, the largest that the noise allows"
        found = replace(found, advantage=advantage, origin=origin)
    if found.advantage is None:
        raise InputError(f"'{source}' predicts no advantage; give --advantage in its place")
    if not -1 < found.advantage < 1:
        raise InputError(
            f"the advantage of '{source}' is {found.advantage:g} ({found.origin}), where a single "
            "trial decides; give --advantage in its place"
        )
    return found


def _document(expected: _Expected, halfwidth: float, share: float) -> dict[str, Any]:
    """Return how many trials every design needs, and every lower bound."""
    advantage, config = expected.advantage, expected.config
    assert advantage is not None
    # The advantage that a run predicts is that of its prior; its bounds are from even odds.
    mu = gaussian.mu_of_advantage(max(0.0, advantage)) if expected.mu is None else expected.mu
    unknown = _unknown(config.training.sampling_rate, config.privacy.noise, mu)
    epsilon = None if unknown else gaussian.epsilon(mu, expected.delta)
    return {
        "advantage": advantage,
        "advantage_from": expected.origin,
        "halfwidth": halfwidth,
        "confidence": expected.level,
        "trials": [
            _needed(name, advantage, halfwidth, expected.level, config.trials.batch)
            for name in DESIGNS
        ],
        "delta": expected.delta,
        "epsilon": epsilon,
        "share": share,
        "lower_bounds": None
        if epsilon is None
        else {
            name: None
            if name in expected.refused
            else sample_size.trials_for_epsilon(
                name, mu, share * epsilon, expected.delta, expected.level
            )
            for name in LOWER_BOUNDS
        },
        "refused": {
            name: expected.refused[name] for name in LOWER_BOUNDS if name in expected.refused
        },
        "no_lower_bounds": unknown,
        "sensitivities_vary": expected.given and config.privacy.sensitivity == "global",
    }


def _needed(
    name: str, advantage: float, halfwidth: float, level: float, batch: int
) -> dict[str, Any]:
    """Return how many trials one design needs."""
    pairing, stops = DESIGNS[name]
    common = pairing == "common"

    def needed(expected: float) -> int:
        if stops:
            return sample_size.expected_stop(expected, halfwidth, level, batch, common)
        return sample_size.trials_needed(expected, halfwidth, level, Design(common))

    at_most = None
    if stops:
        interim_analyses = stopping.interim_analyses(
            halfwidth, level, sample_size.MOST_TRIALS, batch, common
        )
        at_most = max(interim_analyses)
    return {
        "design": name,
        "pairing": pairing,
        "until_halfwidth": stops,
        "trials": needed(advantage),
        "trials_at_zero": needed(0.0),
        "at_most": at_most,
    }


def _unknown(record_rate: float, noise_kind: Noise, mu: float) -> str | None:
    """Return why nothing can be said of lower bounds before the trials, None where it can."""
    if (noise := noise_kind.mechanism).own_law:
        return f"the log-odds of {noise.title} have no law that is known before the trials"
    if record_rate < 1:
        return (
            "the log-odds of sampled steps have no closed form; the report leads with trade_off, "
            "the bound from the sampled mechanism's own trade-off curve"
        )
    return None if mu > 0 else "an advantage of 0 tells nothing"


def _print(document: dict[str, Any]) -> None:
    console = Terminal()
    rows = [
        [row["design"], *(number(row[key]) for key in ("trials", "trials_at_zero", "at_most"))]
        for row in document["trials"]
    ]
    advantage = f"advantage {document['advantage']:.3f}"
    table = terminal.table(
        tabulated(["trials are played", advantage, "advantage 0", "at most"], rows),
        f"Trials for the advantage ± {document['halfwidth']:g} "
        f"at {100 * document['confidence']:g}%",
        f"{advantage}: {document['advantage_from']}",
    )
    console.print(table)
    if document["lower_bounds"] is None:
        console.print(f"Lower bounds on epsilon, no numbers: {document['no_lower_bounds']}.")
        return
    refused = {name: f"refused: {reason}" for name, reason in document["refused"].items()}
    bounds = [
        [name, refused.get(name) or number(needed)]
        for name, needed in document["lower_bounds"].items()
    ]
    table = terminal.table(
        tabulated(["bound", "trials"], bounds),
        f"Trials for a lower bound of {document['share']:g} × ε = "
        f"{document['share'] * document['epsilon']:.3f} (δ = {document['delta']:g})",
        f"about, to reach it with {100 * sample_size.POWER:g} %; bounds from counts go up "
        "and down in steps, so that fewer may do and a few more may not; "
        f"–: not with {sample_size.MOST_FOR_EPSILON} trials"
        + "; the Gaussian ones are less, or refused, where sensitivities vary"
        * document["sensitivities_vary"],
    )
    console.print(table)
