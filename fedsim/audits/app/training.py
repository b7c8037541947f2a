"""Signs that the clients' own training adds noise, which no trial sees.

Noise inside training (by Opacus, or by hand) protects a client's records or update before any mod
or strategy. An audit that writes the updates itself does not know it. Only training without
randomness surely adds none.
"""

import ast
import os
import sys
from functools import cache
from pathlib import Path

from fedsim.audits.app.configuration import Configuration
from fedsim.audits.judgement.claim import Claim

LIBRARIES = ("opacus", "tensorflow_privacy", "jax_privacy")
"""Import names of packages that make training differentially private."""

DECLARE = (
    "if the claim is about a client's whole update as training returns it, set the claimed unit "
    "to client"
)


def libraries(root: Path) -> tuple[str, ...]:
    """Return which of `LIBRARIES` the loaded modules of a directory import.

    Their source is parsed, not run, so that an import within a function counts too.
    """
    imported: set[str] = set()
    within = f"{root}{os.sep}"  # a plain prefix is fast: every trial checks thousands of modules
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file is not None and file.startswith(within) and file.endswith(".py"):
            imported |= _imported(file)
    return tuple(name for name in LIBRARIES if name in imported)


@cache
def _imported(file: str) -> frozenset[str]:
    """Return the packages that a source file imports anywhere; () if it cannot be parsed."""
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
    """Return the signs that clients train privately by themselves; "" without any."""
    seen = configuration.observation
    if seen is None or seen.training is None:
        return ""
    training = seen.training
    signs = []
    if training.libraries:
        signs.append(f"its modules import {' and '.join(training.libraries)}")
    if training.epsilon is not None:
        signs.append(
            f"clients report an epsilon of their own, up to {training.epsilon:.4g} a round (their "
            f"metric {training.metric!r})"
        )
    return " and ".join(signs)


def unseen(configuration: Configuration, claim: Claim | None = None) -> str:
    """Return why trials without training cannot judge a claim; "" if they can.

    They can judge a claim about a client's update as training returns it. They can also judge a
    claim that is not stated to be about records in two cases: noise is added after training, or
    training is not random.
    """
    unit = None if claim is None else claim.unit
    if unit == "client":
        return ""
    if unit == "record":
        return (
            "the claim is about a record. This audit changes a client's whole update, and does not "
            "measure how training treats one record"
        )
    if private := _signs(configuration):
        return (
            f"{private}. The claim may be about their records, and trials do not train, so that "
            f"no trial contains the noise of training; {DECLARE}"
        )
    seen = configuration.observation
    silent = configuration.central is None or not configuration.central.noise_multiplier
    if not silent or configuration.local is not None or seen is None or seen.training is None:
        return ""
    if not seen.training.random:
        return ""
    return (
        "training is random (two trainings of one model with different seeds gave two updates). It "
        "may add noise of its own, which no trial contains, since trials do not train. Put the "
        f"noise where it can be seen, in a strategy of Flower's or a mod, or, {DECLARE}"
    )
