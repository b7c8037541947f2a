"""Datasets: public originals, and the user's own files."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from adversaries.registry import is_code, lookup
from fedsim.common.by_use import ByUse
from fedsim.learning.data.dataset import (
    Dataset,
    Indices,
    Records,
    Source,
    Split,
    TargetRange,
    checked,
)

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
]

Loader = Callable[[Source], Dataset]

PLACE = "fedsim.learning.data"

DATASETS: Mapping[str, Loader] = ByUse(
    {
        "digits": f"{PLACE}.public:digits",
        "breast-cancer": f"{PLACE}.public:breast_cancer",
        "mnist": f"{PLACE}.public:mnist",
        "fashion-mnist": f"{PLACE}.public:mnist",
        "cifar-10": f"{PLACE}.public:cifar",
        "purchase-100": f"{PLACE}.public:purchase100",
        "adult": f"{PLACE}.public:adult",
        "abalone": f"{PLACE}.public:abalone",
        "idx": f"{PLACE}.idx:read",
        "npz": f"{PLACE}.arrays:read",
        "csv": f"{PLACE}.table:read",
        "images": f"{PLACE}.pictures:read",
        "hf": f"{PLACE}.hugging_face:read",
        "texts": f"{PLACE}.tokens:read",
    }
)
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
    made = lookup(DATASETS, source.name, "data.name")(source)
    if is_code(source.name):
        made = checked(made, source.name)
    # A user's own loader may name its data differently.
    return replace(made, name=source.name)


@lru_cache(maxsize=4)
def _only(source: Source) -> Dataset:
    from fedsim.learning.data.dealing import only  # noqa: PLC0415  (simulated clients)

    return only(_load(replace(source, classes=())), source.classes)
