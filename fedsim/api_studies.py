"""The Python API beyond a single run: rehearse, compare, sweep, tune, membership, predict, sign.

Each function is what the command of its name calls, and returns values.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim import api, experiment
from fedsim.api import Builder, Run, built_by, configured, console
from fedsim.common import report_directory
from fedsim.config import Config, Scalar
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.privacy.delta import ASSUMED

if TYPE_CHECKING:  # torch, which takes a second
    from matplotlib.figure import Figure
    from rich.console import Console
    from torch import Tensor

    from fedsim.audits.one_run import OneRun
    from fedsim.learning.training.predictions import Likelihoods, Numbers, Predictions
    from fedsim.report.evidence.verification import Verification
    from fedsim.studies.choose.grid import Outcome
    from fedsim.studies.choose.tune import Tuning

Given = Path | str | Config | Mapping[str, Any]
Overrides = Mapping[str, Any] | None


@dataclass(frozen=True)
class Comparison:
    """Runs side by side.

    Attributes:
        rows: one for each run and vantage, as `fedsim compare --json` prints them.
    """

    rows: tuple[dict[str, Any], ...]

    def _repr_html_(self) -> str:
        from fedsim.report import comparison  # noqa: PLC0415
        from fedsim.report.document import html  # noqa: PLC0415

        return html.fragment(comparison.blocks(self.rows))


@dataclass(frozen=True)
class Sweep:
    """One experiment over a grid of settings.

    Attributes:
        path: the directory with a folder of each run, report.html and summary.csv.
        outcomes: what each run found, or why it failed, in the grid's order.
    """

    path: Path
    outcomes: tuple["Outcome", ...]

    def figures(self) -> dict[str, "Figure"]:
        """Return advantage, accuracy and epsilon along each swept key, where these can be drawn."""
        from fedsim.studies.choose import sweep as sweeps  # noqa: PLC0415

        return sweeps.figures(self.outcomes)

    def _repr_html_(self) -> str:
        from fedsim.report.document import html  # noqa: PLC0415
        from fedsim.report.document.blocks import tabulated  # noqa: PLC0415
        from fedsim.studies.choose import sweep as sweeps  # noqa: PLC0415

        return html.fragment(
            [tabulated(sweeps.headings(self.outcomes), sweeps.cells(self.outcomes))]
        )


@dataclass(frozen=True)
class Membership:
    """How well attacks told the records that models were trained on.

    Attributes:
        report: what `fedsim membership --json` prints.
    """

    report: Mapping[str, Any] = field(repr=False)

    def figures(self) -> dict[str, "Figure"]:
        """Return the ROC curves of all attacks, beside what the noise allows."""
        from fedsim.studies.membership import membership_report as page  # noqa: PLC0415

        best, *others = page.roc(self.report)
        return {"roc": best, **{f"roc-{at}": each for at, each in enumerate(others, start=2)}}

    def _repr_html_(self) -> str:
        from fedsim.report.document import html  # noqa: PLC0415
        from fedsim.report.document.blocks import Prose, tabulated  # noqa: PLC0415
        from fedsim.studies.membership import membership_report as page  # noqa: PLC0415

        table = tabulated(page.headings(self.report), page.rows(self.report))
        return html.fragment([*map(Prose, page.verdict(self.report)), table, Prose(page.LABEL)])


def rehearse(
    config: Given,
    *,
    trials: int | None = None,
    seed: int | None = None,
    out: Path | str | None = None,
    overrides: Overrides = None,
    progress: bool | None = None,
) -> Run:
    """Play the identification game for a training, as `fedsim rehearse` does.

    Args:
        config: a training's file, a configuration, or dotted keys over the defaults.
        trials: how many times it is trained ("trials.count").
        seed: of every random number ("run.seed").
        out: the run directory ("run.out"); None for fedsim-runs/NAME-TIME.
        overrides: any other dotted keys.
        progress: whether a bar is shown; None where there is a terminal or a notebook.

    Raises:
        InputError: a configuration that cannot be rehearsed, before anything is written.
    """
    given: dict[str, Scalar | None] = {
        "trials.count": trials,
        "run.seed": seed,
        "run.out": None if out is None else str(out),
    }
    asked = dict(overrides or {}) | {key: each for key, each in given.items() if each is not None}
    plan = experiment.prepare(configured(config, asked, "rehearsal"))
    return api.load(experiment.in_process(plan, console(progress)).path)


def compare(*runs: Path | str | Run) -> Comparison:
    """Compare finished runs: every trust model and vantage side by side.

    Args:
        runs: two or more, as run directories or as values of `fedsim.run`.

    Raises:
        InputError: fewer than two, one of them twice, or no finished run.
    """
    from fedsim.audits.results import report as results  # noqa: PLC0415
    from fedsim.report import comparison  # noqa: PLC0415  (matplotlib)

    if len(runs) < 2:
        raise InputError("compare with what? Give two run directories or more")
    places = [run.path if isinstance(run, Run) else Path(run) for run in runs]
    reports = [results.read(RunDirectory.open(place)) for place in places]
    return Comparison(tuple(comparison.side_by_side(places, reports)))


def sweep(
    config: Given,
    over: Mapping[str, Sequence[Scalar]],
    out: Path | str,
    *,
    overrides: Overrides = None,
    progress: bool | None = None,
) -> Sweep:
    """Run an experiment for every combination of settings, as `fedsim sweep` does.

    All settings are checked before the first run. The same call again continues a sweep.

    Args:
        config: an experiment's file, a configuration, or dotted keys over the defaults.
        over: the values of each key; all combinations are run.
        out: the directory, where every run gets a folder.
        overrides: any other dotted keys, of all runs.
        progress: whether progress is shown; None where there is a terminal or a notebook.

    Returns:
        Every run's outcome; a run that failed has its `failure`.

    Raises:
        InputError: a setting that cannot be run, before anything is written.
    """
    return swept(config, over, Path(out), dict(overrides or {}), console(progress))


def swept(
    config: Given,
    over: Mapping[str, Sequence[Scalar]],
    out: Path,
    common: Mapping[str, Scalar],
    shown: "Console",
) -> Sweep:
    """Do what `sweep` does, with progress on a console.

    Args:
        config: as of `sweep`.
        over: the values of each key.
        out: the directory.
        common: dotted keys of all runs.
        shown: the console.

    Raises:
        InputError: as `sweep` does.
    """
    from fedsim.config.training import refuse_unless_classified  # noqa: PLC0415
    from fedsim.studies.choose import grid as grids  # noqa: PLC0415
    from fedsim.studies.choose import sweep as sweeps  # noqa: PLC0415

    points = grids.grid(over)
    grids.refuse_overlap(common, over)
    first = configured(config, {**common, **points[0].values})
    refuse_unless_classified(first.model.task, "fedsim sweep")
    name = first.run.name
    report_directory.check_new(out, replacing=sweeps.KIND)
    plans = []
    for point in points:
        own = {"run.out": str(out / point.name), "run.name": f"{name} {point.name}"}
        try:
            plans.append(experiment.prepare(configured(config, {**common, **point.values, **own})))
        except InputError as error:
            raise InputError(f"{point.name}: {error}") from None
    report_directory.create(out)
    outcomes = grids.carry_out(
        points,
        plans,
        lambda plan: experiment.in_process(plan, shown),
        lambda text: shown.print(text, highlight=False),
    )
    with report_directory.refusing(out):
        sweeps.write(name, outcomes, out)
    return Sweep(out, tuple(outcomes))


def tune(config: Given, *, models: int = 8, overrides: Overrides = None) -> "Tuning":
    """Choose rounds, clipping norm and learning rate on public records, as `fedsim tune` does.

    Args:
        config: a training's file, a configuration, or dotted keys over the defaults.
        models: how many are trained with each setting, 3 at least.
        overrides: any other dotted keys.

    Returns:
        What was tried; `best.changes` are the dotted keys to train with.

    Raises:
        InputError: too few public records or models, or clients that train by themselves.
    """
    from fedsim.studies.choose import tune as study  # noqa: PLC0415

    if models < 3:
        raise InputError(f"models is {models}; give 3 at least, since gains are compared")
    return study.tune(configured(config, overrides or {}, "training"), models)


def membership(
    config: Given, *, models: int = 128, overrides: Overrides = None, progress: bool | None = None
) -> Membership:
    """Play membership inference against a federation's models, as `fedsim membership` does.

    Args:
        config: an experiment's file, a configuration, or dotted keys over the defaults; its
            "audit.attacks" are played.
        models: how many to train; half are shadows, the others attacked.
        overrides: any other dotted keys.
        progress: whether a bar is shown; None where there is a terminal or a notebook.

    Raises:
        InputError: no attack, or a configuration that cannot be run.
    """
    from adversaries.attacks import membership_attacks  # noqa: PLC0415
    from fedsim.report.tracking.progress import measuring  # noqa: PLC0415
    from fedsim.studies.membership import membership_game, membership_report  # noqa: PLC0415

    chosen = configured(config, overrides or {})
    attacks = membership_attacks.chosen(chosen.audit.attacks)
    if not attacks:
        raise InputError("audit.attacks is 'none', which leaves nothing to play; name some, or all")
    start = time.perf_counter()
    with measuring(console(progress), "training") as bar:
        game = membership_game.play(chosen, models, bar)
    seconds = time.perf_counter() - start
    return Membership(membership_report.assemble(chosen, game, attacks, seconds))


def predict(
    model: Path | str,
    records: "Path | str | Tensor | npt.NDArray[np.float32]",
    *,
    network: "Builder | None" = None,
) -> "Predictions | Likelihoods | Numbers":
    """Apply a trained model to records, as `fedsim predict` does.

    Args:
        model: the run directory of a finished training, or its public/ that was handed on.
        records: their file, as the command takes it, or features [N, *shape].
        network: the class or function that was given to `train` as its model.

    Raises:
        InputError: no model, or records that it does not take.
    """
    import torch  # noqa: PLC0415

    from fedsim.learning.training import saved_model  # noqa: PLC0415

    if isinstance(records, Path | str):
        features = saved_model.read(Path(model), str(records))
    else:
        features = torch.as_tensor(records, dtype=torch.float32)
    return saved_model.predictions(Path(model), features, built_by(network))


def one_run(
    scores: "Path | str | tuple[npt.ArrayLike, npt.ArrayLike]",
    *,
    delta: float = ASSUMED,
    confidence: float = 0.95,
    guesses: int = 0,
    orthogonal: bool = False,
    trial: int | None = None,
) -> "OneRun":
    """Say what canaries prove of epsilon, as `fedsim one-run score` and `estimate` do.

    Args:
        scores: a run directory or an auditor's transcript, whose canaries are scored; a CSV of
            scores; or (included bool [m], scores float64 [m]), in or out by a fair coin.
        delta: at which epsilon is stated.
        confidence: of each bound.
        guesses: how many canaries to guess about; 0 for one in eight, -1 to try several.
        orthogonal: whether canaries lie along orthogonal directions: a third bound.
        trial: whose canaries; None for the first.

    Raises:
        InputError: scores or coins that no bound can be made of.
    """
    from fedsim.audits import one_run as audit  # noqa: PLC0415

    if isinstance(scores, tuple):
        coins, values = (np.asarray(each) for each in scores)
        read = (trial or 0, coins.astype(np.bool_), values.astype(np.float64))
    elif Path(scores).suffix == ".csv":
        read = audit.read_scores(Path(scores), trial)
    else:
        found = audit.scored(Path(scores))
        place = 0 if trial is None else found.trials.tolist().index(trial)
        read = (int(found.trials[place]), found.included[place], found.scores[place])
    return audit.estimate(*read, delta, confidence, guesses, orthogonal)


def sign(directory: Path | str, key: Path | str, out: Path | str | None = None) -> Path:
    """Write evidence of what a run or an audit found, as `fedsim sign` does.

    Args:
        directory: of a finished run or audit, or an audited transcript.
        key: an Ed25519 private key, PEM or of OpenSSH.
        out: where the evidence goes; None for evidence.json in the directory.

    Raises:
        InputError: nothing that can be signed, no such key, or a file that is there already.
    """
    from fedsim.report.evidence import signing  # noqa: PLC0415

    place, _ = signing.sign(Path(directory), Path(key), None if out is None else Path(out))
    return place


def verify(
    evidence: Path | str,
    key: Path | str | None = None,
    files: Path | str | None = None,
    as_signed: bool = False,
) -> "Verification":
    """Hold evidence against the files it is about, as `fedsim verify` does.

    Args:
        evidence: a file that `sign` wrote, or its directory.
        key: the public key of the trusted signer; None where it is unknown.
        files: where the signed files are; None for beside the evidence.
        as_signed: whether the report is taken as it was signed, and not made again.

    Raises:
        InputError: no evidence, several files of it, or no such key.
    """
    from fedsim.report.evidence import signing  # noqa: PLC0415

    places = [None if place is None else Path(place) for place in (key, files)]
    return signing.verify(Path(evidence), places[0], places[1], as_signed)
