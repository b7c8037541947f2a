"""The choice of items, their making by this process or workers, and the page with all so far."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import TypeAdapter, ValidationError

import fedsim
from adversaries.errors import InputError
from fedsim.common import private_files, reading, report_directory
from fedsim.common.device import one_thread
from fedsim.config import Scalar, from_run_config
from fedsim.config.campaign import RunConfig
from fedsim.federation.runtimes.batch_task import ONE_AT_A_TIME, Program, take_share
from fedsim.federation.runtimes.places import Workers, opened
from fedsim.federation.runtimes.spread import spread
from fedsim.federation.runtimes.whole_runs import Files, read_files, write_files
from fedsim.studies.reproduction import page
from fedsim.studies.reproduction.findings import DATA, Item, MadeItem, Means, Scale
from fedsim.studies.reproduction.registry import ITEMS, SHARING, SOURCES

ITEM_FOLDER = "items"


@cache
def adapter() -> TypeAdapter[MadeItem]:
    return TypeAdapter(MadeItem)


def make(items: Sequence[Item], means: Means) -> Iterator[MadeItem]:
    """Yield the items in their order; a kept item is not made again."""
    private_files.make_directory(means.folder / ITEM_FOLDER)
    for item in items:
        if (kept := read_made(item, means)) is not None:
            yield kept
            continue
        means.say(item.title)
        begun = time.perf_counter()
        with one_thread():  # the same bits on machines of any number of cores
            finding = item.make(means)
        if item.needs and means.smoke:
            # The source's numbers are for other data and more trials.
            numbers = [replace(one, references=()) for one in finding.numbers]
            finding = replace(finding, numbers=numbers)
        made = MadeItem(
            source=item.source,
            name=item.name,
            title=item.title,
            scale=means.scale.value,
            fedsim=fedsim.__version__,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=time.perf_counter() - begun,
            command=command(item, means),
            finding=finding,
        )
        content = adapter().dump_json(made, indent=1)
        private_files.write_private(_place(item, means), content)
        yield adapter().validate_json(content)  # what a later call reads


def read_made(item: Item, means: Means) -> MadeItem | None:
    """Return a kept item; None if there is none of this version and scale."""
    place = _place(item, means)
    if not place.is_file():
        return None
    try:
        made = adapter().validate_json(place.read_bytes())
    except (*reading.DAMAGE, ValidationError):
        return None  # it is made again
    return made if made.fedsim == fedsim.__version__ else None


def command(item: Item, means: Means) -> str:
    data = " --data-root DIR" if item.needs and not means.smoke else ""
    return f"fedsim reproduce {item.source} {item.name} --scale {means.scale.value}{data}"


def _place(item: Item, means: Means) -> Path:
    return means.folder / ITEM_FOLDER / f"{means.scale.value}-{item.source}-{item.name}.json"


def chosen(source: str | None, names: Sequence[str]) -> list[Item]:
    """Return the named items of a source, or all. Raises InputError for an unknown name."""
    if source is None and names:
        raise InputError(
            f"items are named, but no source; give the source, one of {', '.join(SOURCES)}"
        )
    if source is None:
        return list(ITEMS)
    if source not in SOURCES:
        raise InputError(f"unknown source '{source}'; give one of {', '.join(SOURCES)}")
    of_source = {item.name: item for item in ITEMS if item.source == source}
    if unknown := [name for name in names if name not in of_source]:
        raise InputError(f"{source} has no item '{unknown[0]}'; its items: {', '.join(of_source)}")
    return [item for name, item in of_source.items() if not names or name in names]


def skipped(items: Sequence[Item], means: Means, named: bool) -> dict[str, str]:
    """Return the titles of items that are not made, each with the reason and the remedy."""
    reasons = {}
    for item in items:
        if missing := item.missing(means):
            reasons[item.title] = "; ".join(DATA[name] for name in missing)
        elif item.too_long(means) and not named and read_made(item, means) is None:
            hours = f"takes about {item.minutes / 60:.0f} hours"
            reasons[item.title] = f"{hours}: name it to make it"
    return reasons


def existing_folder(path: Path | None, option: str) -> Path | None:
    """Return the absolute path of an option's folder. Raises InputError if it does not exist."""
    absolute = None if path is None else path.expanduser().absolute()
    if absolute is not None and not absolute.is_dir():
        raise InputError(f"{option}: the folder '{absolute}' does not exist")
    return absolute


LEAVES = (
    "get the names of the items and the path of the data. They read the data themselves, and send "
    "tables, pictures and numbers back."
)
"""What the workers of a cluster get."""


def publish(
    items: Sequence[Item], means: Means, skip: Mapping[str, str], workers: Workers | None = None
) -> Iterator[list[MadeItem]]:
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
    for _ in make(left, means) if workers is None else _elsewhere(left, means, workers):
        yield _published(means, skip)


@dataclass(frozen=True)
class ItemsTask:
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


def make_items(task: ItemsTask) -> Files:
    """Make items in a worker; return the files of those that it made in a folder of its own.

    Raises InputError if the worker has another program or lacks the data.
    """
    with ONE_AT_A_TIME, ExitStack() as stack:
        Program.here().check(task.program)
        take_share(from_run_config(task.own).run)
        folder = task.folder or Path(stack.enter_context(TemporaryDirectory()))
        root = existing_folder(task.data_root, "--data-root")
        means = Means(Scale(task.scale), folder, root, task.download, lambda _: None)
        for _ in make(chosen(task.source, task.names), means):
            pass
        return {} if task.folder else read_files(means.folder / ITEM_FOLDER)


def _elsewhere(items: Sequence[Item], means: Means, workers: Workers) -> Iterator[None]:
    """Make items with workers; yield after each group of items that share their runs."""
    groups: dict[str, list[Item]] = {}
    for item in items:
        if read_made(item, means) is None:
            groups.setdefault(_group(item), []).append(item)
    program = asdict(Program.here())
    with opened(workers, means.say, LEAVES) as pool:
        share = pool.settings(RunConfig())

        def task(group: str) -> ItemsTask:
            for item in groups[group]:
                means.say(item.title)
            return ItemsTask(
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
        for _, future in spread(pool, make_items, tasks):
            write_files(means.folder / ITEM_FOLDER, future.result())
            yield


def _group(item: Item) -> str:
    """Return the name of the items that share their runs, which only one process may write."""
    own = item.needs if item.source in SHARING and item.needs else (item.name,)
    return " ".join((item.source, *own))


def _published(means: Means, skip: Mapping[str, str]) -> list[MadeItem]:
    made = [kept for item in ITEMS if (kept := read_made(item, means)) is not None]
    page.write_reproduction(means.folder, made, skip)
    return made
