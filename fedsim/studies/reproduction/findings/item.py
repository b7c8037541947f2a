"""Items of the sources: what each needs, what it costs, and who makes it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from adversaries.errors import InputError
from fedsim.studies.reproduction.findings.finding import Reproduced


class Scale(StrEnum):
    """How much is computed."""

    SMOKE = "smoke"
    FULL = "full"


@dataclass(frozen=True)
class Means:
    """What an item may use.

    Attributes:
        folder: where its runs are kept, so that a later call takes them up.
    """

    scale: Scale
    folder: Path
    data_root: Path | None = None
    download: bool = False
    say: Callable[[str], None] = print

    @property
    def smoke(self) -> bool:
        """Whether nothing is to be concluded from what comes out."""
        return self.scale is Scale.SMOKE

    def data(self, name: str) -> Path:
        """Return where a data set is."""
        if not self.has(name):
            raise InputError(f"no data of {name}: {DATA[name]}")
        assert self.data_root is not None
        return self.data_root / name

    def has(self, name: str) -> bool:
        """Return whether a data set is there, or may be downloaded."""
        if self.data_root is None:
            return False
        return (self.download and name in DOWNLOADED) or (self.data_root / name).is_dir()


DATA: Mapping[str, str] = {
    "mnist": "put its four files into DIR/mnist and give --data-root DIR, or add --download",
    "fashion-mnist": "put its four files into DIR/fashion-mnist and give --data-root DIR, or add "
    "--download",
    "adult": "put UCI's adult.data and adult.test into DIR/adult and give --data-root DIR",
    "abalone": "put UCI's abalone.data into DIR/abalone and give --data-root DIR",
    "cifar-10": "put its original batches into DIR/cifar-10 and give --data-root DIR",
    "purchase-100": "put your own features.npy and labels.npy into DIR/purchase-100",
}
"""Data that items need, by the name of the folder, with how to get them."""

DOWNLOADED = ("mnist", "fashion-mnist")
"""Those that can be downloaded."""


LONG = 300.0
"""Minutes above which an item is made only when it is named."""


@dataclass(frozen=True)
class Item:
    """One thing that a source published.

    Attributes:
        minutes: of the full scale on two cores, about, where no run of it is there.
        needs: the data sets, keys of `DATA`; the smoke scale needs none.
    """

    source: str
    name: str
    title: str
    minutes: float
    make: Callable[[Means], Reproduced]
    needs: tuple[str, ...] = ()

    def too_long(self, means: Means) -> bool:
        """Return whether it is made only when it is named."""
        return self.minutes > LONG and not means.smoke

    def missing(self, means: Means) -> list[str]:
        """Return the data sets that it needs and that are not there."""
        return [] if means.smoke else [name for name in self.needs if not means.has(name)]
