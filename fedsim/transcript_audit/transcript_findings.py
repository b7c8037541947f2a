"""What an audit of a transcript objects to, as report.json has it."""

from typing import Any


def finding(severity: str, text: str) -> dict[str, Any]:
    return {"severity": severity, "text": text, "rounds": []}
