"""`fedsim.run`, `fedsim.train`, `fedsim.load`: from a configuration to a finished run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError, InterruptedRunError
from fedsim.commands import settings
from fedsim.commands.answer import Answer, fields_of_audit, lines
from fedsim.commands.settings import Arrays, Attacks, Change, Given, Network, Progress
from fedsim.configuration import Config
from fedsim.federation.runs.run_directory import RunDirectory

if TYPE_CHECKING:  # slow to import
    from rich.console import RenderableType
    from torch.nn import Module

    from adversaries.arrays import Bools, Floats
    from fedsim.audits.run.report import RunReport
    from fedsim.commands.terminal import Terminal
    from fedsim.federation.runtimes.workers import Workers
    from fedsim.federation.server.plan import Plan


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Run(Answer):
    """A finished run: T trials of k rounds.

    Its details are the content of report.json as values, of which `details` has what only a run
    has; None stands for a number that was not measured.

    Attributes:
        path: run directory.
        config: the resolved configuration.
        transcript: arrays of transcript.npz by name.
    """

    path: Path
    config: Config
    transcript: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)

    @property
    def worlds(self) -> "Bools":
        """Trials that trained with the target: bool [T]."""
        return self.transcript["worlds"]

    @property
    def log_odds(self) -> "Floats":
        """The adversary's log-odds that the target was used, after each round: float64 [T, k]."""
        return self.transcript["log_odds"]

    @property
    def beliefs(self) -> "Floats":
        """The adversary's belief that the target was used, after each round: float64 [T, k]."""
        from scipy.special import expit  # noqa: PLC0415

        return np.asarray(expit(self.log_odds), np.float64)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Training(Answer):
    """A finished training.

    Attributes:
        path: run directory; its public/ holds the model and its card.
        config: the resolved configuration.
    """

    path: Path
    config: Config

    def model(self, network: Network = None) -> "Module":
        """Return the model, which maps records [N, *shape] to logits.

        Args:
            network: the network that `train` took, if another process trained it.

        Raises:
            InputError: the model is damaged, or of another network.
        """
        return load_model(self.path, model=network)

    def terminal(
        self, command: str = "", seconds: float | None = None, *, verbose: bool = False
    ) -> "RenderableType":
        """Return the answer as the command prints it, and where the model is.

        Args:
            command: command that was typed; "" in Python.
            seconds: time that it took; None if unknown.
            verbose: whether all that a screen has no room for follows.
        """
        from rich.console import Group  # noqa: PLC0415

        said = super().terminal(command, seconds, verbose=verbose)
        return Group(said, lines(f"Model and card: {self.path / 'public'}")())


def run(
    config: Given,
    /,
    *changes: Change,
    model: Network = None,
    data: Arrays = None,
    attacks: Attacks = None,
    out: Path | None = None,
    simulation: bool = False,
    workers: int | None = None,
    cluster: str | None = None,
    cluster_tls: Path | None = None,
    insecure: bool = False,
    track: list[str] | None = None,
    progress: Progress = None,
) -> Run:
    """Run a federation with the adversary inside it, and report how identifiable one person is.

    Trains T independent repetitions of the federation, half of them with the target record and half
    without it. The adversary guesses which is which. Writes a run directory with report.html,
    report.json and the transcript. The configuration of a training is rehearsed: its noise then
    comes from a seed, and its records must be public.

    The same command again, or its directory, continues an interrupted run.

    Example: fedsim run digits trials.count=400 privacy.rho-beta=0.75 --out fedsim-runs/first

    Args:
        config: experiment file (TOML), bundled name, or run directory to continue. In Python also a
            configuration, or dotted keys over the defaults.
        changes: changes of configuration keys, as KEY=VALUE. In Python also mappings.
        model: class of a network, or a function that builds one, in place of model.name. It takes
            no arguments, or (shape of a record, classes, hidden width).
        data: (features, labels), in place of data.name: numbers [N, F] or images [N, H, W] or
            [N, C, H, W], and labels [N].
        attacks: functions (targets, shadows or None) -> scores [N, n], `Attack`s of
            `adversaries.attacks.membership_attacks` or their names, in place of audit.attacks.
        out: run directory. Default: fedsim-runs/NAME-TIME.
        simulation: use Flower's simulation, which needs Ray, in place of this process.
        workers: number of processes of this machine that train batches of trials.
        cluster: address of a Dask scheduler whose workers train batches of trials.
        cluster_tls: certificates of the cluster: a folder with ca.pem, cert.pem and key.pem.
        insecure: reach a scheduler on another machine without TLS.
        track: tracker to log to: tensorboard:DIR, mlflow:DIR or mlflow:URI. May be repeated.
        progress: whether to show a bar; None: only in a terminal or a notebook.

    Returns:
        The finished run.

    Raises:
        InputError: the configuration cannot be run. Raised before anything is written.
    """
    placed = settings.workers_of(workers, cluster, cluster_tls, insecure, simulation)
    own = {"model.name": model, "data.name": data, "audit.attacks": attacks, "run.out": out}
    console = settings.console(progress)
    directory = _carried_out(
        config, settings.changed(changes, own), console, placed, simulation, track
    )
    return load(directory.path)


