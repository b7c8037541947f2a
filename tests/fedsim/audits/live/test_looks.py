"""What a live auditor says at all its looks holds together, also of a training that is resumed."""

import pytest

from fedsim.audits.live.live_rounds import Looks

ROUNDS = 8


def _errors(attempts: list[tuple[int, int]], confidence: float = 0.95) -> list[float]:
    """Return the error of each look.

    attempts: the first and the last round of each; an auditor sees each attempt as another run, and
    learns from the server how many rounds there were before.
    """
    errors: list[float] = []
    for first, last in attempts:
        looks = Looks()
        looks.begin(ROUNDS, len(errors))
        for round in range(first, last + 1):
            looks.look(ROUNDS - round + 1)
            errors.append(1 - looks.level(confidence))
    return errors


def test_each_look_of_a_training_that_nothing_interrupts_has_the_same_share() -> None:
    assert _errors([(1, ROUNDS)]) == pytest.approx([0.05 / ROUNDS] * ROUNDS, rel=1e-12)


@pytest.mark.parametrize(
    "attempts",
    [
        [(1, 6), (6, 8)],
        [(1, 4), (4, 6), (6, 8)],
        [(1, 8), (1, 8)],
        [(1, 7), (7, 7), (7, 7), (7, 8)],
        [(1, 2), (5, 8)],  # the auditor missed two rounds
    ],
)
def test_the_errors_of_all_looks_add_up_to_no_more_than_was_asked(
    attempts: list[tuple[int, int]],
) -> None:
    errors = _errors(attempts)
    assert len(errors) == sum(last - first + 1 for first, last in attempts)
    assert sum(errors) <= 0.05 * (1 + 1e-12)
    assert all(error > 0 for error in errors)


def test_a_batch_that_begins_anew_within_one_transcript_gets_what_is_left() -> None:
    looks, total = Looks(), 0.0
    for first, last in ((1, 6), (6, 8)):
        looks.begin(ROUNDS, 0)  # where the server counts none of the first attempt
        for round in range(first, last + 1):
            looks.look(ROUNDS - round + 1)
            total += 1 - looks.level(0.9)
    assert total == pytest.approx(0.1, rel=1e-12)
