"""One table says how a measurement stands to theory, on every page and in the documentation."""

import re
from pathlib import Path
from typing import get_args

import pytest

from fedsim.audits.results.verdicts import TABLE, State, words_of

DOCS = Path(__file__).parents[4]
TUTORIAL, READING = (
    DOCS / "docs/start" / f"{name}.md" for name in ("tutorial", "reading-a-report")
)
PRINTED = re.compile(r"^(?:server|participant|released model)  +.*  (\S.*)$", re.M)


def test_every_state_has_words_of_the_table_and_one_alone_is_good():
    for state in get_args(State):
        assert words_of(state) in TABLE
        assert (words_of(state).kind == "good") == (state == "below")


@pytest.mark.source
@pytest.mark.parametrize("page", [DOCS / "README.md", TUTORIAL, READING])
def test_a_page_prints_states_of_the_table_alone(page):
    printed = PRINTED.findall(page.read_text())
    assert printed
    # A long one goes on in the next line.
    assert all(any(words.text.lower().startswith(one) for words in TABLE) for one in printed)


@pytest.mark.source
def test_the_page_on_reports_explains_every_state_in_the_words_of_the_table():
    rows = [f"| **{one.text}** | {one.means} | {one.advice} |" for one in TABLE]
    assert "\n".join(rows) in READING.read_text()
