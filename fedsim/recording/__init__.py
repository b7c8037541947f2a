"""Recording somebody else's training: one line in a Flower app, a training loop, or a framework.

Each name is loaded with its first use: a loop that has nothing to do with Flower does not import
it. `__init__.pyi` says the same to type checkers.
"""

from importlib import import_module
from typing import Any

from adversaries.errors import InputError

RECORDERS = {
    **dict.fromkeys(("record", "recording_mod", "canary_mod"), "fedsim.recording.flower"),
    **dict.fromkeys(("Recorder", "Accounted"), "fedsim.recording.loop"),
    "opacus": "fedsim.recording.opacus_steps",
    "pfl": "fedsim.recording.pfl_mechanism",
    "NVFlareFilter": "fedsim.recording.nvflare_filter",
}
"""Where each recorder is."""


def __getattr__(name: str) -> Any:
    if name in RECORDERS:
        try:
            return getattr(import_module(RECORDERS[name]), name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "nvflare":
                raise
            raise InputError(
                "NVFlare is not installed, which is to be recorded here: pip install nvflare"
            ) from None
    raise AttributeError(f"module 'fedsim.recording' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *RECORDERS})
