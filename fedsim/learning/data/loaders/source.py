"""The source of a dataset in a configuration."""

from dataclasses import dataclass
from pathlib import Path

from adversaries.errors import InputError
from fedsim.learning.data.loaders.targets import Target


@dataclass(frozen=True)
class Source:
    """The keys of [data] that tell a loader what to read.

    Attributes:
        image_size: side of the squares to which pictures are scaled; 0 keeps their size.
        length: of texts, number of tokens in each; longer texts are cut.
        target: the range of the number that a regression predicts.
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
        """The folder or file that the user named; raises InputError if none is named."""
        if not self.root:
            raise InputError(
                f"{self.name} is read from files: set data.root=PATH to their place "
                "(docs/how-to/data.md)"
            )
        return Path(self.root).expanduser()

    @property
    def file(self) -> Path:
        """The file that the user named; raises InputError if it does not exist."""
        if not self.path.is_file():
            raise InputError(
                f"there is no file '{self.path}'; set data.root=PATH to {self.name}'s file"
            )
        return self.path
