"""`fedsim report`: the report of a run, written again, and several runs side by side."""

import contextlib
import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adversaries.errors import InputError
from fedsim import configuration
from fedsim.audits.run import report as results
from fedsim.commands.answer import Answer, lines
from fedsim.commands.run import answer_of, trained
from fedsim.commands.settings import Progress, console
from fedsim.configuration import files as configuration_files
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.reports.tracking import trackers
from fedsim.reports.tracking.progress import replay

if TYPE_CHECKING:
    from fedsim.commands.run import Run
    from fedsim.reports.tracking.trackers import Tracker

    Given = Path | str | Run | Mapping[str, Any]
else:
    Given = str

RESTATED = ("audit.confidence", "privacy.delta")
"""Keys that a report may state anew."""


def report(
    *runs: Given,
    open_: bool = False,
    track: list[str] | None = None,
    schema: bool = False,
    progress: Progress = None,
) -> Answer:
    """Write report.json, report.html and the figures of a run again from its transcript.

    For a training, it writes the pages for the operator of the server; the model's card stays the
    same. With several runs, it writes nothing and compares them in a table, with every trust model
    and vantage point side by side.

    Examples: fedsim report fedsim-runs/digits audit.confidence=0.99

    Compare two runs: fedsim report fedsim-runs/central fedsim-runs/local

    Args:
        runs: run directories, and keys that the report states anew, as KEY=VALUE: audit.confidence,
            privacy.delta.
        open_: open the page in the browser, and print its path. Of a directory that has a page,
            nothing is written.
        track: tracker to log finished or interrupted runs to, in place of a report:
            tensorboard:DIR, mlflow:DIR or mlflow:URI. May be repeated. A run that was logged
            before is not logged again.
        schema: print the JSON Schema of report.json, without a run.
        progress: whether to print what was logged; None: always, but with --quiet.

    Returns:
        The answer: a `Run`, a `Training`, or the table of several runs.

    Raises:
        InputError: a directory is no finished run, or a key cannot be stated anew.
    """
    changes = [each for each in runs if isinstance(each, str) and _is_change(each)]
    values: dict[str, Any] = configuration_files.parse_overrides(changes)
    for each in runs:
        values |= dict(each) if isinstance(each, Mapping) else {}
    places = [
        Path(each) if isinstance(each, Path | str) else each.path
        for each in runs
        if each not in changes and not isinstance(each, Mapping)
    ]
    if schema:
        if values or track or open_:
            raise InputError("--schema is the same for every run; leave all other options out")
        return _schema(places)
    if not places:
        raise InputError("fedsim report needs a run directory; give RUN, or --schema")
    if wrong := [key for key in values if key not in RESTATED]:
        raise InputError(
            f"a report cannot state {wrong[0]} anew; its keys are {', '.join(RESTATED)}"
        )
    if open_ and len(places) == 1 and not values:
        page = places[0] if places[0].suffix == ".html" else places[0] / "report.html"
        if page.is_file():
            return _shown(page)
    directories = [RunDirectory.open(place) for place in places]
    if values and len(places) > 1:
        raise InputError(
            f"{next(iter(values))} applies to one report; give one run, then compare the runs"
        )
    if track:
        return _logged(directories, trackers.every(track), progress)
    answer = _compared(places, directories) if len(places) > 1 else _again(directories[0], values)
    if open_:
        _open(answer)
    return answer


def _is_change(text: str) -> bool:
    return "=" in text and not Path(text).exists()


def _schema(places: Sequence[Path]) -> Answer:
    if places:
        raise InputError("--schema is the same for every run; leave the run out")
    import json  # noqa: PLC0415

    from fedsim.reports.kinds.schema import schema as schema_of_kinds  # noqa: PLC0415  (Flower)

    described = schema_of_kinds()
    written = json.dumps(described, indent=2).splitlines()
    return Answer(report=described, _terminal=lines(*written))


def _again(directory: RunDirectory, values: Mapping[str, Any]) -> Answer:
    """Write the report of a run or a training again."""
    if directory.config.run.job == "training":
        from fedsim.reports import training_report  # noqa: PLC0415

        if values:
            raise InputError(
                f"{next(iter(values))} applies to a run of fedsim run; the report of a training "
                "uses its configured delta (for another delta, use fedsim account)"
            )
        training_report.write_training_report(directory)
        return trained(directory)
    from fedsim.federation.runs import run_transcript  # noqa: PLC0415
    from fedsim.reports import page  # noqa: PLC0415  (torch)

    configuration.from_run_config(
        configuration.overlaid(configuration.to_run_config(directory.config), values)
    )  # refuses a value of the wrong kind
    made = page.write_report(directory, values.get("audit.confidence"), values.get("privacy.delta"))
    return answer_of(directory, made, run_transcript.read(directory))


def _compared(places: Sequence[Path], directories: Sequence[RunDirectory]) -> Answer:
    from fedsim.reports import comparison  # noqa: PLC0415  (matplotlib)

    rows = comparison.side_by_side(places, [results.read(each) for each in directories])
    return Answer(
        report={"runs": rows}, table=rows, details=rows, _blocks=lambda: comparison.blocks(rows)
    )


def _logged(
    directories: Sequence[RunDirectory], named: "Mapping[str, Tracker]", progress: Progress
) -> Answer:
    """Log finished or interrupted runs to trackers, but those that they have."""
    shown, logged = console(progress), list[str]()
    for directory in directories:
        for place, tracker in named.items():
            tracking = trackers.Tracking(directory, tracker, place)
            replay(directory, tracking)
            logged.append(f"{directory.path.name} is in {tracking.name}")
            shown.print(logged[-1], soft_wrap=True, highlight=False)
    return Answer(report={"logged": logged}, _terminal=lines())


def _shown(page: Path) -> Answer:
    """Show a page in the browser, if there is one; its path is printed in any case."""
    with contextlib.suppress(webbrowser.Error):
        webbrowser.open(page.resolve().as_uri())
    return Answer(report={"page": str(page)}, path=page.parent, page=page, _terminal=lines())


def _open(answer: Answer) -> None:
    if answer.page is None:
        raise InputError("--open shows the page of one run; give one run")
    _shown(answer.page)
