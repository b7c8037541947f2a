"""`fedsim.pac`: the result of a user's function, with the noise that PAC privacy needs."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from adversaries import registry
from adversaries.errors import InputError
from fedsim.commands.answer import Answer
from fedsim.commands.settings import Progress, console

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedsim.studies.guarantees.black_box import Function as Black

    Function = Black | str
    Data = str | tuple[npt.ArrayLike, npt.ArrayLike]
else:
    Function = Data = str


def pac(
    function: Function,
    /,
    data: Data = "digits",
    *,
    data_root: Path | None = None,
    rate: float = 0.5,
    budget: float = 1.0,
    simulations: int = 400,
    confidence: float = 0.95,
    seed: int = 0,
    out: Path | None = None,
    progress: Progress = None,
) -> Answer:
    """Release the result of any function on a secret subset of records, with PAC private noise.

    The function is a black box. It is run on simulated subsets, and its results set the amount
    and the direction of the noise. The budget is an average over subsets. It is not differential
    privacy, and says nothing about a record that could not have been in the data.

    Examples: fedsim pac mean --budget 0.1

    fedsim pac my_analysis:coefficients --data npz --data-root records.npz --out released.npz

    Args:
        function: mean, class-means, or package.module:name of your own function. It takes features
            [n, *shape], labels [n] and a random generator, and returns numbers whose shape does not
            depend on the number of records.
        data: name of the data set (see fedsim data). In Python also (features, labels).
        data_root: folder or file of the data on this machine.
        rate: probability that a record is used, which is the adversary's prior.
        budget: information that may be released about the choice of records, in nats.
        simulations: number of simulated subsets that determine the noise.
        confidence: confidence level of the noise, over simulations.
        seed: seed of all random numbers except the secret subset and the noise.
        out: new file for the released numbers (.npz).
        progress: whether to show a bar; None: only in a terminal or a notebook.

    Returns:
        The answer; of its details, the `PrivateResult`, only `released` may be published.

    Raises:
        InputError: the function, the data or a number is not allowed.
    """
    import numpy as np  # noqa: PLC0415
    from rich.progress import track  # noqa: PLC0415

    from fedsim.common import private_files  # noqa: PLC0415
    from fedsim.game import given  # noqa: PLC0415
    from fedsim.learning.data import load  # noqa: PLC0415
    from fedsim.reports.document.blocks import Prose  # noqa: PLC0415
    from fedsim.studies.guarantees import black_box  # noqa: PLC0415

    place = None if out is None else Path(out)
    if place is not None and (place.exists() or not place.absolute().parent.is_dir()):
        raise InputError(
            f"--out: '{out}' exists, or its folder does not exist; name a new file in a folder"
        )
    if isinstance(function, str) and registry.is_code(function):
        # The caller may run any code anyway.
        registry.allow([function])
        # Find the user's module in the current folder, as `python -m` does.
        if (folder := str(Path.cwd())) not in sys.path:
            sys.path.insert(0, folder)
    shown = console(progress)
    name = data if isinstance(data, str) else given.data(data)
    result = black_box.privatised(
        function,
        load(name, "" if data_root is None else str(data_root)),
        rate,
        budget,
        simulations,
        confidence,
        seed,
        followed=lambda seeds: track(
            seeds, "Simulated", console=shown, transient=True, disable=shown.quiet
        ),
    )
    if place is not None:
        with private_files.new_file(place) as file:
            np.savez(file, released=result.released, noise_std=np.sqrt(result.noise.variances))
    said = [*result.sentences, *([] if out is None else [f"Released: {out}"])]
    return Answer(report=result.document, details=result, _blocks=lambda: list(map(Prose, said)))
