"""What a client says to a hostile server is the same of any records, but for sums under noise."""

import pytest
from hostile import CASES, FILES, play


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_answer_tells_nothing_of_the_records_that_is_not_charged(case, tmp_path):
    one, other = (play(case, name, tmp_path / str(n)) for n, name in enumerate(FILES))
    assert one == other
    assert one.answered in (case.honest, case.honest + 1)
    # The same request has the same answer (test_kept_answer.py), which says nothing more.
    again = case.name == "the same round again"
    assert one.has_sum <= (one.answered == case.honest + (not again))


def test_there_are_40_hostile_requests_and_one_honest():
    assert len({case.name for case in CASES}) == len(CASES) >= 41


def test_a_file_that_does_not_fit_is_explained_in_the_clients_own_log_alone(tmp_path, caplog):
    unfit = next(case for case in CASES if "does not fit" in case.name)
    (said,) = {play(unfit, name, tmp_path / str(n)).said for n, name in enumerate(FILES)}
    assert "1700" not in said
    assert "'1700' (record 2)" in caplog.text
    assert "1700" in caplog.text
