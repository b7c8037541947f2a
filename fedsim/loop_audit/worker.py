"""The process that a training function is audited in: it runs it on request, and measures.

`python -m fedsim.loop_audit.worker DESCRIPTOR`, with a socket to `fedsim.loop_audit.process`.
"""

import socket
import sys
import warnings

import numpy as np

from adversaries.errors import InputError
from fedsim.app_audit.measurement import AppFailedError
from fedsim.common.randomness import Role, generator
from fedsim.data import BUNDLED, load
from fedsim.loop_audit.contract import loaded
from fedsim.loop_audit.process import ORDER, REQUEST, Answer, Order, Request, line
from fedsim.loop_audit.running import Loop, Trials
from fedsim.loop_audit.watching import Watch
from fedsim.loop_audit.worlds import Data, Pair, pairs
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
        worlds = pairs(_data(order), order.target, Neighbouring(order.neighbouring), order.seed)
        loop = Loop(function, Watch())
        trials = Trials(loop, worlds)
        names = tuple(each.name for each in worlds)
        channel.sendall(line(Answer(pairs=names, many=function.many)))
        for each in asked:
            request = REQUEST.validate_json(each)
            channel.sendall(line(_answer(request, loop, trials, worlds)))


def _answer(request: Request, loop: Loop, trials: Trials, worlds: tuple[Pair, ...]) -> Answer:
    if request.kind == "observe":
        here = worlds[request.pair]
        data = here.twin() if request.world == "twin" else getattr(here, request.world)
        return Answer(seen=tuple(loop.observed(data, seed) for seed in request.seeds))
    if request.kind == "pilots":
        return Answer(distance=trials.pilot(request.pair, request.seeds))
    return Answer(features=tuple(trials.features(request.pair, request.worlds, request.seeds)))


def _data(order: Order) -> Data:
    """Return as many records as D has, drawn from the data by the seed."""
    if order.data in BUNDLED:
        whole = load(order.data).train
    elif order.data.endswith(".npz"):
        whole = load("npz", order.data).train
    else:
        raise InputError(
            f"--data is '{order.data}'; give {' or '.join(BUNDLED)}, or a file of features and "
            "labels, such as mine.npz"
        )
    features, labels = np.asarray(whole.features, np.float32), np.asarray(whole.labels)
    if order.records > len(labels):
        raise InputError(
            f"--records is {order.records}, and '{order.data}' has {len(labels)}; give at most that"
        )
    places = generator(order.seed, Role.CANDIDATES).permutation(len(labels))[: order.records]
    return Data(features[places], labels[places])


if __name__ == "__main__":
    main()
