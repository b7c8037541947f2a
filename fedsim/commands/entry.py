"""Entry point of the `fedsim` command. Handles Ctrl-C and SIGTERM before the slow imports."""

import os
import signal
import sys
from types import FrameType

from fedsim.commands import INTERRUPTED

ASK_AGAIN = 0.05  # seconds


def _interrupt(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            # An exception in the C++ code of a module that is being imported (torch) aborts the
            # process or is swallowed. Wait until the import is over.
            signal.setitimer(signal.ITIMER_REAL, ASK_AGAIN)
            return
        frame = frame.f_back
    # SIGTERM as Ctrl-C, so that a simulation's SuperLink is stopped on the way out.
    raise KeyboardInterrupt


def _raise_again(dropped: "sys.UnraisableHookArgs") -> None:
    # Python drops an exception that is raised while an object is being deleted.
    if isinstance(dropped.exc_value, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, ASK_AGAIN)
    else:
        sys.__unraisablehook__(dropped)


def main() -> None:
    """Run the command line."""
    sys.unraisablehook = _raise_again
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        if signal.getsignal(number) != signal.SIG_IGN:  # a shell ignores SIGINT in background jobs
            signal.signal(number, _interrupt)
    try:
        try:
            from fedsim.commands.main import main as command  # noqa: PLC0415
        except (ImportError, AttributeError):
            from fedsim.common.installation import complaint  # noqa: PLC0415

            # Another project's modules may shadow ours and lack the imported names.
            if not (message := complaint()):
                raise
            print(f"fedsim: {message}", file=sys.stderr)
            sys.exit(2)
        command()
    except KeyboardInterrupt:
        print("fedsim: interrupted", file=sys.stderr, flush=True)
        # A normal exit may print errors of half-imported modules.
        os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
