"""Recorders for trainings outside fedsim: one line in a Flower app, a loop, or Opacus.

A name is loaded at its first use, so that a loop without Flower does not import Flower.
`recording.pyi` has the same names for type checkers.
"""

from importlib import import_module
from typing import Any

RECORDERS = {
    "record": "fedsim.audits.recording.flower",
    "Recorder": "fedsim.audits.recording.loop",
    "Accounted": "fedsim.audits.steps.watch",
    "opacus": "fedsim.audits.recording.opacus_steps",
}
"""The module of each recorder."""


def __getattr__(name: str) -> Any:
    if name in RECORDERS:
        return getattr(import_module(RECORDERS[name]), name)
    raise AttributeError(f"module 'fedsim.recording' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *RECORDERS})
