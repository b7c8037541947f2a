"""`fedsim sweep`: one experiment over a grid of settings, and what they found side by side."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adversaries.errors import InputError
from fedsim import config as configuration
from fedsim.cli.options import AsJson, ConfigFile, Quiet, SetOption
from fedsim.cli.terminal import Terminal, print_json
from fedsim.common import reading, report_directory
from fedsim.config import Scalar
from fedsim.experiment import in_process, prepare

if TYPE_CHECKING:  # torch, which takes a second
    from fedsim.federation.server.plan import Plan


def sweep(
    config_file: ConfigFile,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where every run gets a folder of its own.")
    ],
    over: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=V1,V2,...", help="Values of a key; repeated, all combinations."),
    ] = None,
    rho_beta: Annotated[
        str | None, typer.Option(help="Short for --over privacy.rho-beta=...", metavar="V1,V2,...")
    ] = None,
    set_: SetOption = None,
    quiet: Quiet = False,
    json_: AsJson = False,
) -> None:
    """Run an experiment for every combination of settings, one after the other, and compare.

    The table has accuracy, the adversary's advantage and the paper's estimates of epsilon;
    `fedsim choose` picks one of the settings by a limit.

    All settings are checked before the first run. The same command again continues a sweep:
    finished runs are skipped, and an interrupted one goes on where it was. A run that fails is
    named, and the others are run all the same. DIR gets summary.csv, report.json, report.html and a
    figure along every key that is a number.

    Example: fedsim sweep configs/digits.toml --over privacy.rho-beta=0.75,0.9 --out sweep
    """
    from fedsim.studies.choose import grid as grids  # noqa: PLC0415
    from fedsim.studies.choose import sweep as sweeps  # noqa: PLC0415  (rich tables, jinja2)

    console = Terminal(stderr=True, quiet=quiet)
    axes = [*(over or []), *([f"privacy.rho-beta={rho_beta}"] if rho_beta else [])]
    if not axes:
        raise InputError("what varies? Give --over KEY=V1,V2,..., such as --over run.seed=0,1,2")
    varied, common = grids.axes(axes), configuration.parse_overrides(set_)
    points = grids.grid(varied)
    grids.refuse_overlap(common, varied)
    name = configuration.load(config_file, common | dict(points[0].values)).run.name
    report_directory.check_new(out, replacing=sweeps.KIND)
    plans = []
    for point in points:
        own = {"run.out": str(out / point.name), "run.name": f"{name} {point.name}"}
        plans.append(_planned(config_file, common | dict(point.values) | own, point.name))
    report_directory.create(out)
    outcomes = grids.carry_out(
        points,
        plans,
        lambda plan: in_process(plan, console),
        lambda text: console.print(text, highlight=False),
    )
    with report_directory.refusing(out):
        page = sweeps.write(name, outcomes, out)
    console.print(sweeps.table(outcomes))
    console.print(f"Report: {page}", soft_wrap=True, highlight=False)
    if json_:
        print_json(reading.json_object(page.with_name("report.json")))
    grids.complain(outcomes)


def _planned(config_file: Path, given: Mapping[str, Scalar], point: str) -> "Plan":
    """Return the plan of a point. Raises InputError that names the point."""
    try:
        return prepare(configuration.load(config_file, given))
    except InputError as error:
        raise InputError(f"{point}: {error}") from None
