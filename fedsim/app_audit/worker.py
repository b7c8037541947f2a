"""The process that an app is audited in: it loads the app, runs it on request, and measures.

`python -m fedsim.app_audit.worker DESCRIPTOR`, with a socket to `fedsim.app_audit.process`.
"""

import socket
import sys
from pathlib import Path

from adversaries.errors import InputError
from fedsim.app_audit.execution import opened
from fedsim.app_audit.measurement import AppFailedError
from fedsim.app_audit.process import ORDER, REQUEST, Answer, line


def main() -> None:
    """Answer until nobody asks any more."""
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        channel.set_inheritable(False)
        try:
            _serve(channel)
        except InputError as error:
            channel.sendall(line(Answer(refused=str(error))))
        except AppFailedError as error:
            channel.sendall(line(Answer(failed=str(error))))


def _serve(channel: socket.socket) -> None:
    with channel.makefile("rb") as asked:
        first = asked.readline()
        if not first:  # the audit ended before it asked for anything
            return
        order = ORDER.validate_json(first, strict=True)
        with opened(Path(order.directory), order.clients, order.overrides) as app:
            channel.sendall(line(Answer(name=app.name)))
            for each in asked:
                request = REQUEST.validate_json(each, strict=True)
                execution = app.execute(request.seed, request.script)
                channel.sendall(line(Answer(execution=execution)))


if __name__ == "__main__":
    main()
