"""What the terminal shows: text as it is, whatever a path, a name or a message of others holds."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from fedsim.common.foreign_text import shown
from fedsim.common.strict_json import strict_json


class Terminal(Console):
    """A console to which text is text: no markup, no emoji by name, no control sequences.

    What is to be bold is said with `rich.text.Text`.
    """

    def __init__(
        self, *, stderr: bool = False, quiet: bool = False, highlight: bool = True
    ) -> None:
        super().__init__(stderr=stderr, quiet=quiet, highlight=highlight, markup=False, emoji=False)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments of a renderable, with their text as `shown`."""
        for segment in super().render(renderable, options):
            if segment.control:  # of Rich's own: a cursor that moves
                yield segment
            else:
                yield segment._replace(text=shown(segment.text))

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        """Return what is written; to a file or a pipe without the blanks that fill lines up."""
        text = super()._render_buffer(buffer)
        return text if self.is_terminal else re.sub(r" +(?=\n)", "", text)


def print_json(document: Mapping[str, Any]) -> None:
    """Print one strict JSON document on standard output."""
    typer.echo(json.dumps(strict_json(document), indent=2, allow_nan=False))
