"""`fedsim predict`: the predictions of a trained model."""

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
    run: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Run directory of fedsim train.")],
    records: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Records: a table that fits the model's schema, or an .npz file with features.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File for the predictions. Default: the terminal."),
    ] = None,
    json_: AsJson = False,
) -> None:
    """Predict the class of records, or the likelihood of texts, with a trained model.

    Prints comma-separated values, one row for each record in order: the most likely class and the
    probability of each class. For a text model: the number of tokens, log-likelihood and
    perplexity.

    Example: fedsim predict fedsim-runs/model patients.csv --out predictions.csv
    """
    from fedsim.learning.training import saved_model  # noqa: PLC0415  (torch is slow to import)

    predictions = saved_model.predictions(run, saved_model.read(run, records))
    if json_:
        document = strict_json(predictions.as_json())
        _write(json.dumps(document, indent=2, allow_nan=False) + "\n", out)
        return
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    for row in predictions.table():
        table.writerow([f"{each:.6g}" if isinstance(each, float) else each for each in row])
    _write(text.getvalue(), out)


def _write(text: str, out: Path | None) -> None:
    if out is None:
        sys.stdout.write(text)
    else:
        private_files.write(out.absolute(), text.encode())
