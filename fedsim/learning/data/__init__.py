"""Datasets: public originals, and the user's own files."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from adversaries.registry import is_code, lookup
from fedsim.common.by_use import ByUse
from fedsim.learning.data.dataset import Dataset, Indices, Records, Split, TargetRange, checked

if TYPE_CHECKING:
    from fedsim.configuration.federation import DataConfig

__all__ = [
    "BUNDLED",
    "DATASETS",
    "Dataset",
    "Indices",
    "Records",
    "Split",
    "TargetRange",
    "load",
    "read",
]

PLACE = "fedsim.learning.data"

DATASETS: Mapping[str, Callable[..., Dataset]] = ByUse(
    {
        "digits": f"{PLACE}.public:digits",
        "breast-cancer": f"{PLACE}.public:breast_cancer",
        "mnist": f"{PLACE}.public:mnist",
        "fashion-mnist": f"{PLACE}.public:mnist",
        "cifar-10": f"{PLACE}.public:cifar",
        "purchase-100": f"{PLACE}.public:purchase100",
        "adult": f"{PLACE}.public:adult",
        "abalone": f"{PLACE}.public:abalone",
        "idx": f"{PLACE}.public:idx",
        "npz": f"{PLACE}.arrays:read",
        "csv": f"{PLACE}.table:read",
        "images": f"{PLACE}.pictures:read",
        "hf": f"{PLACE}.hugging_face:read",
        "texts": f"{PLACE}.tokens:read",
    }
)
"""Loaders by name. A loader takes a `DataConfig` and raises InputError; that of texts also takes
the directory of their tokenizer."""

BUNDLED = ("digits", "breast-cancer")
"""Datasets that come with a package: they need no folder."""

SIZES = ("records", "held_out", "pool", "seed")
"""Keys of [data] on which no loader depends."""


def load(name: str, root: str = "", **keys: Any) -> Dataset:
    """Return the named dataset, as `read`.

    Args:
        name: a key of `DATASETS`, or MODULE:NAME of allowed code.
        root: folder or file of the records; "" for bundled ones.
        keys: further fields of `DataConfig`.
    """
    from fedsim.configuration.federation import DataConfig  # noqa: PLC0415  (pydantic)

    return read(DataConfig(name=name, root=root, **keys))


def read(source: "DataConfig", tokenizer: str = "") -> Dataset:
    """Return the dataset of a configuration.

    Args:
        source: the dataset, and how to read it.
        tokenizer: directory of the tokenizer, for texts alone.

    Raises InputError if it is unknown, or if its files or labels are not as required.
    """
    return _read(type(source)(**source.model_dump(exclude={*SIZES})), tokenizer)


@lru_cache(maxsize=4)
def _read(source: "DataConfig", tokenizer: str) -> Dataset:
    if source.classes:
        from fedsim.learning.data.dealing import only  # noqa: PLC0415  (simulated clients)

        whole = source.model_copy(update={"classes": ""})
        return only(_read(whole, tokenizer), separated(source.classes))
    loader = lookup(DATASETS, source.name, "data.name")
    made = loader(source, tokenizer) if tokenizer else loader(source)
    if is_code(source.name):
        made = checked(made, source.name)
    # A user's own loader may name its data differently.
    return replace(made, name=source.name)


def separated(text: str) -> tuple[str, ...]:
    """Return the parts of a text with commas between them, without spaces around."""
    return tuple(filter(None, (part.strip() for part in text.split(","))))
