"""Honest runs under every kind of audit: how many are accused.

What an alarm, or a finding of that severity, says of a run whose noise and clipping are as claimed
is wrong. Chance is allowed one in a thousand of each check.
"""

import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tables import Table

from adversaries import membership_attacks
from adversaries.intervals import clopper_pearson
from fedsim import membership_game, membership_report, transcript_audit
from fedsim.config import Scalar, from_run_config
from fedsim.runtimes.inprocess import InProcessGrid
from fedsim.transcript import read

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "mutations"))

from variants import BASE, CORRECT, POISSON, Variant, play  # noqa: E402

REPEATS, TRIALS, ROUNDS = 16, 16, 4
FIRST_SEED = 3000

LOCAL: dict[str, Scalar] = {"federation.trust": "local"}
ALL: dict[str, Scalar] = {"audit.vantages": "all"}
INSTRUMENTED: dict[str, Scalar] = {"audit.mode": "instrumented"}

MORE = (
    Variant("local trust, all vantages", LOCAL | ALL),
    Variant("the server's vantage", LOCAL | {"federation.vantage": "server"}),
    Variant("the released model's vantage", {"federation.vantage": "released-model"}),
    Variant("local steps", LOCAL | {"training.local-steps": 2}),
    Variant("instrumented", INSTRUMENTED),
    Variant("instrumented, Poisson sampling", INSTRUMENTED | POISSON),
    Variant("seldom clipped", {"training.clipping-norm": 5.0}),
    Variant("seldom clipped, Poisson sampling", POISSON | {"training.clipping-norm": 5.0}),
    Variant("common random numbers", {"trials.pairing": "common"}),
    Variant(
        "PAC noise",
        INSTRUMENTED
        | {"privacy.noise": "pac", "privacy.mutual-information": 0.1, "privacy.rho-beta": 0.0},
    ),
    Variant("canaries", {"canaries.count": 40}),
    Variant("a gradient as the challenge", {"challenge.kind": "gradient"}),
)
"""Kinds of audit that the correct variants of the mutation suite have not."""

FLOWERS = ("server", "client", "local")
"""How Flower's own federation makes noise: `privacy` of the recorded app."""


Said = tuple[list[str], int | None]


@dataclass(frozen=True)
class Kind:
    """A kind of audit: what it accuses a seed's run of, and how many checks chance could fail.

    None where the audit does not count them.
    """

    name: str
    accused: Callable[[int], Said]


def measure(smoke: bool, data_root: Path | None) -> Iterator[Table]:
    """Yield for every kind of audit how many honest runs it accused, and of what."""
    del data_root  # scikit-learn brings the data
    repeats, rows = 1 if smoke else REPEATS, []
    runs = accused = 0
    for kind in kinds():
        found = [kind.accused(FIRST_SEED + seed) for seed in range(repeats)]
        wrong = [names for names, _ in found if names]
        chances = max((chance for _, chance in found if chance is not None), default=None)
        said = ", ".join(sorted({name for names in wrong for name in names})) or "none"
        rows.append((kind.name, repeats, len(wrong), chances, said))
        runs, accused = runs + repeats, accused + len(wrong)
    limits = clopper_pearson(accused, runs, 0.95)
    yield Table(
        f"Honest runs: {accused} of {runs} accused",
        ("audit", "runs", "accused", "checks that chance could fail", "of what"),
        rows,
        f"{TRIALS} trials of {ROUNDS} rounds; seeds {FIRST_SEED} to {FIRST_SEED + repeats - 1}. "
        f"The share accused is {100 * limits.low:.2g} to {100 * limits.high:.2g} %, at 95 % "
        "confidence.",
    )


def kinds() -> Iterator[Kind]:
    """Yield every kind of audit, of runs, of membership and of transcripts."""
    for variant in (*CORRECT, *MORE):
        yield Kind(variant.name, lambda seed, variant=variant: _of_run(variant, seed))
    yield Kind("membership inference", _of_membership)
    for privacy in FLOWERS:
        yield Kind(
            f"transcripts of Flower's own app, noise by {privacy}",
            lambda seed, privacy=privacy: _of_transcripts(privacy, seed),
        )


def _of_run(variant: Variant, seed: int) -> Said:
    with tempfile.TemporaryDirectory() as folder:
        report = play(variant, Path(folder) / "run", TRIALS, ROUNDS, seed=seed).report
    return list(report["alarms"]), report["chance_alarms"]


def _of_membership(seed: int) -> Said:
    changes: dict[str, Scalar] = {"run.seed": seed, "training.rounds": ROUNDS}
    config = from_run_config(BASE | changes | {"audit.attacks": "yeom-mean,lira"})
    attacks = membership_attacks.chosen(config.audit.attacks)
    game = membership_game.play(config, 40)
    return membership_report.assemble(config, game, attacks, 0.0)["alarms"], 1


def _of_transcripts(privacy: str, seed: int) -> Said:
    with tempfile.TemporaryDirectory() as folder, _quickstart() as (client, server, config):
        config |= {"privacy": privacy, "seed": seed, "transcripts": folder}
        grid = InProcessGrid(client.app, 3, config)
        server.app(grid, next(iter(grid.contexts.values())))
        found = [
            finding
            for path in Path(folder).glob("*.fedt")
            for finding in transcript_audit.audit(read(path))["findings"]
        ]
    return [each["text"][:60] for each in found if each["severity"] == "alarm"], None


@contextmanager
def _quickstart() -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    """Lend the two halves of the recorded app, and its configuration."""
    app = HERE.parent / "apps" / "quickstart"
    sys.path.insert(0, str(app))
    try:
        from quickstart import client_app, server_app  # noqa: PLC0415

        text = (app / "pyproject.toml").read_text(encoding="utf-8")
        yield client_app, server_app, tomllib.loads(text)["tool"]["flwr"]["app"]["config"]
    finally:
        sys.path.remove(str(app))
