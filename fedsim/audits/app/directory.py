"""Auditing the Flower app in a directory: what is asked of it is checked, then its code is run."""

from collections.abc import Callable, Mapping
from pathlib import Path

from adversaries.errors import InputError
from fedsim.audits.app.audit import AppAudit, audit, check
from fedsim.audits.app.process import opened
from fedsim.audits.judgement.claim import Claim
from fedsim.config import Scalar
from fedsim.privacy.mechanism import Neighbouring

ROUNDS_KEY = "num-server-rounds"
"""The key under which Flower's own templates declare the number of rounds."""

TRIALS = 300
"""How often an app is run under attack, unless somebody says."""

LONGEST_TIME = 1e6
"""Seconds; a socket takes no time much longer, and nobody waits for it."""


def audit_directory(
    app: Path,
    *,
    trials: int = TRIALS,
    rounds: int | None = None,
    clients: int = 5,
    run_config: Mapping[str, Scalar] | None = None,
    claim: Claim | None = None,
    neighbouring: Neighbouring = Neighbouring.ADD_REMOVE,
    confidence: float = 0.95,
    seed: int = 0,
    time_limit: float = 3600.0,
    show: Callable[[str], None] = lambda line: None,
    progress: Callable[[int], None] = lambda done: None,
) -> AppAudit:
    """Return the audit of the app in a directory.

    The app's code runs in a process of its own, with the user's rights.

    Args:
        app: the directory of the app's pyproject.toml
        rounds: its num-server-rounds; None for its own
        run_config: keys of its run configuration that are to be otherwise
        claim: what is claimed of it; None for what the app claims itself
        neighbouring: a client sends its update or none, or another update
        confidence: of every interval
        seed: of every random number
        time_limit: seconds that one run of it may take
        show: is told each line that the app prints

    Raises:
        InputError: for options out of range or that contradict each other, and a directory that
            holds no Flower app.
        AppFailedError: if the app fails.
    """
    _check(clients, time_limit)
    check(trials, confidence, seed)
    overrides = _overrides(run_config or {}, rounds)
    with opened(app, clients, overrides, time_limit, show) as audited:
        return audit(
            audited,
            trials=trials,
            seed=seed,
            claim=claim,
            neighbouring=neighbouring,
            confidence=confidence,
            progress=progress,
        )


def _check(clients: int, time_limit: float) -> None:
    """Raise InputError for what no app is run with."""
    if clients < 2:
        raise InputError(f"--clients {clients} is no federation; give at least 2")
    if not time_limit > 0:
        raise InputError(f"in {time_limit:g} s no app runs; give a longer time limit")
    if time_limit > LONGEST_TIME:
        raise InputError(
            f"{time_limit:g} s is no limit; give a time limit of {LONGEST_TIME:.0f} s at most"
        )


def _overrides(run_config: Mapping[str, Scalar], rounds: int | None) -> dict[str, Scalar]:
    """Return the run configuration with so many rounds. Raises InputError for less than one."""
    overrides = dict(run_config)
    if rounds is not None:
        overrides[ROUNDS_KEY] = rounds
    asked = overrides.get(ROUNDS_KEY, 1)
    if isinstance(asked, int | float) and asked < 1:
        raise InputError(f"in {asked} rounds nothing is released; give at least 1")
    return overrides
