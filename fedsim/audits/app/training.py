"""What a client's own training may hold that no trial sees, since trials do not run it.

Noise that training adds (Opacus, or a line by hand) protects a client's records, or its update,
before any mod or strategy: an audit that writes the updates itself knows nothing of it. Only where
training draws nothing at random is there nothing to know.
"""

import ast
import os
import sys
from functools import cache
from pathlib import Path

from fedsim.audits.app.configuration import Configuration
from fedsim.audits.judgement.claim import Claim

LIBRARIES = ("opacus", "tensorflow_privacy", "jax_privacy")
"""Packages that make training differentially private, by the name that they are imported by."""

DECLARE = (
    "if the claim is of a client's whole update as training returns it, say so with "
    "the claimed unit client"
)


def libraries(root: Path) -> tuple[str, ...]:
    """Return which of `LIBRARIES` the modules that were loaded from a directory import.

    Their source is read and not run: an import within a function counts too.
    """
    found: set[str] = set()
    within = f"{root}{os.sep}"  # asked after every trial, of thousands of modules
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file is not None and file.startswith(within) and file.endswith(".py"):
            found |= _imported(file)
    return tuple(name for name in LIBRARIES if name in found)


@cache
def _imported(file: str) -> frozenset[str]:
    """Return the packages that a source file imports anywhere; none if it cannot be parsed."""
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return frozenset()
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
    return frozenset(name.partition(".")[0] for name in names)


def _signs(configuration: Configuration) -> str:
    """Say what shows that clients train privately by themselves, "" if nothing does."""
    seen = configuration.observation
    if seen is None or seen.training is None:
        return ""
    training = seen.training
    said = []
    if training.libraries:
        said.append(f"its modules import {' and '.join(training.libraries)}")
    if training.epsilon is not None:
        said.append(
            f"clients report an epsilon of their own, up to {training.epsilon:.4g} a round (their "
            f"metric {training.metric!r})"
        )
    return " and ".join(said)


def unseen(configuration: Configuration, claim: Claim | None = None) -> str:
    """Return why a claim cannot be judged by trials in which nobody trains, "" if it can.

    What is claimed of a client's update as training returns it can be. So can, unless it is said to
    be of records, what is claimed where noise on the update's way is there to keep it; and what is
    claimed where training draws nothing at random.

    Args:
        claim: of which the unit counts; None for whatever may be claimed.
    """
    unit = None if claim is None else claim.unit
    if unit == "client":
        return ""
    if unit == "record":
        return (
            "the claim is of a record; this audit changes a client's whole update, and measures "
            "nothing of what training does with one record"
        )
    if private := _signs(configuration):
        return (
            f"{private}: the claim may be of their records, and the noise of training is in no "
            f"trial, since trials do not train; {DECLARE}"
        )
    seen = configuration.observation
    silent = configuration.central is None or not configuration.central.noise_multiplier
    if not silent or configuration.local is not None or seen is None or seen.training is None:
        return ""
    if not seen.training.random:
        return ""
    return (
        "training draws at random (two trainings of one model from other seeds gave two updates): "
        "it may add noise of its own, which is in no trial, since trials do not train; put the "
        f"noise where it can be seen, in a strategy of Flower's or a mod, or, {DECLARE}"
    )
