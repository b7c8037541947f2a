"""Where the `fedsim` command begins: ready for Ctrl-C before the slow imports, and for SIGTERM."""

import os
import signal
import sys
from types import FrameType

from fedsim.cli import INTERRUPTED

ASK_AGAIN = 0.05  # seconds


def _interrupt(number: int, frame: FrameType | None) -> None:
    # An exception that runs through the C++ of a module being imported aborts the process
    # (torch), or is swallowed there: wait until the import is over.
    if _importing(frame):
        signal.setitimer(signal.ITIMER_REAL, ASK_AGAIN)
        return
    # SIGTERM as Ctrl-C, so that a simulation's SuperLink is stopped on the way out.
    raise KeyboardInterrupt


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _not_lost(lost: "sys.UnraisableHookArgs") -> None:
    # Python drops what is raised while an object is being deleted: ask again.
    if isinstance(lost.exc_value, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, ASK_AGAIN)
    else:
        sys.__unraisablehook__(lost)


def main() -> None:
    """Run the command line."""
    sys.unraisablehook = _not_lost
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        if signal.getsignal(number) != signal.SIG_IGN:  # as a shell starts jobs in the background
            signal.signal(number, _interrupt)
    try:
        try:
            from fedsim.cli.main import main as command  # noqa: PLC0415
        except (ImportError, AttributeError):
            from fedsim.common.installation import complaint  # noqa: PLC0415

            # Modules of another project, in the place of this one's, lack what is imported.
            if not (found := complaint()):
                raise
            print(f"fedsim: {found}", file=sys.stderr)
            sys.exit(2)
        command()
    except KeyboardInterrupt:
        print("fedsim: interrupted", file=sys.stderr, flush=True)
        # Half-imported modules may fail on the way out, and say so.
        os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
