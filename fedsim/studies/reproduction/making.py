"""The page with all items so far, which this process or workers make."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from fedsim.common import report_directory
from fedsim.config import Scalar, from_run_config
from fedsim.config.campaign import RunConfig
from fedsim.federation.runtimes.batch_task import ONE_AT_A_TIME, Program, take_share
from fedsim.federation.runtimes.places import Workers, opened
from fedsim.federation.runtimes.spread import spread
from fedsim.federation.runtimes.whole_runs import Files, read_files, write_files
from fedsim.studies.reproduction import page, session
from fedsim.studies.reproduction.findings import Item, Made, Means, Scale
from fedsim.studies.reproduction.registry import ITEMS, SHARING

LEAVES = (
    "get the names of the items and the path of the data. They read the data themselves, and send "
    "tables, pictures and numbers back."
)
"""What the workers of a cluster get."""


def publish(
    items: Sequence[Item], means: Means, skip: Mapping[str, str], workers: Workers | None = None
) -> Iterator[list[Made]]:
    """Make items, and write the page before the first item and after each.

    Args:
        skip: result of `skipped`, for the page.
        workers: the workers that make items; None for this process.

    Yields:
        All items so far, after each write of the page.
    """
    report_directory.create(means.folder)
    yield _published(means, skip)
    left = [item for item in items if item.title not in skip]
    for _ in session.make(left, means) if workers is None else _elsewhere(left, means, workers):
        yield _published(means, skip)


@dataclass(frozen=True)
class Task:
    """Items for a worker, in plain values that another version can read and refuse.

    Attributes:
        program: the program of the process that writes the page.
        own: keys with the worker's share of its machine.
        source: a key of `SOURCES`.
        names: names of the items.
        scale: value of `Scale`.
        folder: directory of the items and runs; None: one of the worker's own.
        data_root: folder of the data sets, the same on every machine.
        download: whether missing data may be downloaded.
    """

    program: dict[str, str]
    own: dict[str, Scalar]
    source: str
    names: tuple[str, ...]
    scale: str
    folder: Path | None
    data_root: Path | None
    download: bool


def make_items(task: Task) -> Files:
    """Make items in a worker; return the files of those that it made in a folder of its own.

    Raises InputError if the worker has another program or lacks the data.
    """
    with ONE_AT_A_TIME, ExitStack() as stack:
        Program.here().check(task.program)
        take_share(from_run_config(task.own).run)
        folder = task.folder or Path(stack.enter_context(TemporaryDirectory()))
        root = session.folder(task.data_root, "--data-root")
        means = Means(Scale(task.scale), folder, root, task.download, lambda _: None)
        for _ in session.make(session.chosen(task.source, task.names), means):
            pass
        return {} if task.folder else read_files(means.folder / session.FOLDER)


def _elsewhere(items: Sequence[Item], means: Means, workers: Workers) -> Iterator[None]:
    """Make items with workers; yield after each group of items that share their runs."""
    groups: dict[str, list[Item]] = {}
    for item in items:
        if session.read(item, means) is None:
            groups.setdefault(_group(item), []).append(item)
    program = asdict(Program.here())

    def repeated(names: list[str]) -> None:
        means.say(f"a worker was lost; these are made again: {', '.join(names)}")

    with opened(workers, means.say, LEAVES) as pool:
        share = pool.settings(RunConfig())

        def task(group: str) -> Task:
            for item in groups[group]:
                means.say(item.title)
            return Task(
                program,
                share,
                groups[group][0].source,
                tuple(item.name for item in groups[group]),
                means.scale.value,
                None if pool.remote else means.folder,
                means.data_root,
                means.download,
            )

        tasks = {group: partial(task, group) for group in groups}
        for _, future in spread(pool, make_items, tasks, repeated):
            write_files(means.folder / session.FOLDER, future.result())
            yield


def _group(item: Item) -> str:
    """Return the name of the items that share their runs, which only one process may write."""
    own = item.needs if item.source in SHARING and item.needs else (item.name,)
    return " ".join((item.source, *own))


def _published(means: Means, skip: Mapping[str, str]) -> list[Made]:
    made = [kept for item in ITEMS if (kept := session.read(item, means)) is not None]
    page.write(means.folder, made, skip)
    return made
