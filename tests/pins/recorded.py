"""Records small trainings, of which audits of transcripts are then made.

    python recorded.py server|loop|live

Modules are looked up by what they define, so that this also runs in trees that have them elsewhere.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

import fedsim

ROOT = Path(fedsim.__file__).parent


def defining(line: str) -> Any:
    """Import the one module of fedsim that has a line which begins so."""
    for path in sorted(ROOT.rglob("*.py")):
        if any(each.startswith(line) for each in path.read_text(encoding="utf-8").splitlines()):
            parts = path.relative_to(ROOT.parent).with_suffix("").parts
            return importlib.import_module(".".join(parts))
    raise SystemExit(f"no module of {ROOT} has a line that begins with '{line}'")


def server() -> None:
    """Write what a server recorded whose three clients send updates of norm 1."""
    records = defining("class ObservedRound")
    generator, model = np.random.default_rng(0), np.zeros(200)
    mechanism = {"clipping": "server", "noise_multiplier": 1.0, "clipping_norm": 1.0}
    mechanism |= {"num_sampled_clients": 3, "aggregation": "mean", "unit": "client"}
    with defining("class Writer").Writer(
        Path("server.fedt"), records.TranscriptFacts("server", "a test", "digits")
    ) as writer:
        for number in range(1, 5):
            updates = generator.standard_normal((3, 200))
            updates /= np.linalg.norm(updates, axis=1, keepdims=True)
            after = model + updates.mean(0) + generator.standard_normal(200) / 3
            replies = {
                7 + j: records.NodeReply({"w": model + u}, 5.0) for j, u in enumerate(updates)
            }
            writer.append(
                records.ObservedRound(
                    number, {"w": model}, replies, aggregate={"w": after}, mechanism=mechanism
                )
            )
            model = after
        writer.end()


def loop() -> None:
    """Write the steps of a training loop with noise of its own."""
    from fedsim import recording  # noqa: PLC0415

    generator = np.random.default_rng(1)
    told = {"divisor": 64, "noise_multiplier": 1.0, "clipping_norm": 0.5, "sample_rate": 0.1}
    with recording.Recorder("loop.fedt", records=640) as recorder:
        for _ in range(6):
            summed = generator.standard_normal(500)
            noisy = (summed + 0.5 * generator.standard_normal(500)) / 64
            recorder.step(noisy, summed, batch=64, **told)


def live() -> None:
    """Run a federation with an auditor's node in it, which records."""
    from flwr.app import Context, RecordDict  # noqa: PLC0415

    from fedsim import client_app  # noqa: PLC0415
    from fedsim.config import from_run_config, to_run_config  # noqa: PLC0415

    grids, servers = defining("class InProcessGrid"), defining("app = ServerApp(")
    sys.path.insert(0, str(Path(__file__).parent))
    small = importlib.import_module("kinds").TINY
    values = small | {"run.out": "run", "federation.trust": "local"}
    values |= {"trials.count": 32, "trials.batch": 32}
    plan = defining("class Plan:").prepare(from_run_config(values))
    run_config = to_run_config(plan.config)
    grid = grids.InProcessGrid(client_app.app, plan.config.federation.clients, run_config)
    grid.contexts[7777] = Context(
        run_id=grids.RUN_ID,
        node_id=7777,
        node_config={"role": "auditor", "transcript-path": "transcripts"},
        state=RecordDict(),
        run_config=run_config,
    )
    servers.carry_out(grid, plan, plan.begin())


if __name__ == "__main__":
    {"server": server, "loop": loop, "live": live}[sys.argv[1]]()
