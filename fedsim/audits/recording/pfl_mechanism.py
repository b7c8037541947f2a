"""The recorder of pfl: the sum of users' statistics before and after a central Gaussian mechanism.

    mechanism = fedsim.recording.pfl(CentrallyAppliedPrivacyMechanism(gaussian), "steps.fedt")

pfl's callbacks see only the model after a step, and neither sum nor noise. Therefore the mechanism
is recorded.
"""

import math
import weakref
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from adversaries.errors import InputError
from fedsim.audits.recording.loop import PARAMETERS, Accounted, Recorder, Sink, safely
from fedsim.common.opacus_clipping import AGREE
from fedsim.federation.transcripts.records import Scalar

Mechanism = TypeVar("Mechanism")
LONGER = 1e-3
"""Relative excess of a part over the clipping norm that is due to rounding in float32."""

NOT_CENTRAL = (
    "{} cannot be recorded; give a CentrallyAppliedPrivacyMechanism of a GaussianMechanism"
)


def pfl(
    mechanism: Mechanism,
    to: str | Path | Sink,
    *,
    population: int | None = None,
    resume: bool = False,
    app: str = "",
    parameters: int | None = PARAMETERS,
) -> Mechanism:
    """Record every step of a central Gaussian mechanism of pfl, whose noise protects a user.

    Args:
        mechanism: a CentrallyAppliedPrivacyMechanism of a GaussianMechanism.
        to: file of the transcript, which must not exist unless `resume`; or a function to call with
            every step.
        population: number of users, None if unknown.
        resume: whether to continue a transcript.
        app: name of the training, for the transcript.
        parameters: approximate number that a step keeps of a larger model; None for all.

    Returns:
        The same mechanism, for the list of postprocessors. The transcript ends with it, or with the
        process.

    Raises:
        InputError: pfl is not installed, the mechanism is of another kind, the file exists or
            cannot be written, or a value is out of range.
    """
    try:
        from pfl.privacy.gaussian_mechanism import GaussianMechanism  # noqa: PLC0415
        from pfl.privacy.privacy_mechanism import (  # noqa: PLC0415
            CentrallyAppliedPrivacyMechanism,
        )
    except ImportError as error:
        why = f"pfl is not installed ({error}); install it with pip install pfl"
        raise InputError(why) from None
    central = isinstance(mechanism, CentrallyAppliedPrivacyMechanism)
    inner = getattr(mechanism, "underlying_mechanism", None)
    if not central or not isinstance(inner, GaussianMechanism):
        raise InputError(NOT_CENTRAL.format(type(mechanism).__name__))
    recorder = Recorder(
        to,
        records=population,
        unit="client",
        resume=resume,
        app=app,
        parameters=parameters,
        recorder="fedsim.recording.pfl",
        packages=("pfl",),
    )
    _PflSteps(mechanism, recorder)
    return mechanism


class _PflSteps:
    def __init__(self, mechanism: Any, recorder: Recorder) -> None:
        self._of, self._recorder, self._count = weakref.ref(mechanism), recorder, 0
        # Users are numbered by their first participation: the transcript must not name them.
        self._numbers: dict[Any, int] = {}
        self._cohort: list[int | None] = []
        self._weights: set[float] = set()  # of all users so far; two are enough to tell they differ
        self._sum: dict[str, Any] = {}  # of the users of this step
        self._longest = 0.0
        mechanism.postprocess_one_user = self._postprocess_one_user
        mechanism.postprocess_server = self._postprocess_server
        weakref.finalize(mechanism, recorder.close)

    def _postprocess_one_user(self, *, stats: Any, user_context: Any) -> Any:
        mechanism = self._of()
        assert mechanism is not None  # it is being called
        self._cohort.append(safely(self._number, user_context))
        result = type(mechanism).postprocess_one_user(
            mechanism, stats=stats, user_context=user_context
        )
        safely(self._add, result[0])
        weight = safely(_weight, result[0])
        if weight is not None and len(self._weights) < 2:
            self._weights.add(weight)
        return result

    def _add(self, sent: Any) -> None:
        parts = _doubles(_arrays(sent))
        self._longest = max(self._longest, _length(parts))
        self._sum = {name: each + self._sum.get(name, 0.0) for name, each in parts.items()}

    def _clipped(self, before: dict[str, Any] | None, norm: float, size: int) -> dict[str, bool]:
        parts, self._sum = self._sum, {}
        longest, self._longest = self._longest, 0.0
        if longest > norm * (1 + LONGER):
            return {"clipped": False}
        if before is None or len(self._cohort) < size:
            return {}
        off = {name: each - parts[name] for name, each in _doubles(before).items()}
        return {"clipped": _length(off) <= AGREE * norm}

    def _number(self, user_context: Any) -> int | None:
        user = user_context.user_id
        return None if user is None else self._numbers.setdefault(user, len(self._numbers))

    def _postprocess_server(self, *, stats: Any, central_context: Any, **more: Any) -> Any:
        mechanism = self._of()
        assert mechanism is not None  # it is being called
        # Before the call, which may add the noise in place.
        before = safely(_arrays, stats)
        keys = safely(_noise, mechanism.underlying_mechanism) or {}
        if weight := safely(_weight, stats):
            keys["total_weight"] = weight
        size = int(central_context.cohort_size)
        if len(self._weights) > 1 or (self._weights and len(self._cohort) >= size):
            keys["weights_differ"] = len(self._weights) > 1
        norm = keys.get("clipping_norm", math.inf)
        keys |= safely(self._clipped, before, norm, size) or {}
        result = type(mechanism).postprocess_server(
            mechanism, stats=stats, central_context=central_context, **more
        )
        self._count += 1
        accountant = mechanism.underlying_mechanism.privacy_accountant
        accounted = None
        if accountant is not None:
            accounted = Accounted(
                float(accountant.noise_parameter),
                float(accountant.sampling_probability),
                self._count,
                type(accountant).__name__,
            )
        # The users of the step, or their number if other processes saw some of them.
        cohort, self._cohort = self._cohort, []
        batch: Any = size if None in cohort or len(cohort) < size else cohort
        self._recorder.step(
            safely(_arrays, result[0]) or {},
            before,
            batch=batch,
            accounted=accounted,
            sampling="a cohort of a fixed size",
            **keys,
        )
        return result


def _doubles(arrays: dict[str, Any]) -> dict[str, Any]:
    return {
        name: np.asarray(each.cpu() if hasattr(each, "cpu") else each, np.float64)
        for name, each in arrays.items()
    }


def _length(arrays: dict[str, Any]) -> float:
    return math.sqrt(sum(float(np.square(each).sum()) for each in arrays.values()))


def _weight(statistics: Any) -> float | None:
    weight = getattr(statistics, "weight", None)
    return None if weight is None else float(weight)


def _arrays(statistics: Any) -> dict[str, Any]:
    weights = statistics.get_weights()[1]
    return {
        str(place): each.detach().clone() if hasattr(each, "detach") else each.copy()
        for place, each in enumerate(weights)
    }


def _noise(gaussian: Any) -> dict[str, Any]:
    bound = gaussian.clipping_bound
    norm = float(bound.value() if hasattr(bound, "value") else bound)
    keys: dict[str, Scalar] = {"clipping_norm": norm}
    return keys | {"noise_multiplier": float(gaussian.relative_noise_stddev)}
