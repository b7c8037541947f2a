"""`fedsim predict`: what a trained model says of records."""

import csv
import io
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from fedsim.cli.options import AsJson
from fedsim.common import private_files
from fedsim.common.strict_json import strict_json


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Directory of a fedsim train.")],
    records: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="Records as the model's schema has them; else .npz with features."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="For the predictions, instead of the terminal."),
    ] = None,
    json_: AsJson = False,
) -> None:
    """Predict the class of records with a trained model.

    Prints comma-separated values: the most likely class of each record, in order, and how likely
    each class is.

    Example: fedsim predict fedsim-runs/model patients.csv --out predictions.csv
    """
    from fedsim.learning.training import saved_model  # noqa: PLC0415  (torch is slow to import)

    found = saved_model.predictions(run, saved_model.read(run, records))
    if json_:
        document = {
            "classes": list(found.classes),
            "predicted": list(found.predicted),
            "probabilities": found.probabilities.tolist(),
        }
        _write(json.dumps(strict_json(document), indent=2, allow_nan=False) + "\n", out)
        return
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["class", *(f"p({name})" for name in found.classes)])
    for name, likely in zip(found.predicted, found.probabilities.tolist(), strict=True):
        table.writerow([name, *(f"{each:.6g}" for each in likely)])
    _write(text.getvalue(), out)


def _write(text: str, out: Path | None) -> None:
    if out is None:
        sys.stdout.write(text)
    else:
        private_files.write(out.absolute(), text.encode())
