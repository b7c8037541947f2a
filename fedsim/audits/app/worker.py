"""The process that an app is audited in: it loads the app, runs it on request, and measures.

`python -m fedsim.audits.app.worker DESCRIPTOR`, with a socket to `fedsim.audits.app.process`.
"""

from collections.abc import Iterator
from pathlib import Path

from fedsim.audits.app.execution import opened
from fedsim.audits.app.process import ORDER, REQUEST, Answer
from fedsim.audits.sandbox import channel


def main() -> None:
    """Answer until nobody asks any more."""
    channel.serve(_answers)


def _answers(first: bytes, asked: Iterator[bytes]) -> Iterator[Answer]:
    order = ORDER.validate_json(first, strict=True)
    with opened(Path(order.directory), order.clients, order.overrides) as app:
        yield Answer(name=app.name)
        for each in asked:
            request = REQUEST.validate_json(each, strict=True)
            yield Answer(execution=app.execute(request.seed, request.script))


if __name__ == "__main__":
    main()
