"""The kinds of results that are computed on a device: most are those of tests/pins."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "pins"))

from kinds import Kind, kinds  # noqa: E402

ELSEWHERE = ("app-audit", "loop-audit", "transcript-audit", "theory", "data", "gate", "one-run-")
"""Pinned kinds that compute nothing on a device, or nothing that another kind does not."""


def cases() -> dict[str, Kind]:
    """Return every kind by name."""
    pinned = [each for each in kinds(ROOT) if not each.name.startswith(ELSEWHERE)]
    return {each.name: each for each in pinned if not each.skipped}
