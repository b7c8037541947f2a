"""Signatures of the exchange keys of secure aggregation, by which clients know each other's keys.

Exchange keys travel through the server. Unsigned, a hostile server could swap them for its own, or
play the other clients, and read one client's message. A client that has the public node keys of the
others signs its exchange keys with its own node key, and refuses keys that are not signed so.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from flwr.app import ConfigRecord, Context

from fedsim.configuration import Scalar
from fedsim.federation.protocol import messages
from fedsim.federation.protocol.consent import RefusedError

KEY, PEERS = "key-path", "peers-path"
"""Keys of a client's node config: its private node key, and the folder of all clients' public node
keys, client-NUMBER.pub."""

SIGNATURE = "signature"
"""Name of a client's signature beside its exchange keys."""

SIGNED = "signed-keys"
"""Record of a message that lists whose exchange keys it has, with their signatures."""

LONGEST = 256
"""In bytes. A signature by a key on P-384 takes about 104."""

PURPOSE = b"fedsim: exchange keys of secure aggregation"


def knows_peers(node_config: Mapping[str, Scalar]) -> bool:
    """Return whether a client checks the others' keys. Raises RefusedError for half of the keys."""
    given = [bool(node_config.get(name)) for name in (KEY, PEERS)]
    if any(given) and not all(given):
        raise RefusedError(
            f"this node's config has only one of {KEY} and {PEERS}; set both, to its node.key and "
            "to the folder of the clients' public node keys"
        )
    return all(given)


def sign(context: Context, keys: Sequence[bytes]) -> bytes:
    """Return the signature of this client's exchange keys. Raises RefusedError for a bad key."""
    path = Path(str(context.node_config[KEY]))
    try:
        private = load_ssh_private_key(path.read_bytes(), password=None)
        if not isinstance(private, EllipticCurvePrivateKey):
            raise ValueError("it is not an elliptic-curve key")
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm):
        raise RefusedError(f"this client cannot read its {KEY}; give it its node.key") from None
    signed = _statement(context.run_id, messages.partition(context), keys)
    return private.sign(signed, ECDSA(SHA384()))


def listed(
    clients: Mapping[int, int], signatures: Mapping[int, bytes], nodes: Sequence[int]
) -> ConfigRecord:
    """Return the record of some nodes' signatures.

    clients: the node of each client.
    signatures: of each node's exchange keys.
    """
    client_of = {node: client for client, node in clients.items()}
    return ConfigRecord(
        {
            "nodes": list(nodes),
            "clients": [client_of[node] for node in nodes],
            "signatures": [signatures[node] for node in nodes],
        }
    )


def check(context: Context, record: ConfigRecord, keys: Mapping[int, Sequence[bytes]]) -> None:
    """Raise RefusedError unless each node's exchange keys are signed by another client's node key.

    record: from `listed`.
    keys: the two exchange keys of each node, this client's own among them.
    """
    lists: list[Any] = [record.get(name, []) for name in ("nodes", "clients", "signatures")]
    if any(not isinstance(each, list) or len(each) != len(keys) for each in lists):
        raise RefusedError("the server lists no signature for each client's exchange keys")
    nodes, clients, signatures = lists
    if {*nodes} != {*keys} or len({*clients}) != len(keys):
        raise RefusedError("the server lists a client twice among the signed exchange keys")
    peers = Path(str(context.node_config[PEERS]))
    for node, client, signature in zip(nodes, clients, signatures, strict=True):
        if type(client) is not int:
            raise RefusedError(f"the server names a client {client!r}, which is not a number")
        try:
            public = load_ssh_public_key((peers / f"client-{client}.pub").read_bytes())
            if not isinstance(public, EllipticCurvePublicKey):
                raise ValueError("it is not an elliptic-curve key")
            statement = _statement(context.run_id, client, keys[node])
            public.verify(signature, statement, ECDSA(SHA384()))
        except (OSError, ValueError, TypeError, UnsupportedAlgorithm):
            raise RefusedError(
                f"this client has no node key of client {client}; put its node.key.pub into the "
                f"folder {PEERS} as client-{client}.pub"
            ) from None
        except InvalidSignature:
            raise RefusedError(
                f"the exchange keys of client {client} are not signed by its node key; the server "
                "may have swapped them, or that client has another key than this one knows"
            ) from None


def _statement(run: int, client: int, keys: Sequence[bytes]) -> bytes:
    # Exchange keys are text (PEM), so no part contains the separator.
    return b"\0".join([PURPOSE, str(run).encode(), str(client).encode(), *keys])
