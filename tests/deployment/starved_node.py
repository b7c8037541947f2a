"""What a node does on a machine that is busy with other work: processes started, rounds finished.

    python tests/deployment/starved_node.py FOLDER [--rounds 4] [--seconds 240] [--busy 240]

A kit on loopback, TLS and authenticated nodes, two clients. Client 1 runs with NICE=19 beside a
busy loop for each core. The server only asks the nodes who they are. Prints JSON: the rounds that
both clients answered and their seconds, how many processes client 1 started for them, and how many
of these were alive at once. Ends after so many seconds, finished or not.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import tomli_w

import fedsim
from fedsim.deployment import kit
from fedsim.deployment import run as deployment
from fedsim.federation.runtimes.flower_command import FlowerError, submit

BIN = Path(sys.executable).parent
CLIENTS, STARVED = 2, "client-1"
UP_TO = 180.0
"""Seconds until the nodes must be there."""

APP = """
import json, time
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

client = ClientApp()  # no node runs it
server = ServerApp()

@server.main()
def main(grid, context):
    ahead = range(context.run_config["trials.count"] // 2)
    for _ in range(context.run_config["training.rounds"]):
        begun = time.time()
        nodes = [node for node in grid.get_node_ids() for _ in ahead]
        sent = [Message(RecordDict(), node, "query.identify") for node in nodes]
        replies = list(grid.send_and_receive(sent))
        errors = [reply.error.reason for reply in replies if reply.has_error()]
        with open(context.run_config["run.out"], "a") as file:
            said = {"errors": errors, "seconds": round(time.time() - begun, 1)}
            file.write(json.dumps(said) + chr(10))
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def script(place, name):
    subprocess.run(["sh", str(place / name)], check=False, stdout=sys.stderr)


@contextmanager
def federation(directory):
    """Run a kit's server and clients, of which one is nice."""
    kit.write_kit(
        directory,
        "127.0.0.1",
        free_port(),
        CLIENTS,
        superlink_port=free_port(),
        listen="127.0.0.1",
    )
    for index, machine in enumerate(kit.read_kit(directory).nodes):
        path = kit.folder(directory, machine) / "settings.env"
        own = path.read_text().replace(f"={kit.NODE_PORT + index}\n", f"={free_port()}\n")
        path.write_text(own.replace("NICE=0", "NICE=19") if machine == STARVED else own)
    try:
        script(directory / "server", "start.sh")
        wait_for(lambda: deployment.register(directory / "server"))
        for machine in kit.read_kit(directory).nodes:
            script(kit.folder(directory, machine), "start.sh")
        wait_for(lambda: [*deployment.statuses(directory / "server").values()] == ["online"] * 2)
        yield
    finally:
        for machine in [*kit.read_kit(directory).nodes, "server"]:
            script(kit.folder(directory, machine), "stop.sh")


def wait_for(happens):
    """Wait until a function returns something true; the SuperLink may not answer yet."""
    deadline = time.monotonic() + UP_TO
    while time.monotonic() < deadline:
        with suppress(FlowerError):
            if happens():
                return
        time.sleep(1)
    raise TimeoutError("the federation is not there")


@contextmanager
def busy_loops(nice):
    """Keep every core busy."""
    program = f"import os; os.nice({nice})\nwhile True: pass"
    command = [sys.executable, "-c", program]
    loops = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
    try:
        yield loops
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def processes(node):
    """Return the processes that answer messages, which are copies of the node's process."""
    with suppress(psutil.Error):
        own = node.cmdline()
        return {child.pid for child in node.children() if child.cmdline() == own}
    return set()


def submitted(folder, rounds, ahead):
    """Submit the app; return the file in which it writes a line for each round."""
    app, server, out = folder / "app", folder / "kit" / "server", folder / "rounds.jsonl"
    app.mkdir()
    (app / "echo.py").write_text(APP)
    components = {"serverapp": "echo:server", "clientapp": "echo:client"}
    # The nodes refuse settings that fedsim does not have.
    config = {
        "training": {"rounds": rounds},
        "trials": {"count": 2 * ahead},
        "run": {"out": str(out)},
    }
    flower = {"publisher": "fedsim", "components": components, "config": config}
    # A node answers for an app of this name and version alone.
    named = {"name": fedsim.DISTRIBUTION, "version": fedsim.__version__}
    named |= {"description": "", "license": "Apache-2.0"}
    project = {"project": {**named, "dependencies": []}, "tool": {"flwr": {"app": flower}}}
    (app / "pyproject.toml").write_text(tomli_w.dumps(project))
    (folder / "run.toml").write_text(tomli_w.dumps(config))
    submit(server / "flower", kit.CONNECTION, app, folder / "run.toml")
    return out


def measure(folder, rounds, ahead, seconds, busy, nice, kill, stop):
    """Return what was seen of a federation with a starved node.

    Args:
        ahead: how many messages a round has for each node, sent at once.
        seconds: after which it ends in any case.
        busy: seconds from the first message on in which the cores have other work.
        nice: of the other work.
        kill: whether the starved node's first process is killed when it is seen.
        stop: whether it is stopped then, until the other work ends.
    """
    place = kit.folder(folder / "kit", STARVED)
    node = psutil.Process(int((place / "supernode.pid").read_text()))
    started = set()
    most, finished = 0, []
    with busy_loops(nice) as loops:
        out = submitted(folder, rounds, ahead)
        begun = time.monotonic()
        while (now := time.monotonic() - begun) < seconds and len(finished) < rounds:
            if now > busy:
                for loop in loops:
                    loop.kill()
                if started:
                    with suppress(ProcessLookupError):
                        os.kill(min(started), signal.SIGCONT)
            living = processes(node)
            if (kill or stop) and living and not started:
                os.kill(min(living), signal.SIGKILL if kill else signal.SIGSTOP)
            started |= living
            most = max(most, len(living))
            if out.exists():
                finished = [json.loads(line) for line in out.read_text().splitlines()]
            time.sleep(0.01)  # a process lives for a fraction of a second
    log = (place / "logs" / "supernode.log").read_text()
    return {
        "rounds": sum(not one["errors"] for one in finished),
        "errors": [error for one in finished for error in one["errors"]],
        "seconds": [one["seconds"] for one in finished],
        "processes": max(log.count("answers a message"), len(started)),
        "at_once": most,
        "ended_after": round(now, 1),
    }


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--ahead", type=int, default=1, help="Messages of a round for each node.")
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--busy", type=float, default=240)
    parser.add_argument("--nice", type=int, default=0, help="Of the busy loops.")
    parser.add_argument("--kill", action="store_true", help="The starved node's first process.")
    parser.add_argument("--stop", action="store_true", help="It, while the loops run.")
    os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    options = vars(parser.parse_args())
    folder = options.pop("folder").absolute()
    folder.mkdir(mode=0o700)
    with federation(folder / "kit"):
        seen = measure(folder, **options)
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
