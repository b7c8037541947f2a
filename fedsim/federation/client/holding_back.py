"""The records that a client, by a keyed digest of each, holds back from every training."""

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
from fedsim.configuration import Scalar
from fedsim.federation.client import client_ledger
from fedsim.federation.protocol import consent
from fedsim.federation.protocol.consent import RefusedError
from fedsim.game.federation import Federation

KEY_FILE = "held-back.key"
"""File name of the key, in the folder of the client's ledger."""

KEY_BYTES = 32

Positions = npt.NDArray[np.intp]


def trained_on(
    whole: Federation, partition: int, node: Mapping[str, Scalar], share: float, seed: int
) -> Federation:
    """Return a federation in which a client owns only the records that it trains on.

    whole: the client's data with all its records.
    node: the client's config, with its consent and its share.
    share: the share that a simulated client holds back.
    seed: the key of a simulated client's digest.
    Raises RefusedError if the config is invalid.
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


def check_measures(node: Mapping[str, Scalar], epsilon: float) -> None:
    """Raise RefusedError if a client did not agree to the epsilon of a run's measures."""
    terms = consent.terms(node)
    if not epsilon or terms is None or consent.MEASURES not in terms.kinds:
        return
    if epsilon > (most := agreed(node, consent.MEASURES_EPSILON)):
        raise RefusedError(
            f"federation.measures-epsilon is {epsilon:g}, but this client agreed to "
            f"{consent.MEASURES_EPSILON} = {most:g} at most; lower it, or raise the client's limit"
        )


def held_back(whole: Federation, loaded: Federation, partition: int) -> Positions:
    """Return the positions in D of the records that a client holds back."""
    return np.setdiff1d(whole.owned_by(partition), loaded.owned_by(partition))


def agreed(node: Mapping[str, Scalar], name: str, most: float = math.inf) -> float:
    value = node.get(name)
    if isinstance(value, str | bool | None) or not 0 < value <= most or not math.isfinite(value):
        upper = "" if math.isinf(most) else f" and at most {most:g}"
        raise RefusedError(
            f"this node consents to '{consent.MEASURES}', but its setting {name} is {value!r}; "
            f"give a number above 0{upper}"
        )
    return float(value)


@lru_cache(maxsize=64)
def _without(whole: Federation, partition: int, share: float, key: bytes) -> Federation:
    owned = whole.owned_by(partition)
    records = whole.split.members_records.take(owned)
    limit = int(share * 2**64)
    held = [
        int.from_bytes(hmac.digest(key, content, hashlib.sha256)[:8], "little") < limit
        for features, label in zip(records.features, records.labels, strict=True)
        for content in (features.tobytes() + label.tobytes(),)
    ]
    client_of = whole.client_of.copy()
    # Held-back records belong to a number behind all clients, and so to no client.
    client_of[owned[np.array(held, dtype=np.bool_)]] = client_of.max(initial=0) + 1
    return replace(whole, client_of=client_of)


def _own_key(state: Path) -> bytes:
    """Return the client's key, which is drawn once and kept beside its ledger."""
    folder = state.resolve()
    with client_ledger.locked(folder):
        path = folder / KEY_FILE
        if not path.exists():
            private_files.write_private(path, secrets.token_bytes(KEY_BYTES))
        with os.fdopen(private_files.opened_own(path, os.O_RDONLY), "rb") as file:
            return file.read(KEY_BYTES)
