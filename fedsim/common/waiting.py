"""The length of sleep between two requests: waiting costs little, and answers come soon."""

SHARE = 0.1
"""Largest delay of an answer, as a share of the time that was waited."""

LONGEST = 1.0
"""Longest sleep between two requests, in seconds."""


def pause(waited: float, least: float) -> float:
    """Return the seconds until the next request, at least `least`, after those waited."""
    return max(least, min(SHARE * waited, LONGEST))
