"""`fedsim trials`: the number of trials for a wanted precision."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from adversaries.bounds import sample_size
from fedsim.cli.options import AsJson, Confidence, Delta, bundled
from fedsim.cli.terminal import Terminal
from fedsim.report.document import terminal
from fedsim.report.document.blocks import tabulated
from fedsim.report.document.wording import number


def trials(
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="[SOURCE]",
            help="Configuration or run directory. Replaces --advantage.",
            callback=bundled,
        ),
    ] = None,
    halfwidth: Annotated[
        float, typer.Option(help="Halfwidth of the advantage's interval, such as 0.05.")
    ] = 0.05,
    confidence: Confidence = None,
    advantage: Annotated[
        float | None, typer.Option(help="Expected advantage. Replaces SOURCE.")
    ] = None,
    delta: Delta = None,
    share: Annotated[
        float, typer.Option(help="Share of the true epsilon that lower bounds must reach, 0 to 1.")
    ] = 0.5,
    json_: AsJson = False,
) -> None:
    """Compute the number of trials that the advantage's interval needs for a given halfwidth.

    The forecast uses the exact expected length of the interval that the report prints. The expected
    advantage is the largest that a configuration's noise allows, or what a finished run predicts. A
    smaller advantage needs more trials, and an advantage of 0 needs most. Lower bounds on epsilon
    reach their share after about as many trials as the table states.

    Example: fedsim trials configs/digits.toml --halfwidth 0.05
    """
    from fedsim import api_answers  # noqa: PLC0415  (torch)

    document = api_answers.trials(
        source,
        advantage=advantage,
        halfwidth=halfwidth,
        confidence=confidence,
        delta=delta,
        share=share,
    ).report
    if json_:
        print(json.dumps(document, indent=2, allow_nan=False))
    else:
        _print(document)


def _print(document: Mapping[str, Any]) -> None:
    console = Terminal()
    console.print(
        f"The advantage ± {document['halfwidth']:g} at {100 * document['confidence']:g}% needs "
        f"{document['trials']} trials if it is {document['advantage']:.3f} "
        f"({document['advantage_from']}), and {document['trials_at_zero']} if it is 0."
    )
    if document["lower_bounds"] is None:
        console.print(f"No forecast for lower bounds on epsilon: {document['no_lower_bounds']}.")
        return
    refused = {name: f"refused: {reason}" for name, reason in document["refused"].items()}
    bounds = [
        [name, refused.get(name) or number(needed)]
        for name, needed in document["lower_bounds"].items()
    ]
    caption = (
        "Approximate numbers of trials that reach the bound with a probability of "
        f"{100 * sample_size.POWER:g} %. Bounds from counts rise and fall in steps, so fewer "
        "trials may be enough, and a few more may not be. "
        f"–: {sample_size.MOST_FOR_EPSILON} trials are not enough."
    )
    if document["sensitivities_vary"]:
        caption += " If sensitivities vary, the Gaussian bounds are lower, or refused."
    table = terminal.table(
        tabulated(["bound", "trials"], bounds),
        f"Trials for a lower bound of {document['share']:g} × ε = "
        f"{document['share'] * document['epsilon']:.3f} (δ = {document['delta']:g})",
        caption,
    )
    console.print(table)
