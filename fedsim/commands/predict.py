"""`fedsim.predict`: a trained model's predictions."""

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

from adversaries.errors import InputError
from fedsim.commands.answer import Answer, lines
from fedsim.commands.run import built_by
from fedsim.commands.settings import Network
from fedsim.common.strict_json import strict_json

if TYPE_CHECKING:  # torch, which takes a second
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

    Records = Path | str | Tensor | npt.NDArray[np.float32]
else:
    Records = Path


def predict(
    run: Path, records: Records, /, *, out: Path | None = None, network: Network = None
) -> Answer:
    """Predict the class of records, or the likelihood of texts, with a trained model.

    Prints comma-separated values, one row for each record in order: the most likely class and the
    probability of each class. For a text model: the number of tokens, log-likelihood and
    perplexity.

    Example: fedsim predict fedsim-runs/model patients.csv --out predictions.csv

    Args:
        run: run directory of fedsim train, or a copy of its public/.
        records: a table that fits the model's schema, or an .npz file with features. In Python also
            features [N, *shape].
        out: new file for the predictions. Default: the terminal.
        network: the network that `train` took, if there was one.

    Returns:
        The answer; its details are the predictions.

    Raises:
        InputError: the directory has no model, or the records do not fit it.
    """
    import torch  # noqa: PLC0415

    from fedsim.common import private_files  # noqa: PLC0415
    from fedsim.learning.training import saved_model  # noqa: PLC0415

    if out is not None and Path(out).exists():
        raise InputError(f"--out: '{out}' exists; name a new file")
    if isinstance(records, Path | str):
        features = saved_model.read_features(Path(run), str(records))
    else:
        features = torch.as_tensor(records, dtype=torch.float32)
    predictions = saved_model.predictions(Path(run), features, built_by(network))
    headings, *rows = predictions.table()
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    for row in (headings, *rows):
        table.writerow([f"{each:.6g}" if isinstance(each, float) else each for each in row])
    if out is not None:
        with private_files.new_file(Path(out)) as file:
            file.write(text.getvalue().encode())
    said = text.getvalue().rstrip("\n") if out is None else f"{out}: {len(rows)} predictions"
    return Answer(
        report=strict_json(predictions.as_json()),
        table=[dict(zip(map(str, headings), row, strict=True)) for row in rows],
        details=predictions,
        _terminal=lines(*said.splitlines()),
    )
