"""Output on the terminal, in which paths, names and messages cannot act as markup or control."""

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from fedsim.common.foreign_text import shown
from fedsim.common.strict_json import strict_json


class Terminal(Console):
    """A console without markup, emoji names and control sequences; `rich.text.Text` gives bold."""

    def __init__(
        self,
        *,
        stderr: bool = False,
        quiet: bool = False,
        highlight: bool = True,
        force_terminal: bool | None = None,
    ) -> None:
        super().__init__(
            stderr=stderr,
            quiet=quiet,
            highlight=highlight,
            markup=False,
            emoji=False,
            force_terminal=force_terminal,
        )

    def on_broken_pipe(self) -> None:
        """Go on in silence: the exit status still tells the result."""
        self.quiet = True
        _silence(self.file)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments of a renderable, with control sequences in their text escaped."""
        for segment in super().render(renderable, options):
            if segment.control:  # Rich's own, such as a cursor movement
                yield segment
            else:
                yield segment._replace(text=shown(segment.text))

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        """Return the text to write; for a file or a pipe without trailing blanks."""
        text = super()._render_buffer(buffer)
        return text if self.is_terminal else re.sub(r" +(?=\n)", "", text)


@contextlib.contextmanager
def outlived_by_no_reader() -> Iterator[None]:
    """Go on in silence if the reader of standard output, such as head, has what it wanted."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _silence(sys.stdout)


def _silence(file: IO[str]) -> None:
    """Drop what is still written to a file, whose reader has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())


def results(*, quiet: bool = False) -> Terminal:
    """Return the terminal of a result: standard output."""
    return Terminal(quiet=quiet, highlight=False)


def print_json(document: Mapping[str, Any]) -> None:
    """Print one strict JSON document on standard output."""
    print(json.dumps(strict_json(document), indent=2, allow_nan=False))
