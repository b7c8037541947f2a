"""Patterns that no text of fedsim has: help, messages, docstrings and docs.

The list is a floor. A pattern is here because readers had to translate sentences that have it.
"""

import ast
import inspect
import re
from pathlib import Path

from fedsim.commands import main

ROOT = Path(__file__).parents[1]

REFUSED = {
    "a fact behind a reference: repeat the fact": r"\bas of `|\b[Ll]ikewise\b",
    "an actor without a name: name it": r"\b(Whoever|whoever|Nobody|nobody)\b",
    "a denial without a verb: say what is wrong": r"(?<!there )\b(is|are) none\b",
    "what a thing is not: say what it is": r"\b(none that|[Nn]othing but)\b",
}

LONGEST = 35
"""Words of a sentence in a help text or an error."""

DOCS = [
    path
    for pattern in ("docs/**/*.md", "*.md", "changelog.d/*.md", "papers/*.md")
    for path in sorted(ROOT.glob(pattern))
]
SOURCES = [*sorted(ROOT.glob("fedsim/**/*.py")), *sorted(ROOT.glob("adversaries/**/*.py"))]


def _texts(tree):
    """Yield the strings of a module with their lines; values in an f-string become "X"."""
    inside = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inside |= set(map(id, node.values))
            parts = (getattr(each, "value", "X") for each in node.values)
            yield node.lineno, "".join(each if isinstance(each, str) else "X" for each in parts)
        elif isinstance(node, ast.Constant) and id(node) not in inside:
            yield node.lineno, node.value if isinstance(node.value, str) else ""


def _prose(markdown):
    """Yield the lines of a page with their numbers, but for commands and recorded output."""
    fenced = False
    for number, line in enumerate(markdown.splitlines(), start=1):
        fenced ^= line.lstrip().startswith("```")
        if not fenced and not line.startswith("    "):
            yield number, line


def _refused(text):
    return [why for why, pattern in REFUSED.items() if re.search(pattern, text)]


def _long(text):
    """Return the sentences of a text that are too long to be read once."""
    sentences = re.split(r"(?<=[.!?:;])\s+|\n\s*\n", text)
    return [each for each in sentences if len(each.split()) > LONGEST]


def test_docstrings_and_messages_are_in_plain_words():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {why}"
        for path in SOURCES
        for line, text in _texts(ast.parse(path.read_text(encoding="utf-8")))
        for why in _refused(text)
    ]
    assert found == []


def test_docs_are_in_plain_words():
    found = [
        f"{path.relative_to(ROOT)}:{number}: {why}"
        for path in DOCS
        for number, line in _prose(path.read_text(encoding="utf-8"))
        for why in _refused(line)
    ]
    assert found == []


def test_no_error_has_a_sentence_that_must_be_read_twice():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {sentence}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "InputError"
        for line, text in _texts(node)
        for sentence in _long(text)
    ]
    assert found == []


def _helps():
    """Yield every help text with the words that lead to it."""
    for name, command in main.everything().items():
        yield name, command.words
        described = inspect.cleandoc(main.function(command).__doc__ or "")
        yield f"{name}: help", re.split(r"\n(?:Args|Returns|Raises):\n", described)[0]
        for each in main.arguments(name):
            yield f"{name} {each.name}", each.words


def test_help_has_short_sentences_in_plain_words():
    helps = dict(_helps())
    assert len(helps) > 150  # it sees the commands and their options
    assert {name: [*_refused(text), *_long(text)] for name, text in helps.items() if text} == {
        name: [] for name, text in helps.items() if text
    }
