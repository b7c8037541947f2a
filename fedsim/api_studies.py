"""The Python API beyond a single run, from train and rehearse to verify.

Each function does the same as the command of its name, and returns values.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim import api, experiment
from fedsim.api import Builder, Run, combined, configured, console
from fedsim.config import Config
from fedsim.federation.runs.run_directory import RunDirectory

if TYPE_CHECKING:  # torch, which takes a second
    from matplotlib.figure import Figure
    from rich.console import Console
    from torch import Tensor
    from torch.nn import Module

    from fedsim.federation.runtimes.dask_pool import Address
    from fedsim.learning.training.predictions import Likelihoods, PredictedNumbers, Predictions
    from fedsim.report.kinds.verification import Verification
    from fedsim.studies.membership.membership_report import MembershipReport

Given = Path | str | Config | Mapping[str, Any]
Overrides = Mapping[str, Any] | None


@dataclass(frozen=True)
class Comparison:
    """Runs side by side.

    Attributes:
        rows: one for each run and vantage, as in `fedsim report RUN RUN --json`.
    """

    rows: tuple[dict[str, Any], ...]

    def _repr_html_(self) -> str:
        from fedsim.report import comparison  # noqa: PLC0415
        from fedsim.report.document import html  # noqa: PLC0415

        return html.fragment(comparison.blocks(self.rows))


@dataclass(frozen=True)
class Membership:
    """The results of membership inference attacks."""

    _result: "MembershipReport" = field(repr=False)

    @property
    def report(self) -> Mapping[str, Any]:
        """The report, as in `fedsim membership --json`."""
        return self._result.as_json()

    def figures(self) -> dict[str, "Figure"]:
        """Return the ROC curves of the best attacks, beside the limit by theory."""
        from fedsim.studies.membership import membership_report as page  # noqa: PLC0415

        return {"roc": page.roc(self._result).figure}

    def _repr_html_(self) -> str:
        from fedsim.report.document import html  # noqa: PLC0415
        from fedsim.report.document.blocks import Prose, tabulated  # noqa: PLC0415
        from fedsim.studies.membership import membership_report as page  # noqa: PLC0415

        table = tabulated(page.headings(self._result), page.rows(self._result))
        return html.fragment([*map(Prose, page.verdict(self._result)), table, Prose(page.LABEL)])


def train(
    config: Given = MappingProxyType({}),
    *,
    model: "Builder | None" = None,
    data: "tuple[npt.ArrayLike, npt.ArrayLike] | None" = None,
    out: Path | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    progress: bool | None = None,
) -> Path:
    """Train a model with differential privacy, once, in this process, as `fedsim train` does.

    With the same configuration and directory, continues an interrupted training.

    Args:
        config: path of a training's file, a configuration, or dotted keys over the defaults.
        model: class of a network, or a function that builds one, as for `run`.
        data: (features, labels), as for `run`.
        out: run directory ("run.out"); None for fedsim-runs/NAME-TIME.
        overrides: other dotted keys.
        progress: whether to show a bar; None: only in a terminal or a notebook.

    Returns:
        The run directory, which holds the model and its card. `load_model` reads it.

    Raises:
        InputError: the configuration cannot be trained. Raised before anything is written.
    """
    values = {"model.name": model, "data.name": data, "run.out": out}
    plan = experiment.prepare(configured(config, combined(overrides, values), "training"))
    return experiment.in_process(plan, console(progress)).path


def cluster(
    address: str, *, certificates: Path | str | None = None, insecure: bool = False
) -> "Address":
    """Return a running Dask cluster, for the argument `workers` of other functions.

    Every holder of its keys can run code on its machines, so use your own.

    Args:
        address: address of the scheduler, as "HOST:PORT".
        certificates: folder with ca.pem, cert.pem and key.pem; None without TLS.
        insecure: whether to reach a scheduler on another machine without TLS.

    Raises:
        InputError: the address is invalid, or a certificate or TLS is missing.
    """
    from fedsim.federation.runtimes.dask_pool import Address  # noqa: PLC0415  (torch)

    return Address.of(address, None if certificates is None else Path(certificates), insecure)


def load_model(path: Path | str, *, model: "Builder | None" = None) -> "Module":
    """Return a trained model, which maps records [N, *shape] to logits and is ready to predict.

    Args:
        path: run directory of a finished training.
        model: the model argument of `train`, if another process trained it.

    Raises:
        InputError: the directory has no model, a damaged one, or one of another network.
    """
    from fedsim.learning.training import saved_model  # noqa: PLC0415  (torch is slow to import)

    return saved_model.load(Path(path), built_by(model))


def built_by(model: "Builder | None") -> str:
    """Return the registered name of a network's class or function; "" for None."""
    from fedsim.game import given  # noqa: PLC0415

    return "" if model is None else given.model(model)


