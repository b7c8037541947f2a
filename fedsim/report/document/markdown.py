"""Blocks as Markdown. Texts of blocks may be Markdown; `quoted` escapes foreign text."""

import html
import re
from collections.abc import Iterable

from fedsim.common.foreign_text import shown
from fedsim.report.document.blocks import Block, Bullets, Heading, Part, Prose, Table, Words

MARKUP = re.compile(r"([\\`*_\[\]#|~]|^[-+=])")
"""Characters with a meaning in Markdown."""


def render(blocks: Iterable[Block], level: int = 1) -> str:
    """Return blocks as Markdown, with an empty line between them."""
    return "\n".join(_rendered(block, level) for block in blocks)


def quoted(text: str) -> str:
    """Return foreign text in one line, escaped for Markdown."""
    line = html.escape(" ".join(shown(text).split()), quote=False)
    return MARKUP.sub(r"\\\1", line)


def _rendered(block: Block, level: int) -> str:
    match block:
        case Part():
            return f"{'#' * level} {block.title}\n\n{render(block.blocks, level + 1)}"
        case Heading():
            return f"{'#' * level} {block.text}\n"
        case Prose():
            return f"{_worded(block.text)}\n"
        case Bullets():
            return "".join(f"- {_worded(item)}\n" for item in block.items)
        case Table():
            rows = [[line.name, *line.cells] for group in block.groups for line in group.lines]
            cells = [[_worded(cell.text) for cell in row] for row in rows]
            lines = [f"| {' | '.join(row)} |" for row in [list(block.headings), *cells]]
            lines.insert(1, "|---" * len(block.headings) + "|")
            return "".join(f"{line}\n" for line in lines)
    raise TypeError(f"{type(block).__name__} has no place in Markdown")


def _worded(words: Words) -> str:
    if not isinstance(words, str):
        raise TypeError(f"{type(words).__name__} has no place in Markdown")
    return words
