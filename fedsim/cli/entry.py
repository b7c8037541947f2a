"""Where the `fedsim` command begins: ready for Ctrl-C before the slow imports, and for SIGTERM."""

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130


def _terminate(number: int, frame: FrameType | None) -> None:
    # As Ctrl-C, so that a simulation's SuperLink is stopped on the way out.
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line."""
    signal.signal(signal.SIGTERM, _terminate)
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
