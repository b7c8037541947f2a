"""Three hospitals, from their files to a card; then one is late, one starved, and one leaves.

    python tests/deployment/hospitals.py FOLDER [--adult ../shared/data/adult] [--rounds 30]

Plays an administrator who edits settings and no code. All machines are this one: TLS on loopback,
authenticated nodes, a folder for each machine. Prints every command with the machine that it is
given on, what it says, and in the end the minutes of each; FOLDER/session.json has them for a test.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from starved_node import busy_loops, free_port

HERE = Path(__file__).resolve().parent
CLIENTS = ("client-0", "client-1", "client-2")
LATE, STARVED, LEAVING = "client-2", "client-1", "client-0"

ANSWERS = "\n0,110\n\n\n0,20\n\n0,5000\n0,100\n0,100000\n"
"""Of the owner to each column: patient-id, age, ward, admitted, years-insured, marital, ..."""

TRAINING = """\
[data]
name = "own"
public-schema = "schema.toml"
public-root = "public/patients.csv"
records = 26000
held-out = 3000

[federation]
clients = 3
trust = "local"
vantage = "server"

[training]
rounds = {rounds}

[privacy]
epsilon = 2.0
delta = 1e-5

[run]
purpose = "Says which patients come back."
"""

LATE_BY = 40.0
"""Seconds that the late hospital's node starts after the training."""

BUSY = 100.0
"""Seconds that the starved hospital's machine is busy with other work."""


