"""Reconstruction and attribute games on digits and Adult, with the claimed noise and with less."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tables import Table, Value

import fedsim
from fedsim.game.client import noise
from fedsim.studies import rounds

CONFIGS = Path(__file__).parents[2] / "configs"

DIGITS: tuple[dict[str, Any], ...] = (
    {"candidates": 100},
    {"candidates": 1000, "changes": {"data.held-out": 100, "training.rounds": 10}},
    {"column": "label"},
)

ADULT: tuple[dict[str, Any], ...] = (
    {"candidates": 100},
    {"column": "label"},
    {"column": "sex"},
    {"column": "education"},
    {"column": "education", "prior": "data"},
)

GLOBAL = {
    "privacy.sensitivity": "global",
    "privacy.neighbouring": "add-remove",
    "privacy.rho-beta": 0.99,
}
"""Noise that is a guarantee, and as little of it as leaves something to guess."""

SHARES = (1.0, 0.8)


def measure(smoke: bool, data_root: Path | None) -> Iterator[Table]:
    """Yield a table of every game on each dataset; Adult needs a folder with adult/ in it."""
    yield _table("digits", {}, DIGITS[::2] if smoke else DIGITS, smoke)
    if data_root is not None:
        keys = GLOBAL | {"data.root": str(data_root / "adult")}
        yield _table("adult", keys, ADULT[1:2] if smoke else ADULT, smoke)


def _table(
    name: str, keys: dict[str, Any], games: tuple[dict[str, Any], ...], smoke: bool
) -> Table:
    trials = 20 if smoke else 1000
    rows = [_row(name, keys, game, share, trials) for game in games for share in SHARES]
    return Table(
        f"Guesses in {trials:,} trials: {name}",
        ("guessed", "noise", "baseline", "measured (95 %)", "believed", "bound", "alarms"),
        rows,
        "Noise: as a share of the noise that is accounted for. Believed: the adversary's mean "
        "certainty.",
    )


def _row(
    name: str, keys: dict[str, Any], game: dict[str, Any], share: float, trials: int
) -> tuple[Value, ...]:
    changes = keys | game.get("changes", {}) | {"trials.count": trials}
    played = {name: value for name, value in game.items() if name != "changes"}
    with patch.object(rounds, "noise", lambda *drawn: noise(*drawn) * share):
        config = CONFIGS / f"{name}.toml"
        report = fedsim.attack(config, changes, progress=False, **played).report
    measured, (low, high) = report["measured"]["success"], report["measured"]["interval"]
    guessed = "a record" if report["column"] is None else report["column"]
    return (
        f"{guessed}, 1 of {report['candidates']}"
        + (", prior of the data" if report["prior"] == "data" else ""),
        f"{share:g}",
        _percent(report["baseline"]),
        f"{_percent(measured)} ({_percent(low)}–{_percent(high)})",
        _percent(report["measured"]["believed"]),
        _percent(report["bound"]),
        ", ".join(report["contradictions"]) or "none",
    )


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
