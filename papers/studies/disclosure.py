"""What a client says to a hostile server: every reply and message, what it tells and charges."""

import logging
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

from tables import Table

TESTS = Path(__file__).parents[2] / "tests"
# The requests lie beside the tests of a client's node.
sys.path.append(str(TESTS / "fedsim" / "federation" / "client"))

from hostile import CASES, DELTA, FILES, Answer, Case, play  # noqa: E402

LONGEST = 120
"""Letters of a reply that the table shows."""


def measure(smoke: bool, data_root: Path | None) -> Iterator[Table]:
    """Yield a table of all requests."""
    del data_root  # the client's files are made up
    logging.disable(logging.CRITICAL)  # the client's own log, which the table is not about
    rows = [_row(case) for case in CASES[: 4 if smoke else None]]
    logging.disable(logging.NOTSET)
    differing = sum(row[2] != "no" for row in rows)
    yield Table(
        f"{len(rows)} requests: {differing} answers differ between two clients' records",
        ("what the server asks", "what the client says", "differs", f"charged, ε at δ = {DELTA:g}"),
        rows,
        "Each request goes to a client with each of two files, which differ in number of records, "
        "values, labels, columns, name and folder. Differs: whether anything that it says or "
        "charges does, beside the values of a sum under noise. Charged: all that the client's "
        "ledger has in the end, honest rounds before the request included.",
    )


def _row(case: Case) -> tuple[str, str, str, float]:
    with tempfile.TemporaryDirectory() as folder:
        answers = [play(case, name, Path(folder, str(n))) for n, name in enumerate(FILES)]
    told = " / ".join(dict.fromkeys(_shown(answer) for answer in answers))
    differs = "no" if answers[0] == answers[1] else "yes"
    return case.name, told, differs, round(answers[0].epsilon, 3)


def _shown(answer: Answer) -> str:
    """Return what a client said as a cell of a table."""
    if answer.has_sum:
        return "a sum under noise"
    return textwrap.shorten(answer.said.replace("|", "/"), LONGEST, placeholder=" …")
