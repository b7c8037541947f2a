"""Where a dataset is read from, as a configuration says it."""

from dataclasses import dataclass
from pathlib import Path

from adversaries.errors import InputError
from fedsim.learning.data.loaders.targets import Target


@dataclass(frozen=True)
class Source:
    """What a loader is told: the keys of [data] that say what to read, not how to divide it.

    Attributes:
        name: of the dataset.
        root: the folder or file.
        label: of a table, the column of the labels.
        exclude: of a table, the columns that are no features.
        image_size: the side of the squares that pictures are brought to, 0 to leave them.
        download: whether missing originals may be fetched into `root`.
        length: of texts, the tokens that each has; what is longer is cut.
        tokenizer: of texts, the directory of their tokenizer.
        target: the range of the number that a regression predicts; None where labels are classes.
    """

    name: str
    root: str = ""
    label: str = "label"
    exclude: tuple[str, ...] = ()
    image_size: int = 0
    download: bool = False
    length: int = 64
    tokenizer: str = ""
    target: Target | None = None

    @property
    def path(self) -> Path:
        """The folder or file that the user named. Raises InputError if none is named."""
        if not self.root:
            raise InputError(
                f"{self.name} is read from files: say where they are with data.root=PATH "
                "(docs/how-to/data.md)"
            )
        return Path(self.root).expanduser()

    @property
    def file(self) -> Path:
        """The one file that the user named. Raises InputError if it is not there."""
        if not self.path.is_file():
            raise InputError(
                f"there is no file '{self.path}'; name {self.name}'s with data.root=PATH"
            )
        return self.path
