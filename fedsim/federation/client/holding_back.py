"""The records that a client holds back from every training, to say how good the model is for them.

A record is held back or not by a keyed digest of the record alone, so that no server chooses which,
they are the same in every training on these records, and adding or removing one moves no other.
"""

import hashlib
import hmac
import math
import os
import secrets
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedsim.common import private_files
from fedsim.config import Scalar
from fedsim.federation.client import client_ledger
from fedsim.federation.protocol import consent
from fedsim.federation.protocol.consent import RefusedError
from fedsim.game.federation import Federation

KEY_FILE = "held-back.key"
"""In the folder of the client's ledger."""

KEY_BYTES = 32

Positions = npt.NDArray[np.intp]


def trained_on(
    whole: Federation, partition: int, node: Mapping[str, Scalar], share: float, seed: int
) -> Federation:
    """Return a federation in which a client owns only the records that it trains on.

    whole: what the client knows.
    node: the client's config, which says whether its owner agreed, and to which share.
    share, seed: what a simulated client holds back, and by which digest.
    Raises RefusedError if the config means nothing.
    """
    terms = consent.terms(node)
    if terms is None:
        key = seed.to_bytes(8, "little")
    elif consent.MEASURES in terms.kinds:
        share = agreed(node, consent.MEASURES_SHARE, most=0.5)
        key = _own_key(terms.state)
    else:
        return whole
    return _without(whole, partition, share, key) if share else whole


def check(node: Mapping[str, Scalar], epsilon: float) -> None:
    """Check that a client agreed to the epsilon of a run's measures, before its first round.

    node: the client's config.
    epsilon: what the answer costs, 0 where the run asks for none.
    Raises RefusedError if it agreed to less, or its config means nothing.
    """
    terms = consent.terms(node)
    if not epsilon or terms is None or consent.MEASURES not in terms.kinds:
        return
    if epsilon > (most := agreed(node, consent.MEASURES_EPSILON)):
        raise RefusedError(
            f"federation.measures-epsilon is {epsilon:g}, but this client agreed to "
            f"{consent.MEASURES_EPSILON} = {most:g} at most"
        )


def held_back(whole: Federation, known: Federation, partition: int) -> Positions:
    """Return the positions in D of the records that a client holds back.

    whole, known: with them, and as `trained_on` returns it.
    """
    return np.setdiff1d(whole.owned_by(partition), known.owned_by(partition))


def agreed(node: Mapping[str, Scalar], name: str, most: float = math.inf) -> float:
    """Return a number that the consent to measures needs. Raises RefusedError if there is none."""
    value = node.get(name)
    if isinstance(value, str | bool | None) or not 0 < value <= most or not math.isfinite(value):
        upper = "" if math.isinf(most) else f" and at most {most:g}"
        raise RefusedError(
            f"the node's consent has '{consent.MEASURES}' and its {name} is {value!r}; give a "
            f"number above 0{upper}"
        )
    return float(value)


@lru_cache(maxsize=64)
def _without(whole: Federation, partition: int, share: float, key: bytes) -> Federation:
    owned = whole.owned_by(partition)
    records = whole.split.members_records.take(owned)
    limit = int(share * 2**64)
    held = [
        _digest(key, features.tobytes() + label.tobytes()) < limit
        for features, label in zip(records.features, records.labels, strict=True)
    ]
    client_of = whole.client_of.copy()
    client_of[owned[np.array(held, dtype=np.bool_)]] = client_of.max(initial=0) + 1  # no client's
    return replace(whole, client_of=client_of)


def _digest(key: bytes, content: bytes) -> int:
    return int.from_bytes(hmac.digest(key, content, hashlib.sha256)[:8], "little")


def _own_key(state: Path) -> bytes:
    """Return the key of a client, which is drawn once and kept beside its ledger."""
    folder = state.resolve()
    with client_ledger.locked(folder):
        path = folder / KEY_FILE
        if not path.exists():
            private_files.write(path, secrets.token_bytes(KEY_BYTES))
        with os.fdopen(private_files.opened_own(path, os.O_RDONLY), "rb") as file:
            return file.read(KEY_BYTES)
