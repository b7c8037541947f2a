"""What several commands of `fedsim deploy` take."""

from pathlib import Path
from typing import Annotated

import typer

Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="The kit, or the folder of this machine.")
]
