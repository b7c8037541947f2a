"""`fedsim sweep`: one experiment over a grid of settings, with the results side by side."""

from pathlib import Path
from typing import Annotated

import typer

from adversaries.errors import InputError
from fedsim import config as configuration
from fedsim.cli import elsewhere
from fedsim.cli.options import AsJson, ConfigFile, Quiet, SetOption
from fedsim.cli.terminal import Terminal, print_json
from fedsim.common import reading


def sweep(
    config_file: ConfigFile,
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Directory of the sweep, with one folder for each run."),
    ],
    over: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=V1,V2,...",
            help="Values of a key, separated by commas. Repeat it to try all combinations.",
        ),
    ] = None,
    rho_beta: Annotated[
        str | None,
        typer.Option(
            help="Values of privacy.rho-beta, separated by commas. Short for --over "
            "privacy.rho-beta=...",
            metavar="V1,V2,...",
        ),
    ] = None,
    set_: SetOption = None,
    workers: elsewhere.Settings = None,
    cluster: elsewhere.Cluster = None,
    cluster_tls: elsewhere.ClusterTls = None,
    insecure: elsewhere.Insecure = False,
    quiet: Quiet = False,
    json_: AsJson = False,
) -> None:
    """Run an experiment for every combination of settings, and compare.

    The table has accuracy, the adversary's advantage and the paper's estimates of epsilon.
    `fedsim choose` picks one of the settings by a limit.

    All settings are checked before the first run. Give the same command again to continue a sweep:
    it skips finished runs and continues an interrupted one. If a run fails, the sweep names it and
    runs the others. DIR gets summary.csv, report.json, report.html and a figure for every numeric
    key.

    Example: fedsim sweep configs/digits.toml --over privacy.rho-beta=0.75,0.9 --out sweep
    """
    from fedsim import api_studies  # noqa: PLC0415
    from fedsim.studies.choose import grid as grids  # noqa: PLC0415
    from fedsim.studies.choose import recommendation  # noqa: PLC0415
    from fedsim.studies.choose import sweep as sweeps  # noqa: PLC0415  (rich tables, jinja2)

    console = Terminal(stderr=True, quiet=quiet)
    placed = elsewhere.named(workers, cluster, cluster_tls, insecure)
    axes = [*(over or []), *([f"privacy.rho-beta={rho_beta}"] if rho_beta else [])]
    if not axes:
        raise InputError(
            "fedsim sweep needs --over KEY=V1,V2,..., for example --over run.seed=0,1,2"
        )
    varied, common = grids.axes(axes), configuration.parse_overrides(set_)
    outcomes = api_studies.swept(config_file, varied, out, common, console, placed).outcomes
    console.print(sweeps.table(outcomes))
    for sentence in recommendation.sentences(outcomes):
        console.print(sentence, highlight=False)
    console.print(f"Report: {out / 'report.html'}", soft_wrap=True, highlight=False)
    if json_:
        print_json(reading.json_object(out / "report.json"))
    grids.complain(outcomes)