def train(
    config: Given,
    /,
    *changes: Change,
    model: Network = None,
    data: Arrays = None,
    out: Path | None = None,
    simulation: bool = False,
    track: list[str] | None = None,
    progress: Progress = None,
) -> Training:
    """Train a model with differential privacy, once, and keep it.

    There is no adversary and no repetition, and the noise comes from the operating system. The run
    directory's public/ holds model.safetensors, model.toml and MODEL_CARD.md, which states the
    model's privacy. report.html beside it is for the operator of the server.

    The same command again continues an interrupted training, and so does its directory.

    Example: fedsim train train-digits --out fedsim-runs/digits-model

    What the same training would tell an adversary: fedsim run train-digits

    Args:
        config: configuration of a training (TOML), bundled name, or run directory to continue. In
            Python also a configuration, or dotted keys over the defaults.
        changes: changes of configuration keys, as KEY=VALUE. In Python also mappings.
        model: class of a network, or a function that builds one, as for `run`.
        data: (features, labels), as for `run`.
        out: run directory. Default: fedsim-runs/NAME-TIME.
        simulation: use Flower's simulation, which needs Ray, in place of this process.
        track: tracker to log to: tensorboard:DIR, mlflow:DIR or mlflow:URI. May be repeated.
        progress: whether to show a bar; None: only in a terminal or a notebook.

    Returns:
        The training, with the path of its run directory.

    Raises:
        InputError: the configuration cannot be trained. Raised before anything is written.
    """
    begun = Path(str(config)) if settings.is_run(config) else None
    if begun is not None and RunDirectory.open(begun).config.run.job != "training":
        raise InputError(f"'{config}' is not a training; continue it with fedsim run {config}")
    own = {"model.name": model, "data.name": data, "run.out": out}
    changed, console = settings.changed(changes, own), settings.console(progress)
    return trained(_carried_out(config, changed, console, None, simulation, track, "training"))


def load(path: Path | str) -> Run:
    """Return a finished run from its directory.

    Args:
        path: run directory.

    Raises:
        InputError: the path is not a run directory, or a file is damaged.
    """
    from fedsim.audits.run import report as results  # noqa: PLC0415
    from fedsim.federation.runs import run_transcript  # noqa: PLC0415  (torch is slow to import)

    directory = RunDirectory.open(Path(path))
    return answer_of(directory, results.read(directory), run_transcript.read(directory))


def answer_of(
    directory: RunDirectory, read: "RunReport", transcript: Mapping[str, npt.NDArray[Any]]
) -> Run:
    """Return the answer of a run.

    Args:
        directory: of the run.
        read: its report.
        transcript: arrays of its transcript by name.
    """
    from fedsim.audits.run import report as results  # noqa: PLC0415
    from fedsim.reports import page  # noqa: PLC0415

    return Run(
        **fields_of_audit(read),
        path=directory.path,
        page=directory.path / "report.html",
        config=directory.config,
        transcript=transcript,
        warnings=results.cautions(read),
        _told=lambda: page.told(read, page.Pictures(read, transcript), page.about(directory)),
    )


def trained(directory: RunDirectory) -> Training:
    """Return the answer of a finished training."""
    from fedsim.reports import model_card, training_report  # noqa: PLC0415  (torch is slow)

    card = model_card.read_card(directory)
    report = training_report.assemble(directory, card)
    own: dict[str, Any] = {
        "table": [{"observer": row.vantage, **row.epsilon} for row in card.privacy.towards],
        "path": directory.path,
        "page": directory.path / "report.html",
        "config": directory.config,
        "details": card,
        "_told": lambda: training_report.told(report, card),
    }
    return Training(**fields_of_audit(report) | own)


