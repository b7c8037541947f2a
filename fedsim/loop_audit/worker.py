"""The process that a training function is audited in: it runs it on request, and measures.

`python -m fedsim.loop_audit.worker DESCRIPTOR`, with a socket to `fedsim.loop_audit.process`.
"""

import socket
import sys
import warnings

from adversaries.errors import InputError
from fedsim.app_audit.measurement import AppFailedError
from fedsim.loop_audit.contract import loaded
from fedsim.loop_audit.process import ORDER, REQUEST, Answer, Request, line
from fedsim.loop_audit.records import drawn
from fedsim.loop_audit.running import Loop, Trials
from fedsim.loop_audit.watching import Watch
from fedsim.loop_audit.worlds import Pair, pairs
from fedsim.privacy.mechanism import Neighbouring


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
        order = ORDER.validate_json(first)
        # Opacus warns in every run of what a rule says once.
        warnings.simplefilter("ignore")
        function = loaded(order.function)
        data = drawn(order.data, order.records, order.seed)
        worlds = pairs(data, order.target, Neighbouring(order.neighbouring), order.seed)
        loop = Loop(function, Watch())
        trials = Trials(loop, worlds)
        names = tuple(each.name for each in worlds)
        channel.sendall(line(Answer(pairs=names, many=function.many)))
        for each in asked:
            request = REQUEST.validate_json(each)
            channel.sendall(line(_answer(request, loop, trials, worlds)))


def _answer(request: Request, loop: Loop, trials: Trials, worlds: tuple[Pair, ...]) -> Answer:
    if request.kind == "observe":
        data = getattr(worlds[request.pair], request.world)
        return Answer(seen=tuple(loop.observed(data, seed) for seed in request.seeds))
    if request.kind == "pilots":
        trials.pilot(request.pair, request.seeds)
        return Answer()
    return Answer(features=tuple(trials.features(request.pair, request.worlds, request.seeds)))


if __name__ == "__main__":
    main()
