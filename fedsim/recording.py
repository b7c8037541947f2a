"""Recording somebody else's training: one line in a Flower app, a training loop, or a framework.

Each name is loaded with its first use: a loop that has nothing to do with Flower does not import
it. `recording.pyi` says the same to type checkers.
"""

from importlib import import_module
from typing import Any

RECORDERS = {
    **dict.fromkeys(("record", "recording_mod", "canary_mod"), "fedsim.audits.recording.flower"),
    **dict.fromkeys(("Recorder", "Accounted"), "fedsim.audits.recording.loop"),
    "opacus": "fedsim.audits.recording.opacus_steps",
    "pfl": "fedsim.audits.recording.pfl_mechanism",
    "NVFlareFilter": "fedsim.audits.recording.nvflare_filter",
}
"""Where each recorder is."""


def __getattr__(name: str) -> Any:
    if name in RECORDERS:
        return getattr(import_module(RECORDERS[name]), name)
    raise AttributeError(f"module 'fedsim.recording' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *RECORDERS})
