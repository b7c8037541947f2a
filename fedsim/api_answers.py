"""The Python API's other functions, from data and sensitivity to one_run.

Each function does the same as the command of its name, and returns values.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.api import configured, console
from fedsim.api_studies import Given, Overrides
from fedsim.common import report_directory
from fedsim.privacy.delta import ASSUMED

if TYPE_CHECKING:  # torch, which takes a second
    from fedsim.audits.one_run import OneRun
    from fedsim.report.document.blocks import Block
    from fedsim.studies.guarantees.black_box import Function, PrivateResult


@dataclass(frozen=True)
class Answer:
    """The result of a command.

    Attributes:
        report: as in the command's --json.
        page: path of the page; None if none was written.
        blocks: the result as text and tables.
    """

    report: Mapping[str, Any] = field(repr=False)
    page: Path | None = None
    blocks: Sequence["Block"] = field(default=(), repr=False)

    def __repr__(self) -> str:
        from fedsim.report.document import terminal  # noqa: PLC0415

        page = "" if self.page is None else f"\nPage: {self.page}"
        return terminal.text(self.blocks) + page

    def _repr_html_(self) -> str:
        from fedsim.report.document import html  # noqa: PLC0415

        return html.fragment(self.blocks)


def data(config: Given | None = None, *, overrides: Overrides = None) -> Answer:
    """Return an experiment's records by client and label, or the data sets, as `fedsim data` does.

    Args:
        config: path of an experiment's file, a configuration, or dotted keys over the defaults;
            None for the list of data sets.
        overrides: other dotted keys.

    Raises:
        InputError: the data cannot be loaded, or not split among the clients.
    """
    from fedsim.report import distribution_report as pages  # noqa: PLC0415
    from fedsim.report.document.blocks import tabulated  # noqa: PLC0415

    if config is None:
        from fedsim.learning.data import dataset_cards  # noqa: PLC0415

        if overrides:
            raise InputError("overrides need a configuration; give config")
        sets = dataset_cards.listing()
        rows = [list(entry.values()) for entry in sets]
        return Answer({"datasets": sets}, None, [tabulated(list(sets[0]), rows)])
    report = pages.assemble(configured(config, overrides or {}, None).experiment)
    return Answer(report, None, pages.blocks(report))


def sensitivity(
    config: Given, *, top: int = 3, trials: int = 20, out: Path | str, overrides: Overrides = None
) -> Answer:
    """Find the pair of neighbouring data sets to audit, as `fedsim sensitivity` does.

    Args:
        config: path of an experiment's file, a configuration, or dotted keys over the defaults.
        top: number of pairs to measure from each end of the ranking.
        trials: number of trainings that measure local sensitivity.
        out: new directory of the page, which shows records.
        overrides: other dotted keys, such as "challenge.dissimilarity".

    Raises:
        InputError: the configuration has no such choice, or the directory has other files.
    """
    from fedsim.federation.server import plan  # noqa: PLC0415
    from fedsim.report.document.blocks import Prose, tabulated  # noqa: PLC0415
    from fedsim.studies.sensitivity import (  # noqa: PLC0415
        sensitivity_report,
        sensitivity_study,
    )

    chosen = configured(config, overrides or {})
    report_directory.check_new(Path(out))
    sensitivity_study.check_study(chosen.experiment, top, trials)
    batch = plan.fit_batch(chosen).trials.batch
    study = sensitivity_study.study(chosen.experiment, chosen.audit.confidence, batch, top, trials)
    page = sensitivity_report.write_sensitivity(study, Path(out))
    table = tabulated(sensitivity_report.headings(study), sensitivity_report.rows(study))
    verdict = map(Prose, sensitivity_report.verdict(study))
    return Answer(sensitivity_report.as_json(study), page, [*verdict, table])


def pac(
    function: "Function | str",
    data: "str | tuple[npt.ArrayLike, npt.ArrayLike]" = "digits",
    *,
    data_root: Path | str | None = None,
    rate: float = 0.5,
    budget: float = 1.0,
    simulations: int = 400,
    confidence: float = 0.95,
    seed: int = 0,
) -> "PrivateResult":
    """Release a function's result on a secret subset of records, as `fedsim pac` does.

    PAC privacy is not differential privacy: the budget is an average over subsets.

    Args:
        function: (features [n, *shape], labels [n], a random generator) -> numbers of one shape;
            or "mean" or "class-means".
        data: name of a data set, or (features, labels).
        data_root: folder or file of the data.
        rate: probability that a record is used.
        budget: information that may be released about the choice of records, in nats.
        simulations: number of simulated subsets that decide the noise.
        confidence: confidence of the noise, over simulations.
        seed: seed of the simulations. The operating system draws the subset and the noise.

    Returns:
        The result; only its `released` may be published.

    Raises:
        InputError: the function, the data or a number is not allowed.
    """
    from fedsim.game import given  # noqa: PLC0415
    from fedsim.learning.data import load  # noqa: PLC0415
    from fedsim.studies.guarantees import black_box  # noqa: PLC0415

    name = data if isinstance(data, str) else given.data(data)
    records = load(name, "" if data_root is None else str(data_root))
    return black_box.privatised(function, records, rate, budget, simulations, confidence, seed)


RECORDS = 100


def reconstruct(
    config: Given,
    *,
    candidates: int | None = None,
    column: str | None = None,
    prior: Literal["uniform", "data"] = "uniform",
    trials: int = 1000,
    out: Path | str | None = None,
    overrides: Overrides = None,
    progress: bool | None = None,
) -> Answer:
    """Measure how often a participant guesses a record, as `fedsim reconstruct` does.

    Args:
        config: path of an experiment's file, a configuration, or dotted keys over the defaults.
        candidates: number of records, one of which the training uses; None for 100. Give this or a
            column.
        column: column whose value of the target is guessed instead: "label", or one of a table.
        prior: prior of the column's values: "uniform", or "data" for their shares outside D.
        trials: number of trials.
        out: directory of the report; None writes nothing.
        overrides: other dotted keys.
        progress: whether to show a bar; None: only in a terminal or a notebook.

    Raises:
        InputError: the candidates do not exist, options exclude each other, or the configuration
            cannot be played.
    """
    from fedsim.federation.server import plan  # noqa: PLC0415
    from fedsim.game import challenge, federation  # noqa: PLC0415
    from fedsim.game.mechanisms import privacy  # noqa: PLC0415
    from fedsim.report.tracking.progress import measuring  # noqa: PLC0415
    from fedsim.studies import rounds  # noqa: PLC0415
    from fedsim.studies.reconstruction import candidate_game, candidate_report  # noqa: PLC0415

    if column is not None and candidates is not None:
        raise InputError(
            "candidates and column are both given; give a number of records, or a column whose "
            "values are the candidates"
        )
    if column is None and prior != "uniform":
        raise InputError(
            f"prior is {prior}, but candidates that are records are all equally likely; give a "
            "column, or leave the prior out"
        )
    if out is not None:
        report_directory.check_new(Path(out))
    start = time.perf_counter()
    chosen = configured(config, {**(overrides or {}), "trials.count": trials})
    rounds.refuse_unplayed(chosen.game, rounds.RECONSTRUCT)
    loaded, record = federation.load(chosen.experiment), challenge.choose(chosen.experiment).record
    assert record is not None  # the target is a record
    if column is None:
        count = RECORDS if candidates is None else candidates
        these = candidate_game.of_records(loaded, record, count, chosen.run.seed)
    else:
        these = candidate_game.of_column(loaded, record, column, prior)
    nominal = privacy.noise_multiplier(chosen.scheme)
    noise = candidate_game.RoundNoise.of(chosen.scheme, nominal)
    batch = plan.fit_batch(chosen).trials.batch
    with measuring(console(progress), "training") as bar:
        played = candidate_game.play(chosen.game, loaded, record, these, noise, trials, batch, bar)
    report = candidate_report.ReconstructionReport(
        chosen,
        column,
        prior,
        nominal,
        candidate_game.mechanism(chosen.scheme, nominal),
        these,
        played,
        time.perf_counter() - start,
    )
    page = None if out is None else candidate_report.write_reconstruction(report, Path(out))
    return Answer(report.as_json(), page, candidate_report.blocks(report))


def one_run(
    scores: "Path | str | tuple[npt.ArrayLike, npt.ArrayLike]",
    *,
    delta: float = ASSUMED,
    confidence: float = 0.95,
    guesses: int = 0,
    trial: int | None = None,
) -> "OneRun":
    """Return lower bounds on epsilon from canaries, as `fedsim one-run estimate` computes them.

    Args:
        scores: run directory or auditor's transcript, whose canaries are then scored; a CSV of
            scores; or (included bool [m], scores float64 [m]), included by a fair coin.
        delta: delta of epsilon.
        confidence: confidence of each bound, in (0, 1).
        guesses: number of canaries to guess; 0 for one in eight, -1 to try several numbers.
        trial: number of the trial of a file to audit; None for the first.

    Raises:
        InputError: the scores or coins allow no bound.
    """
    from fedsim.audits import one_run as audit  # noqa: PLC0415

    if isinstance(scores, tuple):
        if trial is not None:
            raise InputError(f"trial is {trial}, but arrays are of one trial; leave trial out")
        coins, values = (np.asarray(each) for each in scores)
        if not np.isin(coins, (0, 1)).all():
            raise InputError(
                "The first array holds other values than true and false; give the arrays as "
                "(included, scores)."
            )
        observed = (0, coins.astype(np.bool_), values.astype(np.float64))
    elif Path(scores).suffix == ".csv":
        observed = audit.read_scores(Path(scores), trial)
    else:
        every = audit.scored(Path(scores))
        trials = every.trials.tolist()
        if trial not in (None, *trials):
            raise InputError(f"'{scores}' has no trial {trial}; it has {trials[0]} to {trials[-1]}")
        place = 0 if trial is None else trials.index(trial)
        observed = (int(every.trials[place]), every.included[place], every.scores[place])
    return audit.estimate(*observed, delta, confidence, guesses)


def draw_canaries(config: Given, *, overrides: Overrides = None) -> Mapping[str, Any]:
    """Return the canaries of a configuration, as `fedsim one-run draw` writes them.

    The result contains the coins, so do not use it to make guesses.

    Args:
        config: path of an experiment's file, a configuration, or dotted keys over the defaults.
        overrides: other dotted keys.

    Raises:
        InputError: the configuration has no canaries, or they cannot be planted.
    """
    from fedsim.audits import one_run  # noqa: PLC0415
    from fedsim.game import federation  # noqa: PLC0415

    chosen = configured(config, overrides or {})
    return one_run.drawn(chosen.game, federation.load(chosen.experiment))
