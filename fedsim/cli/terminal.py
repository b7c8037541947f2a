"""What the terminal shows: text as it is, whatever a path, a name or a message of others holds."""

import re
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

UNSHOWN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that command a terminal, reorder its text, or cannot be written to it."""


def shown(text: str) -> str:
    """Return text with a replacement character for each that a terminal would not merely show."""
    return UNSHOWN.sub("\ufffd", text)


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
