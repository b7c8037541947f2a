"""`fedsim pac`: the result of a user's function, with the noise that PAC privacy needs."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from adversaries import registry
from adversaries.errors import InputError
from fedsim.cli.options import DATA_ROOT, DEFAULT_CONFIDENCE, SEED, AsJson, Confidence
from fedsim.cli.terminal import Terminal, print_json


def pac(
    function: Annotated[
        str,
        typer.Argument(
            metavar="FUNCTION",
            help="mean, class-means, or package.module:name of your own function. It takes "
            "features, labels and a random generator, and returns numbers whose shape "
            "does not depend on the number of records.",
        ),
    ],
    data: Annotated[
        str, typer.Option(metavar="NAME", help="Name of the data set (see fedsim data).")
    ] = "digits",
    data_root: Annotated[Path | None, typer.Option(metavar="PATH", help=f"{DATA_ROOT}.")] = None,
    rate: Annotated[
        float,
        typer.Option(help="Probability that a record is used, which is the adversary's prior."),
    ] = 0.5,
    budget: Annotated[
        float,
        typer.Option(help="Information that may be released about the choice of records, in nats."),
    ] = 1.0,
    simulations: Annotated[
        int, typer.Option(help="Number of simulated subsets that determine the noise.")
    ] = 400,
    confidence: Confidence = None,
    seed: Annotated[int, typer.Option(help=f"{SEED} except the secret subset and the noise.")] = 0,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File for the released numbers (.npz).")
    ] = None,
    json_: AsJson = False,
) -> None:
    """Release the result of any function on a secret subset of records, with PAC private noise.

    The function is a black box. It is run on simulated subsets, and its results set the amount
    and the direction of the noise. The budget is an average over subsets. It is not differential
    privacy, and says nothing about a record that could not have been in the data.

    Examples:

    fedsim pac mean --budget 0.1

    fedsim pac my_analysis:coefficients --data npz --data-root records.npz --out released.npz
    """
    from rich.progress import track  # noqa: PLC0415

    from fedsim.learning.data import load  # noqa: PLC0415
    from fedsim.studies.guarantees import black_box  # noqa: PLC0415

    if out is not None and (out.exists() or not out.absolute().parent.is_dir()):
        raise InputError(
            f"--out: '{out}' exists, or its folder does not exist; name a new file in a folder"
        )
    if registry.is_code(function):
        # The user of this command line may run any code anyway.
        registry.allow([function])
        # Find the user's module in the current folder, as `python -m` does.
        if (folder := str(Path.cwd())) not in sys.path:
            sys.path.insert(0, folder)
    console = Terminal(stderr=True, quiet=json_)
    records = load(data, "" if data_root is None else str(data_root))
    result = black_box.privatised(
        function,
        records,
        rate,
        budget,
        simulations,
        DEFAULT_CONFIDENCE if confidence is None else confidence,
        seed,
        followed=lambda seeds: track(
            seeds, "Simulated", console=console, transient=True, disable=console.quiet
        ),
    )
    if out is not None:
        import numpy as np  # noqa: PLC0415

        from fedsim.common import private_files  # noqa: PLC0415

        with private_files.new_file(out) as file:
            np.savez(file, released=result.released, noise_std=np.sqrt(result.noise.variances))
    if json_:
        print_json(result.document)
        return
    terminal = Terminal(highlight=False)
    for sentence in result.sentences:
        terminal.print(sentence)
    if out is not None:
        terminal.print(f"Released: {out}", soft_wrap=True)
