"""The length of sleep between two requests: waiting costs little, and answers come soon."""

SHARE = 0.1
"""Largest delay of an answer, as a share of the time that was waited."""

LONGEST = 1.0
"""Longest sleep between two requests, in seconds."""


def pause(waited: float, least: float) -> float:
    """Return the sleep before the next request, in seconds.

    waited: seconds since the waiting began.
    least: sleep between the first requests, in seconds.
    """
    return max(least, min(SHARE * waited, LONGEST))
