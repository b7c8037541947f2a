"""The Python API's questions: records, targets, noise for a function, trials, the sources' items.

Each function is what the command of its name calls, and returns values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy.typing as npt

from adversaries.errors import InputError
from fedsim.api import configured, console
from fedsim.api_studies import Given, Overrides
from fedsim.common import report_directory
from fedsim.config import Config
from fedsim.federation.runs.run_directory import RunDirectory

if TYPE_CHECKING:  # torch, which takes a second
    from fedsim.learning.data import Dataset
    from fedsim.report.document.blocks import Block
    from fedsim.studies.guarantees.black_box import Function, PrivateResult
    from fedsim.studies.reproduction.session import Made


@dataclass(frozen=True)
class Answer:
    """What a command found.

    Attributes:
        report: what the command prints with --json.
        page: the page that was written; None where no directory was given.
    """

    report: Mapping[str, Any] = field(repr=False)
    page: Path | None = None
    _blocks: Sequence["Block"] = field(default=(), repr=False)

    def __repr__(self) -> str:
        from fedsim.report.document import terminal  # noqa: PLC0415

        page = "" if self.page is None else f"\nPage: {self.page}"
        return terminal.text(self._blocks) + page

    def _repr_html_(self) -> str:
        from fedsim.report.document import html  # noqa: PLC0415

        return html.fragment(self._blocks)


@dataclass(frozen=True)
class Reproduction:
    """Items of the sources that were made again.

    Attributes:
        page: with everything that is kept in its directory.
        made: those items, each with its numbers beside the source's.
        skipped: titles of those that were not made, each with the reason.
    """

    page: Path
    made: tuple["Made", ...] = field(repr=False)
    skipped: Mapping[str, str]

    def _repr_html_(self) -> str:
        from fedsim.report.document import html  # noqa: PLC0415
        from fedsim.report.document.blocks import Prose  # noqa: PLC0415
        from fedsim.studies.reproduction import page  # noqa: PLC0415

        verdict = map(Prose, page.verdict(self.made))
        return html.fragment([*verdict, *page.blocks(self.made, self.skipped)])


def data(
    config: Given | None = None, *, out: Path | str | None = None, overrides: Overrides = None
) -> Answer:
    """Say which data sets there are, or who holds which records, as `fedsim data` does.

    Args:
        config: an experiment's file, a configuration, or dotted keys over the defaults; None for
            the list of data sets.
        out: a directory for a page; None for none.
        overrides: any other dotted keys.

    Raises:
        InputError: data that cannot be loaded or split among the clients.
    """
    from fedsim.report import distribution_report as pages  # noqa: PLC0415
    from fedsim.report.document.blocks import tabulated  # noqa: PLC0415

    if config is None:
        from fedsim.learning.data import dataset_cards  # noqa: PLC0415

        if out is not None or overrides:
            raise InputError("whose data? out and overrides go with a configuration")
        sets = dataset_cards.listing()
        rows = [list(entry.values()) for entry in sets]
        return Answer({"datasets": sets}, None, [tabulated(list(sets[0]), rows)])
    directory = None if out is None else Path(out)
    if directory is not None:
        report_directory.check_new(directory)
    report, page = pages.assemble(configured(config, overrides or {}, None)), None
    if directory is not None:
        with report_directory.refusing(directory):
            page = pages.write(report, directory)
    return Answer(report, page, pages.blocks(report))


def sensitivity(
    config: Given,
    *,
    top: int = 3,
    trials: int = 20,
    out: Path | str,
    overrides: Overrides = None,
) -> Answer:
    """Find the pair of neighbouring data sets to audit, as `fedsim sensitivity` does.

    Args:
        config: an experiment's file, a configuration, or dotted keys over the defaults.
        top: how many of the most and of the least dissimilar pairs are followed.
        trials: trainings that local sensitivity is followed through.
        out: a new directory for the page, which shows records.
        overrides: any other dotted keys, such as "challenge.dissimilarity".

    Raises:
        InputError: a configuration without such a choice, or a directory with other files.
    """
    from fedsim.report.document.blocks import Prose, tabulated  # noqa: PLC0415
    from fedsim.studies.sensitivity import (  # noqa: PLC0415
        sensitivity_report,
        sensitivity_study,
        sensitivity_values,
    )

    chosen = configured(config, overrides or {})
    report_directory.check_new(Path(out))
    sensitivity_study.check(chosen, top, trials)
    study = sensitivity_study.study(chosen, top, trials)
    report = sensitivity_values.assemble(study)
    with report_directory.refusing(Path(out)):
        page = sensitivity_report.write(study, report, Path(out))
    table = tabulated(sensitivity_report.headings(report), sensitivity_report.rows(report))
    verdict = map(Prose, sensitivity_report.verdict(report))
    return Answer(report, page, [*verdict, table])


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
    """Release what a function makes of a secret subset, with PAC noise, as `fedsim pac` does.

    It is no differential privacy: the budget is an average over subsets.

    Args:
        function: (features [n, *shape], labels [n], a random generator) -> numbers of one shape;
            or "mean", "class-means".
        data: a data set's name, or (features, labels).
        data_root: where its files are.
        rate: the probability that a record is used.
        budget: what may be told about which records were used, in nats.
        simulations: simulated subsets that the noise is made from.
        confidence: of the noise over simulations.
        seed: of the simulations; the subset and the noise are of the operating system's entropy.

    Returns:
        The result; `released` is the vector that may be seen.

    Raises:
        InputError: a function or data that do not do, or numbers out of range.
    """
    from fedsim.studies.guarantees import black_box  # noqa: PLC0415

    records = _records(data, data_root)
    return black_box.privatised(function, records, rate, budget, simulations, confidence, seed)


def _records(
    data: "str | tuple[npt.ArrayLike, npt.ArrayLike]", root: Path | str | None
) -> "Dataset":
    from fedsim.game import given  # noqa: PLC0415
    from fedsim.learning.data import load  # noqa: PLC0415

    name = data if isinstance(data, str) else given.data(data)
    return load(name, "" if root is None else str(root))


def trials(
    source: Given | None = None,
    *,
    advantage: float | None = None,
    halfwidth: float = 0.05,
    confidence: float | None = None,
    delta: float | None = None,
    share: float = 0.5,
) -> Answer:
    """Say how many trials an interval of a wanted width needs, as `fedsim trials` does.

    Args:
        source: a run directory, or a configuration as `fedsim.run` takes it.
        advantage: the one that is expected, instead of a source.
        halfwidth: the advantage is wanted ± this.
        confidence: of the interval; None for the source's, or 0.95.
        delta: of lower bounds on epsilon; None for the source's, or 1e-5.
        share: of the true epsilon, that lower bounds are to reach.

    Raises:
        InputError: no advantage or two, or numbers out of range.
    """
    from fedsim.report.document.blocks import tabulated  # noqa: PLC0415
    from fedsim.report.document.wording import number  # noqa: PLC0415
    from fedsim.studies.guarantees import trials_needed  # noqa: PLC0415
    from fedsim.studies.guarantees.trials_needed import Expected  # noqa: PLC0415

    name = "the configuration" if isinstance(source, Config | Mapping) else str(source)
    if source is None and advantage is None:
        raise InputError("which advantage is expected? Give a configuration, or an advantage")
    if source is not None and advantage is not None:
        raise InputError(
            f"'{name}' says which advantage is expected, and so does {advantage:g}; drop one"
        )
    if advantage is not None and not 0 <= advantage < 1:
        raise InputError(
            f"the advantage is {advantage:g}; give a number of at least 0 and below 1, such as 0.2"
        )
    if not 0 < share < 1:
        raise InputError(f"the share is {share}; give a number between 0 and 1, such as 0.5")
    if source is None:
        expected = Expected(advantage)
    elif isinstance(source, Path | str) and Path(source).is_dir():
        run = RunDirectory.open(Path(source))
        expected = trials_needed.expected(Expected(config=run.config), str(source), run)
    else:
        expected = trials_needed.expected(Expected(config=configured(source, {})), name)
    if confidence is not None:
        expected = replace(expected, level=confidence)
    if delta is not None:
        expected = replace(expected, delta=delta)
    report = trials_needed.document(expected, halfwidth, share)
    rows = [
        [row["design"], number(row["trials"]), number(row["at_most"])] for row in report["trials"]
    ]
    return Answer(report, None, [tabulated(["trials are played", "needed", "at most"], rows)])


def draw_canaries(config: Given, *, overrides: Overrides = None) -> Mapping[str, Any]:
    """Return the canaries that a configuration plants, as `fedsim one-run draw` writes them.

    Who has them knows the coins; guesses must not be made with these.

    Args:
        config: an experiment's file, a configuration, or dotted keys over the defaults.
        overrides: any other dotted keys.

    Raises:
        InputError: it plants none, or cannot plant them.
    """
    from fedsim.audits import one_run  # noqa: PLC0415
    from fedsim.game import federation  # noqa: PLC0415

    chosen = configured(config, overrides or {})
    return one_run.drawn(chosen.game, federation.load(chosen))


def reproduce(
    source: str | None = None,
    items: Sequence[str] = (),
    *,
    data_root: Path | str | None = None,
    scale: Literal["full", "smoke"] = "full",
    out: Path | str = "fedsim-runs/reproduction",
    progress: bool | None = None,
) -> Reproduction:
    """Make tables and figures of the sources again, as `fedsim reproduce` does.

    What is kept in the directory is not made again.

    Args:
        source: whose; None for all, which takes hours.
        items: which of them; () for all.
        data_root: a folder with mnist/, adult/ and so on.
        scale: "full" as published; "smoke" in seconds, to see that it works.
        out: where items, runs and the page are kept.
        progress: whether it says what it makes; None where there is a terminal or a notebook.

    Raises:
        InputError: no such source, item or folder.
    """
    from fedsim.studies.reproduction import making, page  # noqa: PLC0415
    from fedsim.studies.reproduction.findings import Means, Scale  # noqa: PLC0415

    chosen, shown = making.chosen(source, items), console(progress)
    means = Means(
        scale=Scale(scale),
        folder=Path(out).expanduser().absolute(),
        data_root=making.folder(None if data_root is None else Path(data_root), "data_root"),
        say=partial(shown.print, highlight=False),
    )
    skipped = making.skipped(chosen, means, named=bool(items))
    kept = list(making.make(chosen, means, skipped))[-1]
    wanted = {(item.source, item.name) for item in chosen}
    made = tuple(each for each in kept if (each.source, each.name) in wanted)
    return Reproduction(means.folder / page.PAGE, made, skipped)
