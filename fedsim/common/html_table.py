"""A small HTML table, for results in a notebook."""

from collections.abc import Iterable, Sequence
from html import escape


def html_table(headings: Sequence[str], rows: Iterable[Sequence[str]], caption: str) -> str:
    """Return a table of plain texts, with its caption above it."""

    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<table><caption>{escape(caption)}</caption>{line(headings, 'th')}{body}</table>"
