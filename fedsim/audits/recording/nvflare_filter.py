"""The recorder of NVFlare: a site's model before and after its privacy filter.

    from fedsim.recording import NVFlareFilter
    job.to(NVFlareFilter(SVTPrivacy(), "{site}.fedt"), "site-1", tasks=["train"],
           filter_type=FilterType.TASK_RESULT)

It is a class instead of a function, since a job is exported by class and arguments of its parts.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from adversaries.errors import InputError
from fedsim.audits.recording.loop import append, safely
from fedsim.federation.transcripts.records import ObservedRound, Scalar

try:
    from nvflare.apis.dxo import MetaKey
    from nvflare.apis.dxo_filter import DXOFilter
except ImportError:  # an optional package: the class still exists, and refuses to be made
    MetaKey = None
    DXOFilter = object

CONFIGURED = {
    "SVTPrivacy": ("svt", ("gamma", "epsilon", "noise_var", "fraction")),
    "GaussianPrivacy": ("gaussian", ("sigma0", "max_percentile")),
}
"""Prefix and attributes of each filter whose noise can be computed from its configuration."""


class NVFlareFilter(DXOFilter):  # type: ignore[misc]  # NVFlare has no types
    """A DXO filter that applies another filter and records it.

    Args:
        filter: the site's privacy filter, which must then not be listed beside this one.
        path: file of the transcript; "{site}" in it becomes the site's name. Rounds are appended.
        clipping_norm: L2 norm to which the filter clips the whole update; None if it does not, or
            if that is unknown.
        noise_std: standard deviation of its Gaussian noise on every number; None for other noise.
        app: name of the job, for the transcript.

    Raises:
        InputError: NVFlare is not installed.
    """

    def __init__(
        self,
        filter: DXOFilter,
        path: str,
        clipping_norm: float | None = None,
        noise_std: float | None = None,
        app: str = "",
    ) -> None:
        if MetaKey is None:
            raise InputError("NVFlare is not installed; install it with pip install nvflare")
        super().__init__(supported_data_kinds=None, data_kinds_to_filter=filter.data_kinds)
        self.filter, self.path, self.app = filter, path, app
        self.clipping_norm, self.noise_std = clipping_norm, noise_std

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Pass an event on to the filter, which NVFlare does not know."""
        super().handle_event(event_type, fl_ctx)
        self.filter.handle_event(event_type, fl_ctx)

    def process_dxo(self, dxo: Any, shareable: Any, fl_ctx: Any) -> Any:
        before = safely(_copied, dxo.data) or {}
        steps = dxo.get_meta_prop(MetaKey.NUM_STEPS_CURRENT_ROUND, 1)
        result = self.filter.process_dxo(dxo, shareable, fl_ctx)
        after = dxo if result is None else result
        number = shareable.get_header(MetaKey.CURRENT_ROUND, None)
        site = str(fl_ctx.get_identity_name())

        def observed() -> ObservedRound:
            return ObservedRound(
                int(number or dxo.get_meta_prop(MetaKey.CURRENT_ROUND, 0) or 0),
                # The filter clips what is sent, a difference or weights: its reference is 0.
                model={name: np.zeros_like(array) for name, array in before.items()},
                own=_copied(after.data),
                unprotected=before,
                mechanism=self._mechanism(after, float(steps)),
            )

        place = Path(self.path.replace("{site}", site))
        recorder = "fedsim.recording.NVFlareFilter"
        append(place, lambda: _number(site), str(fl_ctx.get_job_id() or ""), self.app, recorder,
               observed)  # fmt: skip
        return result

    def _mechanism(self, dxo: Any, steps: float) -> dict[str, Scalar]:
        keys: dict[str, Scalar] = {"filter": type(self.filter).__name__, "filter_steps": steps}
        if self.clipping_norm is not None:
            keys["local_clipping_norm"] = self.clipping_norm
        if self.noise_std is not None:
            keys["local_noise_std"] = self.noise_std
        prefix, names = CONFIGURED.get(type(self.filter).__name__, ("", ()))
        values = {name: getattr(self.filter, name, None) for name in names}
        keys |= {f"{prefix}_{name}": float(of) for name, of in values.items() if of is not None}
        if prefix == "svt":
            budget = dxo.get_meta_prop("svt_privacy_budget", None) or {}
            for name in ("epsilon_total", "epsilon_release", "n_upload"):
                if name in budget:
                    keys[f"svt_{name}"] = float(budget[name])
        return keys


def _copied(data: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.array(value) for name, value in data.items()}


def _number(site: str) -> int:
    number = re.search(r"\d+$", site)
    return int(number.group()) if number else 0
