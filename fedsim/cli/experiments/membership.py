"""`fedsim membership`: how well attacks tell the records that a model was trained on."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsim import config as configuration
from fedsim.cli.options import AsJson, ConfigFile, Seed, SetOption
from fedsim.cli.terminal import Terminal, print_json
from fedsim.common import report_directory

if TYPE_CHECKING:
    pass


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
    overrides = configuration.parse_overrides(set_)
    given = {"run.seed": seed, "audit.attacks": attacks}
    overrides |= {key: value for key, value in given.items() if value is not None}
    name = configuration.load(config_file, overrides).run.name
    directory = out or (
        Path("fedsim-runs") / f"{name}-membership-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    )

    from fedsim import api_studies  # noqa: PLC0415  (torch)
    from fedsim.studies.membership import membership_report  # noqa: PLC0415

    report_directory.check_new(directory)
    report = api_studies.membership(config_file, models=models, overrides=overrides).report
    with report_directory.refusing(directory):
        page = membership_report.write(report, directory)
    if json_:
        print_json(report)
    console = Terminal(stderr=True)
    console.print(membership_report.summary(report))
    console.print(f"Report: {page}", soft_wrap=True, highlight=False)
