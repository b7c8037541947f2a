"""A run in TensorBoard: a folder of event files, of which each run has one of its own."""

import threading
from collections.abc import Mapping
from typing import Any

from adversaries.errors import InputError
from fedsim.report.tracking.tracker import Subject, folder

USUAL = threading.excepthook


def _unless_told_anyway(what: threading.ExceptHookArgs) -> None:
    """Show what goes wrong in a thread, but for TensorBoard's: the next write raises it again."""
    if not issubclass(what.exc_type, OSError) or "tensorboard" not in type(what.thread).__module__:
        USUAL(what)


class TensorBoardTracker:
    """Writes what `tensorboard --logdir` shows."""

    def __init__(self, place: str) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415
        except ImportError:
            raise InputError(
                'tensorboard is not installed; pip install -e ".[tensorboard]"'
            ) from None
        threading.excepthook = _unless_told_anyway
        self._writers = SummaryWriter
        self._folder = folder(place)
        self._writer: Any = None

    def begin(self, subject: Subject) -> Mapping[str, int]:
        """Write everything again, which takes the place of what an earlier process wrote."""
        from torch.utils.tensorboard.summary import hparams  # noqa: PLC0415

        own = self._folder / f"{subject.name}-{subject.identity[:8]}"
        self._writer = self._writers(str(own), purge_step=0)
        shown = {"report/advantage": 0.0, "report/epsilon": 0.0}  # the columns; values are ignored
        for summary in hparams(dict(subject.parameters), shown):
            self._writer._get_file_writer().add_summary(summary)
        return {}

    def log(self, values: Mapping[str, float], step: int, time: float) -> None:
        """Write numbers."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step, walltime=time)
        self._writer.flush()

    def end(self, finished: bool) -> None:
        """Close the file."""
        self._writer.close()