@dataclass
class Session:
    """What an administrator did.

    Attributes:
        folder: of all machines.
        said: what each step printed, by its name.
        seconds: that each step took, by its name.
    """

    folder: Path
    said: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def place(self, machine):
        """Return the folder of a machine."""
        return {
            "operator": self.folder,
            "server": self.folder / "kit" / "server",
        }.get(machine, self.folder / "kit" / "clients" / machine)

    def begin(self, machine, command, answers=""):
        """Start a command on a machine."""
        print(f"{machine}$ {command}", flush=True)
        process = subprocess.Popen(
            ["sh", "-c", command],
            cwd=self.place(machine),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdin is not None
        process.stdin.write(answers)
        process.stdin.close()
        process.stdin = None
        return process

    def end(self, name, process, begun, fails=False):
        """Wait for a command's end, and write down what it said.

        Raises RuntimeError if it fails, unless it may.
        """
        said, _ = process.communicate(timeout=1800)
        self.said[name] = said
        self.seconds[name] = round(self.seconds.get(name, 0) + time.monotonic() - begun, 1)
        print(said, flush=True)
        if process.returncode and not fails:
            raise RuntimeError(f"{name} ended with status {process.returncode}")

    def give(self, name, machine, command, answers="", fails=False):
        """Give a command on a machine and return what it said."""
        begun = time.monotonic()
        self.end(name, self.begin(machine, command, answers), begun, fails)
        return self.said[name]

    def set(self, machine, file, key, value):
        """Set a value in a machine's settings, as its owner edits them."""
        path = self.place(machine) / file
        setting, count = re.subn(
            rf"(?m)^(# )?{key}( ?= ?).*$",
            lambda found: f"{key}{found[2]}{value}",
            path.read_text(),
            count=1,
        )
        if not count:
            raise RuntimeError(f"{file} of {machine} has no {key}")
        print(f"# {machine}, {file}: {key} = {value}\n", flush=True)
        path.write_text(setting)

    def rounds(self, run):
        """Return how many rounds of a run are done."""
        path = self.place("server") / run / "events.jsonl"
        events = (
            [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        )
        return max((event["round"] for event in events if "round" in event), default=-1)


def until(happens, process, seconds):
    """Wait until something happens while a process runs. Raises RuntimeError."""
    deadline = time.monotonic() + seconds
    while not happens():
        if time.monotonic() > deadline or process.poll() is not None:
            process.kill()
            said, _ = process.communicate()
            raise RuntimeError(f"it never happened, while the command said: {said}")
        time.sleep(1)


def prepare(session, adult):
    """Go from three files to a federation whose records all fit one schema."""
    folder = session.folder
    files = " ".join(f"{folder}/files/{name}" for name in ("public", *CLIENTS))
    subprocess.run(
        f"{sys.executable} {HERE}/hospital_records.py {adult} {files}", shell=True, check=True
    )
    session.give(
        "kit",
        "operator",
        f"fedsim deploy init kit --clients 3 --server-address 127.0.0.1:{free_port()} "
        f"--superlink-port {free_port()} --listen 127.0.0.1",
    )
    for machine in CLIENTS:
        table = folder / "files" / machine / "patients.csv"
        table.rename(session.place(machine) / "data" / "patients.csv")
        session.set(machine, "settings.env", "NODE_PORT", str(free_port()))
    (folder / "files" / "public").rename(session.place("server") / "public")
    schema = "fedsim schema data/patients.csv --label readmitted"
    session.give("schema", "client-0", schema, ANSWERS)
    text = (session.place("client-0") / "schema.toml").read_text()
    for machine in ("server", *CLIENTS):
        (session.place(machine) / "schema.toml").write_text(text)
    for machine in CLIENTS:
        session.set(machine, "node.toml", "data-path", '"../data/patients.csv"')
        session.set(machine, "node.toml", "schema-path", '"../schema.toml"')
        session.set(machine, "node.toml", "epsilon-limit", "4.0")


def start(session, machines):
    """Start nodes beside each other."""
    begun = time.monotonic()
    processes = [session.begin(machine, "sh start.sh") for machine in machines]
    for machine, process in zip(machines, processes, strict=True):
        session.end(f"start {machine}", process, begun)


def train(session, rounds):
    """Train one model in peace, and show what each machine says of it."""
    (session.place("server") / "training.toml").write_text(TRAINING.format(rounds=rounds))
    session.give("start server", "server", "sh start.sh")
    session.give("register", "server", "fedsim deploy register .")
    start(session, CLIENTS)
    for machine in CLIENTS:
        session.give(f"check {machine}", machine, "fedsim deploy check .")
    session.give("train", "server", "fedsim deploy train . training.toml --out first")
    session.give("card", "server", "cat first/public/MODEL_CARD.md")
    for machine in CLIENTS:
        session.give(f"ledger {machine}", machine, "fedsim deploy check . | grep budget")


def disturb(session, rounds):
    """Train another model while one hospital is late, one is starved, and one leaves for good."""
    session.give("stop late", LATE, "sh stop.sh")
    session.give("stop starved", STARVED, "sh stop.sh")
    session.set(STARVED, "settings.env", "NICE", "19")
    start(session, (STARVED,))
    settings = f"federation.tolerated-dropouts=1 training.rounds={rounds}"
    begun = time.monotonic()
    training = session.begin(
        "server", f"fedsim deploy train . training.toml {settings} --out second"
    )
    try:
        time.sleep(LATE_BY)
        print(f"# {LATE_BY:g} s later the late hospital starts\n")
        start(session, (LATE,))
        until(lambda: session.rounds("second") >= 1, training, 400)
        print(f"# {STARVED}'s machine has other work for {BUSY:g} s\n")
        with busy_loops(5):
            time.sleep(BUSY - 10)
            session.give("status busy", "server", "fedsim deploy status .", fails=True)
        seen = session.rounds("second")
        until(lambda: session.rounds("second") > max(seen, 2), training, 400)
        done = session.rounds("second")
        print(f"# kill -9 of {LEAVING}'s node after round {done}: it never comes back\n")
        kill(session.place(LEAVING))
        session.end("train disturbed", training, begun)
    finally:
        training.kill()
    session.give("card disturbed", "server", "cat second/public/MODEL_CARD.md")
    session.give("dropped", "server", "grep dropped second/events.jsonl")
    session.give("status left", "server", "fedsim deploy status .", fails=True)
    for machine in CLIENTS:
        session.give(f"ledger {machine} after", machine, "fedsim deploy check . | grep budget")


def kill(place):
    """End a node's processes at once, as a power failure does."""
    node = int((place / "supernode.pid").read_text())
    children = subprocess.run(
        ["pgrep", "-P", str(node)], capture_output=True, text=True, check=False
    )
    for process in (node, *map(int, children.stdout.split())):
        os.kill(process, signal.SIGKILL)


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--adult", default=str(HERE.parents[2] / "shared" / "data" / "adult"))
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--disturbed-rounds", type=int, default=6)
    options = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    os.environ |= {"COLUMNS": "130", "TERM": "dumb"}
    options.folder.mkdir(mode=0o700)
    session = Session(options.folder.absolute())
    try:
        prepare(session, options.adult)
        train(session, options.rounds)
        disturb(session, options.disturbed_rounds)
    finally:
        for machine in (*CLIENTS, "server"):
            if (session.place(machine) / "stop.sh").exists():
                subprocess.run(["sh", session.place(machine) / "stop.sh"], check=False)
        kept = {"said": session.said, "seconds": session.seconds}
        (session.folder / "session.json").write_text(json.dumps(kept, indent=1))
    for name, seconds in session.seconds.items():
        print(f"| {name} | {seconds / 60:.1f} |")


if __name__ == "__main__":
    main()