def load_model(path: Path | str, *, model: Network = None) -> "Module":
    """Return a trained model, which maps records [N, *shape] to logits and is ready to predict.

    Args:
        path: run directory of a finished training.
        model: the network that `train` took, if another process trained it.

    Raises:
        InputError: the directory has no model, a damaged one, or one of another network.
    """
    from fedsim.learning.training import saved_model  # noqa: PLC0415  (torch is slow to import)

    return saved_model.load(Path(path), built_by(model))


def built_by(model: Network) -> str:
    """Return the registered name of a network's class or function; "" for None."""
    from fedsim.game import given  # noqa: PLC0415

    return "" if model is None else given.model(model)


def _carried_out(
    config: Given,
    changes: Mapping[str, Any],
    console: "Terminal",
    workers: "Workers | None",
    simulation: bool,
    track: Sequence[str] | None,
    job: str | None = None,
) -> RunDirectory:
    """Carry out a new run or training, or what is left of one; return its directory."""
    from fedsim import experiment  # noqa: PLC0415
    from fedsim.reports.tracking import trackers  # noqa: PLC0415

    if simulation:
        from fedsim.federation.runtimes.simulation import require_ray  # noqa: PLC0415

        require_ray()
    named = trackers.every(track)
    if settings.is_run(config):
        directory = _continued(Path(str(config)), changes, job)
        plan = None
        if not directory.finished:
            plan = experiment.prepare(directory.config, workers=workers, simulated=simulation)
    else:
        chosen = _of_job(config, changes, job)
        plan = experiment.prepare(chosen, workers=workers, simulated=simulation)
        directory = _begin(plan, console)
    if directory.finished or plan is None:
        console.print(
            f"'{directory.path}' holds this run, finished; this is its result. For another run, "
            "name a new directory with --out",
            soft_wrap=True,
            highlight=False,
        )
    else:
        _execute(plan, directory, simulation, console, named, workers)
    return directory


def _of_job(config: Given, changes: Mapping[str, Any], job: str | None) -> Config:
    """Return the configuration of a new run; without a job, that of a training's rehearsal."""
    if job is None:
        own = settings.configured(config, changes, None).run.job
        job = "rehearsal" if own == "training" else own
    return settings.configured(config, changes, job)


def _continued(path: Path, changes: Mapping[str, Any], job: str | None) -> RunDirectory:
    """Open a run to continue it as it began. Raises InputError."""
    directory = RunDirectory.open(path)
    if job is None and directory.config.run.job == "training":
        raise InputError(f"'{path}' is a training; continue it with fedsim train {path}")
    if job is not None and changes:
        raise InputError(
            f"'{path}' is a training, which continues as it began; leave {next(iter(changes))} out"
        )
    if changes:
        raise InputError(
            f"'{path}' is a run, which continues with its own configuration; leave out "
            f"{next(iter(changes))}, or begin another run with {path / 'config.toml'} and --out "
            "NEW_DIR"
        )
    return directory


def _begin(plan: "Plan", console: "Terminal") -> RunDirectory:
    """Begin a prepared run, and return its directory."""
    from fedsim.privacy import delta  # noqa: PLC0415
    from fedsim.reports.tracking import progress as shown  # noqa: PLC0415

    records = plan.config.data.records
    if plan.config.privacy.delta == delta.of_records(records):
        console.print(
            f"δ = {plan.config.privacy.delta:.3g}, 1/(10·{records}) for {records} records "
            "(privacy.delta)",
            highlight=False,
        )
    with shown.measuring(console, "choosing the challenge", "preparing") as searched:
        return plan.begin(searched)


def _execute(
    plan: "Plan",
    directory: RunDirectory,
    simulation: bool,
    console: "Terminal",
    named: Mapping[str, Any],
    workers: "Workers | None" = None,
) -> None:
    """Train the remaining part of a run."""
    from fedsim import experiment  # noqa: PLC0415
    from fedsim.reports.tracking import progress as shown  # noqa: PLC0415

    with directory.lock():  # refuse before a runtime starts its processes, which takes long
        plan.left(directory)  # raises where the rest of the budget does not suffice
    try:
        with (
            experiment.batch_trainer(workers, console) as trainer,
            shown.progress(directory, console, named),
        ):
            if simulation:
                experiment.run_simulated(directory)
            else:
                experiment.run_in_process(plan, directory, trainer)
    except KeyboardInterrupt:
        raise InterruptedRunError(
            f"interrupted; the finished part is kept. To continue, run {directory.resumed_by}"
        ) from None