def rehearse(
    config: Given,
    *,
    trials: int | None = None,
    seed: int | None = None,
    out: Path | str | None = None,
    overrides: Overrides = None,
    progress: bool | None = None,
) -> Run:
    """Play the identification game for a training, as `fedsim rehearse` does; return the run.

    Args:
        config: path of a training's file, a configuration, or dotted keys over the defaults.
        trials: number of trials ("trials.count").
        seed: seed of all random numbers ("run.seed").
        out: run directory ("run.out"); None for fedsim-runs/NAME-TIME.
        overrides: other dotted keys.
        progress: whether to show a bar; None: only in a terminal or a notebook.

    Raises:
        InputError: the configuration cannot be rehearsed. Raised before anything is written.
    """
    values = {"trials.count": trials, "run.seed": seed, "run.out": out}
    plan = experiment.prepare(configured(config, combined(overrides, values), "rehearsal"))
    return api.load(experiment.in_process(plan, console(progress)).path)


def compare(*runs: Path | str | Run) -> Comparison:
    """Return a comparison of finished runs, with every trust model and vantage side by side.

    Args:
        runs: two or more run directories or results of `fedsim.run`.

    Raises:
        InputError: there are fewer than two runs, a run is given twice, or it is not finished.
    """
    from fedsim.audits.results import report as results  # noqa: PLC0415
    from fedsim.report import comparison  # noqa: PLC0415  (matplotlib)

    if len(runs) < 2:
        raise InputError("compare needs two or more runs; give another run directory")
    places = [run.path if isinstance(run, Run) else Path(run) for run in runs]
    reports = [results.read(RunDirectory.open(place)) for place in places]
    return Comparison(tuple(comparison.side_by_side(places, reports)))


def membership(
    config: Given,
    *,
    models: int = 128,
    overrides: Overrides = None,
    progress: bool | None = None,
) -> Membership:
    """Run membership inference attacks on a federation's models, as `fedsim membership` does.

    Args:
        config: path of an experiment's file, a configuration, or dotted keys over the defaults.
            "audit.attacks" names the attacks.
        models: number of models to train. Half are shadow models, the others are attacked.
        overrides: other dotted keys.
        progress: whether to show a bar; None: only in a terminal or a notebook.

    Raises:
        InputError: there is no attack, or the configuration cannot be run.
    """
    return Membership(attacked(config, models, overrides or {}, console(progress)))


def attacked(
    config: Given,
    models: int,
    overrides: Mapping[str, Any],
    shown: "Console",
) -> "MembershipReport":
    """Do the same as `membership`, with progress on a console."""
    from adversaries.attacks import membership_attacks  # noqa: PLC0415
    from fedsim.report.tracking.progress import measuring  # noqa: PLC0415
    from fedsim.studies.membership import membership_game, membership_report  # noqa: PLC0415

    chosen = configured(config, overrides)
    attacks = membership_attacks.chosen(chosen.audit.attacks)
    if not attacks:
        raise InputError('audit.attacks is "none"; name one or more attacks, or "all"')
    start = time.perf_counter()
    with measuring(shown, "training") as bar:
        game = membership_game.play(chosen, models, bar)
    seconds = time.perf_counter() - start
    confidence = chosen.audit.confidence
    return membership_report.assemble(chosen.experiment, confidence, game, attacks, seconds)


def predict(
    model: Path | str,
    records: "Path | str | Tensor | npt.NDArray[np.float32]",
    *,
    network: "Builder | None" = None,
) -> "Predictions | Likelihoods | PredictedNumbers":
    """Return a trained model's predictions for records, as `fedsim predict` does.

    Args:
        model: run directory of a finished training, or a copy of its public/.
        records: path of their file, as for the command, or features [N, *shape].
        network: the model argument of `train`, if there was one.

    Raises:
        InputError: the directory has no model, or the records do not fit it.
    """
    import torch  # noqa: PLC0415

    from fedsim.learning.training import saved_model  # noqa: PLC0415

    if isinstance(records, Path | str):
        features = saved_model.read_features(Path(model), str(records))
    else:
        features = torch.as_tensor(records, dtype=torch.float32)
    return saved_model.predictions(Path(model), features, built_by(network))


def verify(directory: Path | str) -> "Verification":
    """Compare a result with its SHA256SUMS, and its report and pages with those made again.

    Writes SHA256SUMS where there is none, as `fedsim verify` does.

    Args:
        directory: directory of a finished run or audit.

    Raises:
        InputError: the directory is no finished result, or a file cannot be read.
    """
    from fedsim.report.kinds import verification  # noqa: PLC0415

    return verification.verify(Path(directory))
