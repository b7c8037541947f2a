"""How long to sleep between two questions, so that waiting costs little and answers come soon."""

SHARE = 0.1
"""By how much of the time that was waited already an answer may come too late."""

LONGEST = 1.0
"""Seconds; of sleep between two questions."""


def pause(waited: float, least: float) -> float:
    """Return how long to sleep before the next question, in seconds.

    waited: seconds since the waiting began.
    least: seconds, of the first questions.
    """
    return max(least, min(SHARE * waited, LONGEST))
