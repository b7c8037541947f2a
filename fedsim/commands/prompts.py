"""Questions at a terminal, on standard error."""

import sys
from collections.abc import Callable
from typing import TypeVar

from adversaries.errors import InputError

T = TypeVar("T")


def ask(question: str, default: str = "", *, otherwise: str) -> str:
    """Return the answer to a question; an empty answer is the default.

    Raises:
        InputError: the input ended; `otherwise` says what to do.
    """
    shown = f" [{default}]" if default else ""
    print(f"{question}{shown}: ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        print(file=sys.stderr)
        raise InputError(otherwise)
    return line.strip() or default


def asked(
    question: str, default: str, read: Callable[[str], T], expected: str, *, otherwise: str
) -> T:
    """Return the answer, asking again until it can be read.

    Args:
        question: without a colon.
        default: answer to an empty line.
        read: returns the value of an answer, or raises ValueError.
        expected: what an answer looks like, for the next attempt.
        otherwise: what to do if the input ends.
    """
    while True:
        answer = ask(question, default, otherwise=otherwise)
        try:
            return read(answer)
        except ValueError:
            print(f"Error: give {expected}.", file=sys.stderr)
