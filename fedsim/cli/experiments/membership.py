"""`fedsim membership`: how well attacks tell the records that a model was trained on."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adversaries.errors import InputError
from fedsim import config as configuration
from fedsim.cli.options import AsJson, ConfigFile, Seed, SetOption
from fedsim.cli.terminal import Terminal, print_json
from fedsim.common import report_directory
from fedsim.config import Config
from fedsim.report.tracking.progress import measuring

if TYPE_CHECKING:
    from adversaries.attacks.membership_attacks import Attack


def membership(
    config_file: ConfigFile,
    models: Annotated[
        int, typer.Option(help="How many models to train; half are shadows, the others attacked.")
    ] = 128,
    attacks: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Attacks, with commas between them, or all [audit.attacks]."
        ),
    ] = None,
    seed: Seed = None,
    set_: SetOption = None,
    json_: AsJson = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Directory of the report; default fedsim-runs/NAME-membership-TIME."
        ),
    ] = None,
) -> None:
    """Play membership inference against a federation's models: who was in the training data?

    Trains many models at once with the configured DP-SGD, each on a random half of D. Every second
    one is a shadow, and of the others every pair of a model and a record is attacked by losses
    alone: Yeom's rules, the calibrated loss, LiRA, RMIA, and LiRA on all global models. Writes
    report.html, with the curves on log scales beside what differential privacy allows, and
    report.json.

    Examples:

    fedsim membership configs/digits.toml

    fedsim membership configs/digits.toml --models 256 --attacks lira,rmia

    fedsim membership configs/mnist.toml --set data.root=DIR --set privacy.sensitivity=global --json
    """
    config = _configured(config_file, set_, seed, attacks)
    directory = out or (
        Path("fedsim-runs") / f"{config.run.name}-membership-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    )

    from fedsim.studies.membership import membership_game, membership_report  # noqa: PLC0415  (torch)

    report_directory.check_new(directory)
    playing = _playing(config.audit.attacks)
    start = time.perf_counter()
    console = Terminal(stderr=True)
    with measuring(console, "training") as progress:
        game = membership_game.play(config, models, progress)
    seconds = time.perf_counter() - start
    report = membership_report.assemble(config, game, playing, seconds)
    with report_directory.refusing(directory):
        page = membership_report.write(report, directory)
    if json_:
        print_json(report)
    console.print(membership_report.summary(report))
    console.print(f"Report: {page}", soft_wrap=True, highlight=False)


def _configured(
    path: Path, set_: list[str] | None, seed: int | None, attacks: str | None
) -> Config:
    """Return the configuration with what was given. Raises InputError."""
    given: dict[str, configuration.Scalar] = {} if seed is None else {"run.seed": seed}
    if attacks is not None:
        given["audit.attacks"] = attacks
    return configuration.load(path, configuration.parse_overrides(set_) | given)


def _playing(attack_names: str) -> "Mapping[str, Attack]":
    """Return the attacks that are played. Raises InputError where there is none."""
    from adversaries.attacks import membership_attacks  # noqa: PLC0415  (torch)

    if playing := membership_attacks.chosen(attack_names):
        return playing
    raise InputError(
        "audit.attacks is 'none', which leaves nothing to play; name attacks with --attacks, or all"
    )
