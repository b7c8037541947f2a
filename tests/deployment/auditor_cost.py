"""What an auditor costs everybody else: one deployed run, which an auditor joins and leaves.

    python tests/deployment/auditor_cost.py FOLDER [--rounds 60] [--block 8] [--trials 400]

A kit on loopback, TLS and authenticated nodes, two clients and an auditor. Every `block` rounds the
auditor's node is started or stopped, so that rounds with and without it alternate under the same
conditions. The linear model of the digits has 650 parameters, 400 trials of it are 1.04 MB a
message. Prints JSON: medians, and an interval of their ratio from a bootstrap over blocks.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from fedsim.configuration import dump, from_run_config
from fedsim.deployment import kit
from fedsim.deployment import run as deployment
from fedsim.federation.runs.run_directory import RunDirectory
from fedsim.federation.runtimes.flower_command import FlowerError

BIN = Path(sys.executable).parent
CLIENTS = 2
RESAMPLES = 10_000
AGREED = "adversary,central,challenge,experiment"
"""What an experiment with noise from the seed asks of clients."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def script(place, name):
    subprocess.run(["sh", str(place / name)], check=False, stdout=sys.stderr)


def start_server(directory):
    """Write a kit, start its server and clients, and register all keys."""
    kit.write_kit(
        directory,
        "127.0.0.1",
        free_port(),
        CLIENTS,
        superlink_port=free_port(),
        listen="127.0.0.1",
        auditor=True,
    )
    for index, machine in enumerate(kit.read_kit(directory).nodes):
        place = kit.folder(directory, machine)
        settings, node = place / "settings.env", place / "node.toml"
        own = f"NODE_PORT={kit.NODE_PORT + index}"
        settings.write_text(settings.read_text().replace(own, f"NODE_PORT={free_port()}"))
        terms = node.read_text().replace('consent = ""', f'consent = "{AGREED}"')
        node.write_text(terms.replace("max-trials = 1\n", "max-trials = 1000\n"))
    script(directory / "server", "start.sh")
    while True:
        try:
            deployment.register(directory / "server")
            break
        except FlowerError:
            time.sleep(1)
    for client in range(CLIENTS):
        script(kit.folder(directory, f"client-{client}"), "start.sh")


def toggle(running, run, auditor, block):
    """Start or stop the auditor whenever `block` rounds were counted; return when."""
    toggled = []
    while running.poll() is None:
        blocks, present = spans(run, toggled)
        if blocks and len(blocks[-1][1]) >= block and present == blocks[-1][0]:
            toggled.append(time.time())
            script(auditor, "stop.sh" if present else "start.sh")
            while running.poll() is None and spans(run, toggled)[1] == present:
                time.sleep(0.5)
        time.sleep(0.5)
    return toggled


def spans(run, toggled):
    """Return each block's state and seconds a round, and the state at the end.

    Rounds count from the first that is wholly after a change to the last before the next.
    """
    blocks = []
    present, changing, clean, last = False, False, False, None
    marks = [{"time": moment, "toggled": True} for moment in toggled]
    for event in sorted([event for event, _ in run.events()] + marks, key=lambda one: one["time"]):
        if "toggled" in event:
            changing, clean = True, False
        elif "auditor" in event:
            present, changing, clean = event["joined"], False, False
        elif "round" in event:
            if last is not None and event["round"] > 1 and clean:
                if not blocks or blocks[-1][0] != present:
                    blocks.append((present, []))
                blocks[-1][1].append(event["time"] - last)
            last, clean = event["time"], not changing
    return blocks, present


def conclude(blocks):
    """Return medians and their ratio, with a bootstrap interval that resamples whole blocks."""
    by_state = {state: [rounds for on, rounds in blocks if on is state] for state in (False, True)}

    def ratio(groups):
        medians = {state: np.median(np.concatenate(groups[state])) for state in groups}
        return float(medians[True] / medians[False])

    generator = np.random.default_rng(0)
    ratios = [
        ratio(
            {
                state: [rounds[i] for i in generator.integers(len(rounds), size=len(rounds))]
                for state, rounds in by_state.items()
            }
        )
        for _ in range(RESAMPLES)
    ]
    found = {}
    for state, name in ((False, "without"), (True, "with")):
        seconds = np.concatenate(by_state[state])
        quartiles = np.quantile(seconds, [0.25, 0.5, 0.75]).round(3).tolist()
        found[name] = {
            "rounds": len(seconds),
            "blocks": len(by_state[state]),
            "quartiles": quartiles,
        }
    found["ratio"] = round(ratio(by_state), 4)
    found["interval_95"] = np.quantile(ratios, [0.025, 0.975]).round(4).tolist()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    for name, default in (("rounds", 60), ("block", 8), ("trials", 400)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    folder = arguments.folder.absolute()
    folder.mkdir(mode=0o700)
    config = from_run_config(
        {
            "data.records": 24,
            "privacy.delta": 0.005,
            "federation.clients": CLIENTS,
            "model.name": "linear",
            "training.rounds": arguments.rounds,
            "trials.count": arguments.trials,
            "trials.batch": arguments.trials,
            "audit.evaluated-trials": 1,
            "run.threads": 1,
            "run.device": "cpu",
        }
    )
    (folder / "config.toml").write_text(dump(config))
    directory, run = folder / "kit", RunDirectory(folder / "run")
    start_server(directory)
    auditor = kit.folder(directory, "auditor")
    try:
        command = [BIN / "fedsim", "deploy", "run", directory, folder / "config.toml"]
        command += ["--experiment", "--quiet", "--out", run.path]
        with subprocess.Popen([str(part) for part in command]) as running:
            toggled = toggle(running, run, auditor, arguments.block)
    finally:
        for machine in [*kit.read_kit(directory).nodes, "server"]:
            script(kit.folder(directory, machine), "stop.sh")
    print(json.dumps(conclude(spans(run, toggled)[0])))


if __name__ == "__main__":
    main()
