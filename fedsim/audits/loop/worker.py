"""The process that a training function is audited in: it runs it on request, and measures.

`python -m fedsim.audits.loop.worker DESCRIPTOR`, with a socket to `fedsim.audits.loop.process`.
"""

import warnings
from collections.abc import Iterator

from fedsim.audits.loop.contract import loaded
from fedsim.audits.loop.process import ORDER, REQUEST, Answer, Request
from fedsim.audits.loop.records import drawn
from fedsim.audits.loop.running import Loop, Trials
from fedsim.audits.loop.watching import Watch
from fedsim.audits.loop.worlds import Pair, pairs
from fedsim.audits.sandbox import channel
from fedsim.privacy.mechanism import Neighbouring


def main() -> None:
    """Answer until nobody asks any more."""
    channel.serve(answers)


def answers(first: bytes, asked: Iterator[bytes]) -> Iterator[Answer]:
    """Yield the answer to an order, then that to every request.

    Args:
        asked: requests, each a line of JSON.

    Raises:
        InputError: there is no such function or data.
        AppFailedError: the loop fails.
    """
    order = ORDER.validate_json(first, strict=True)
    # Opacus warns in every run of what a rule says once.
    warnings.simplefilter("ignore")
    function = loaded(order.function)
    data = drawn(order.data, order.records, order.seed)
    worlds = pairs(data, order.target, Neighbouring(order.neighbouring), order.seed)
    loop = Loop(function, Watch())
    trials = Trials(loop, worlds)
    yield Answer(pairs=tuple(each.name for each in worlds), many=function.many)
    for each in asked:
        yield _answer(REQUEST.validate_json(each, strict=True), loop, trials, worlds)


def _answer(request: Request, loop: Loop, trials: Trials, worlds: tuple[Pair, ...]) -> Answer:
    if request.kind == "observe":
        here = worlds[request.pair]
        made = {"twin": here.twin, "stranger": here.stranger}.get(request.world)
        data = getattr(here, request.world) if made is None else made()
        return Answer(seen=tuple(loop.observed(data, seed) for seed in request.seeds))
    if request.kind == "pilots":
        return Answer(distance=trials.pilot(request.pair, request.seeds))
    features = tuple(trials.features(request.pair, request.worlds, request.seeds))
    return Answer(features=features, noise=trials.noise)


if __name__ == "__main__":
    main()
