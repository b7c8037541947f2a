"""Datasets: public originals, and files of the user's own.

A loader turns files into arrays; `DATASETS` names the loaders, one module for each format. Data are
never changed, so they are loaded once for each process and shared read-only.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from importlib import import_module

from adversaries.registry import lookup
from fedsim.learning.data.loaders.dataset import Dataset, Indices, Records, only
from fedsim.learning.data.loaders.source import Source
from fedsim.learning.data.loaders.targets import Target
from fedsim.learning.data.splitting import Split, split

__all__ = [
    "BUNDLED",
    "DATASETS",
    "Dataset",
    "Indices",
    "Records",
    "Source",
    "Split",
    "load",
    "only",
    "split",
]

Loader = Callable[[Source], Dataset]


def _in(module: str, name: str = "own", room: str = "loaders.") -> Loader:
    """Return a loader whose module is imported with its first use: a process needs one."""

    def loaded(source: Source) -> Dataset:
        loader: Loader = getattr(import_module(f"fedsim.learning.data.{room}{module}"), name)
        return loader(source)

    return loaded


DATASETS: dict[str, Loader] = {
    "digits": _in("bundled", "digits"),
    "breast-cancer": _in("bundled", "breast_cancer"),
    "mnist": _in("idx", "mnist"),
    "fashion-mnist": _in("idx", "fashion_mnist"),
    "cifar-10": _in("cifar", "cifar10"),
    "purchase-100": _in("purchase", "purchase100"),
    "adult": _in("uci", "adult"),
    "abalone": _in("uci", "abalone"),
    "idx": _in("idx"),
    "npz": _in("npz"),
    "csv": _in("csv_file"),
    "images": _in("image_folder"),
    "hf": _in("hugging_face"),
    "texts": _in("texts", room=""),
}
"""Loaders by name. A loader takes a `Source` and raises InputError."""

BUNDLED = ("digits", "breast-cancer")
"""Those that a package brings: nothing is read from a folder that somebody must name."""


def load(
    name: str,
    root: str = "",
    label: str = "label",
    exclude: tuple[str, ...] = (),
    image_size: int = 0,
    download: bool = False,
    classes: tuple[str, ...] = (),
    length: int = 64,
    tokenizer: str = "",
    target: Target | None = None,
) -> Dataset:
    """Return the named dataset.

    Raises InputError if there is no such dataset, or its files or labels are not as they must be.

    Args:
        name: a key of `DATASETS`, or "package.module:name" of a loader.
        root: the folder or file that it is read from.
        label: of a table, the column of the labels.
        exclude: of a table, the columns that are no features.
        image_size: the side of the squares that pictures are brought to, 0 to leave them.
        download: whether missing originals may be fetched into `root`.
        classes: the labels that are kept, as of `only`; none for all.
        length: of texts, the tokens that each has.
        tokenizer: of texts, the directory of their tokenizer.
        target: the range of the number that a regression predicts; None where labels are classes.
    """
    source = Source(name, root, label, exclude, image_size, download, length, tokenizer, target)
    return _only(source, classes) if classes else _load(source)


@lru_cache(maxsize=4)
def _load(source: Source) -> Dataset:
    # Code of a user's own may call its data something else.
    return replace(lookup(DATASETS, source.name, "data.name")(source), name=source.name)


@lru_cache(maxsize=4)
def _only(source: Source, classes: tuple[str, ...]) -> Dataset:
    return only(_load(source), classes)
