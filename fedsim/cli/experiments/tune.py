"""`fedsim tune`: learning rate, clipping norm and rounds, by trainings on public records."""

from typing import TYPE_CHECKING, Annotated

import typer

from fedsim import config as configuration
from fedsim.cli.options import AsJson, ConfigFile, Quiet, SetOption
from fedsim.cli.terminal import Terminal, print_json

if TYPE_CHECKING:  # torch
    from fedsim.studies.choose.tune import Tried

RESULT = (
    "Tuned on {trained_on:,} public records, judged on {judged_on:,} others. No private record was "
    "read, and tuning costs no privacy. The result suits the clients' records as far as they "
    "resemble these. fedsim choose tries settings on private records and counts the cost."
)


def tune(
    config_file: ConfigFile,
    models: Annotated[
        int,
        typer.Option(min=3, help="Number of models to train with each setting.", show_default=True),
    ] = 8,
    set_: SetOption = None,
    quiet: Quiet = False,
    json_: AsJson = False,
) -> None:
    """Choose rounds, clipping norm and learning rate on public records, at no privacy cost.

    Part of the held-out records stands in for the clients' records. The noise is scaled to their
    number, so that it matters as much as in the training. Keeps the configuration unless another
    setting is certainly more accurate.

    Example: fedsim tune configs/train-digits.toml
    """
    from fedsim.studies.choose import tune as study  # noqa: PLC0415  (torch)

    console = Terminal(stderr=True, quiet=quiet or json_, highlight=False)
    config = configuration.load(config_file, configuration.parse_overrides(set_), "training")

    def show(tried: "Tried") -> None:
        line = f"{tried.setting}: accuracy {tried.accuracies.mean():.1%}"
        if tried.changes:
            line += f", gain {100 * tried.gain:+.1f} ± {100 * tried.margin:.1f} points"
        console.print(line, markup=False, soft_wrap=True)

    tuning = study.tune(config, models, show)
    chosen = [f"--set {key}={value}" for key, value in tuning.best.changes.items()]
    if json_:
        print_json(
            {
                "trained_on": tuning.trained_on,
                "judged_on": tuning.judged_on,
                "tried": [_document(each) for each in tuning.tried],
                "best": tuning.best.changes,
            }
        )
        return
    typer.echo(RESULT.format(trained_on=tuning.trained_on, judged_on=tuning.judged_on))
    if not chosen:
        typer.echo("Keep the configuration: no other setting is certainly more accurate.")
    else:
        typer.echo(f"Best: fedsim train {config_file} {' '.join(chosen)}")


def _document(tried: "Tried") -> dict[str, object]:
    return {
        "changes": tried.changes,
        "accuracy": float(tried.accuracies.mean()),
        "gain": tried.gain,
        "margin": tried.margin,
        "noise_multiplier": tried.noise_multiplier,
        "surely_better": tried.is_better,
    }
