"""`fedsim membership`: membership inference attacks on a federation's models."""

from pathlib import Path
from typing import Annotated

import typer

from fedsim import config as configuration
from fedsim.cli import elsewhere
from fedsim.cli.options import AsJson, ConfigFile, Seed, SetOption
from fedsim.cli.terminal import Terminal, print_json
from fedsim.common import report_directory


def membership(
    config_file: ConfigFile,
    models: Annotated[
        int,
        typer.Option(
            help="Number of models to train. Half are shadow models, the others are attacked."
        ),
    ] = 128,
    attacks: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Attacks, separated by commas, or all [audit.attacks]."),
    ] = None,
    seed: Seed = None,
    set_: SetOption = None,
    workers: elsewhere.Models = None,
    cluster: elsewhere.Cluster = None,
    cluster_tls: elsewhere.ClusterTls = None,
    insecure: elsewhere.Insecure = False,
    json_: AsJson = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory of the report. Default: fedsim-runs/NAME-membership-TIME.",
        ),
    ] = None,
) -> None:
    """Run membership inference attacks on a federation's models: who was in the training data?

    Trains many models at once with the configured DP-SGD, each on a random half of D. Half of them
    are shadow models. Attacks every pair of another model and a record, from losses alone: Yeom's
    rules, the calibrated loss, LiRA, RMIA, and LiRA on all global models. Writes report.json, and
    report.html with the curves on log scales and the limits of differential privacy.

    Examples:

    fedsim membership configs/digits.toml

    fedsim membership configs/digits.toml --models 256 --attacks lira,rmia

    fedsim membership configs/mnist.toml --set data.root=DIR --set privacy.sensitivity=global --json
    """
    placed = elsewhere.named(workers, cluster, cluster_tls, insecure)
    overrides = configuration.parse_overrides(set_)
    options = {"run.seed": seed, "audit.attacks": attacks}
    overrides |= {key: value for key, value in options.items() if value is not None}
    name = configuration.load(config_file, overrides).run.name
    directory = out or report_directory.timed(f"{name}-membership")

    from fedsim import api_studies  # noqa: PLC0415  (torch)
    from fedsim.studies.membership import membership_report  # noqa: PLC0415

    report_directory.check_new(directory)
    console = Terminal(stderr=True)
    report = api_studies.attacked(config_file, models, overrides, console, placed)
    with report_directory.refusing(directory):
        page = membership_report.write(report, directory)
    if json_:
        print_json(report.as_json())
    console.print(membership_report.summary(report))
    console.print(f"Report: {page}", soft_wrap=True, highlight=False)
