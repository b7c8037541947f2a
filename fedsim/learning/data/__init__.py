"""Datasets: public originals, and the user's own files."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import Any

from adversaries.registry import lookup
from fedsim.learning.data.dataset import Dataset, Indices, Records, Source, TargetRange, only
from fedsim.learning.data.splitting import Split, split

__all__ = [
    "BUNDLED",
    "DATASETS",
    "Dataset",
    "Indices",
    "Records",
    "Source",
    "Split",
    "TargetRange",
    "load",
    "only",
    "split",
]

Loader = Callable[[Source], Dataset]


def _in(module: str, name: str = "read") -> Loader:
    """Return a loader that imports its module at its first use: a process needs one loader."""

    def loaded(source: Source) -> Dataset:
        loader: Loader = getattr(import_module(f"fedsim.learning.data.{module}"), name)
        return loader(source)

    return loaded


DATASETS: dict[str, Loader] = {
    "digits": _in("public", "digits"),
    "breast-cancer": _in("public", "breast_cancer"),
    "mnist": _in("public", "mnist"),
    "fashion-mnist": _in("public", "mnist"),
    "cifar-10": _in("public", "cifar"),
    "purchase-100": _in("public", "purchase100"),
    "adult": _in("public", "adult"),
    "abalone": _in("public", "abalone"),
    "idx": _in("idx"),
    "npz": _in("arrays"),
    "csv": _in("table"),
    "images": _in("pictures"),
    "hf": _in("hugging_face"),
    "texts": _in("tokens"),
}
"""Loaders by name. A loader takes a `Source` and raises InputError."""

BUNDLED = ("digits", "breast-cancer")
"""Datasets that come with a package: they need no folder."""


def load(
    name: str, root: str = "", label: str = "label", exclude: tuple[str, ...] = (), **others: Any
) -> Dataset:
    """Return the named dataset.

    Args:
        name: a key of `DATASETS`, or MODULE:NAME of allowed code.
        root: folder or file of the records; "" for bundled ones.
        label: column or key of the labels.
        exclude: columns or keys to leave out.
        others: further fields of `Source`.

    Raises:
        InputError: the dataset is unknown, or its files or labels are not as required.
    """
    source = Source(name, root, label, exclude, **others)
    return _only(source) if source.classes else _load(source)


@lru_cache(maxsize=4)
def _load(source: Source) -> Dataset:
    # A user's own loader may name its data differently.
    return replace(lookup(DATASETS, source.name, "data.name")(source), name=source.name)


@lru_cache(maxsize=4)
def _only(source: Source) -> Dataset:
    return only(_load(replace(source, classes=())), source.classes)
