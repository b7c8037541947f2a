"""The places where the numbers of a run can be written: a new one is a file and a line here."""

from collections.abc import Callable, Mapping

from adversaries.errors import InputError
from fedsim.common.foreign_text import without_password
from fedsim.report.tracking.mlflow_tracker import MlflowTracker
from fedsim.report.tracking.tensorboard_tracker import TensorBoardTracker
from fedsim.report.tracking.tracker import Tracker

TRACKERS: Mapping[str, Callable[[str], Tracker]] = {
    "tensorboard": TensorBoardTracker,
    "mlflow": MlflowTracker,
}
"""The places by the names that --track gives them, each made from what stands behind the colon."""


def opened(target: str) -> Tracker:
    """Return the tracker of one --track.

    Args:
        target: such as "tensorboard:DIR".

    Raises:
        InputError: there is no such tracker, it lacks a place, or its package is not installed.
    """
    name, _, place = target.partition(":")
    if name not in TRACKERS or not place:
        known = ", ".join(TRACKERS)
        raise InputError(
            f"'{without_password(target)}' is no place to track a run; give NAME:PLACE, such as "
            f"tensorboard:fedsim-tensorboard (there are {known})"
        )
    return TRACKERS[name](place)
