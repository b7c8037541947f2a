"""Datasets: public originals, and the user's own files."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from importlib import import_module

from adversaries.registry import lookup
from fedsim.learning.data.loaders.dataset import (
    Dataset,
    Indices,
    Records,
    Source,
    TargetRange,
    only,
)
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
    """Return a loader that imports its module at its first use: a process needs one loader."""

    def loaded(source: Source) -> Dataset:
        loader: Loader = getattr(import_module(f"fedsim.learning.data.{room}{module}"), name)
        return loader(source)

    return loaded


DATASETS: dict[str, Loader] = {
    "digits": _in("public_tables", "digits"),
    "breast-cancer": _in("public_tables", "breast_cancer"),
    "mnist": _in("idx", "mnist"),
    "fashion-mnist": _in("idx", "fashion_mnist"),
    "cifar-10": _in("cifar", "cifar10"),
    "purchase-100": _in("public_tables", "purchase100"),
    "adult": _in("public_tables", "adult"),
    "abalone": _in("public_tables", "abalone"),
    "idx": _in("idx"),
    "npz": _in("npz"),
    "csv": _in("csv_file"),
    "images": _in("image_folder"),
    "hf": _in("hugging_face"),
    "texts": _in("texts", room=""),
}
"""Loaders by name. A loader takes a `Source` and raises InputError."""

BUNDLED = ("digits", "breast-cancer")
"""Datasets that come with a package: they need no folder."""


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
    target: TargetRange | None = None,
) -> Dataset:
    """Return the named dataset.

    Raises InputError for an unknown dataset, or for files or labels that are not as required.

    Args:
        name: a key of `DATASETS`, or "package.module:name" of a loader.
        root: the folder or file to read.
        label: of a table, the column of the labels.
        exclude: of a table, the columns that are not features.
        image_size: side of the squares to which pictures are scaled; 0 keeps their size.
        download: whether missing originals may be downloaded into `root`.
        classes: the labels to keep, two or more; empty for all.
        length: of texts, number of tokens in each.
        tokenizer: of texts, the directory of their tokenizer.
        target: the range of the number that a regression predicts; None where labels are classes.
    """
    source = Source(name, root, label, exclude, image_size, download, length, tokenizer, target)
    return _only(source, classes) if classes else _load(source)


@lru_cache(maxsize=4)
def _load(source: Source) -> Dataset:
    # A user's own loader may name its data differently.
    return replace(lookup(DATASETS, source.name, "data.name")(source), name=source.name)


@lru_cache(maxsize=4)
def _only(source: Source, classes: tuple[str, ...]) -> Dataset:
    return only(_load(source), classes)
