"""A client that trains with Opacus in a running Flower app, recorded: one transcript of all rounds.

The app has the shape of Flower's own example, an engine that is built anew in every round, whose
epsilon is that of the round; and a mended twin, which keeps the accountant's history in its node.
"""

import socket
import subprocess
import time
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from fedsim.audits.judgement.claim import Claim
from fedsim.audits.judgement.options import AuditOptions
from fedsim.audits.recorded.audit import audit
from fedsim.audits.steps.theory import epsilon_of
from fedsim.federation.runtimes.flower_command import environment, executable, listening
from fedsim.federation.transcripts.reader import read_transcript

pytestmark = [pytest.mark.flower, pytest.mark.slow]

APP = Path(__file__).parents[3] / "apps" / "opacus_app"
CLIENTS, ROUNDS, STEPS, DELTA = 2, 3, 15, 1e-5
ONE_ROUND, WHOLE = (
    epsilon_of([1.5] * steps, [1 / STEPS] * steps, DELTA) for steps in (STEPS, ROUNDS * STEPS)
)


def test_an_engine_in_every_round_is_convicted_by_the_total_of_all_rounds(tmp_path):
    # Ray's actors, which live on between rounds: any of them may train as any client.
    with _flower(tmp_path) as own:
        _run(tmp_path, own, f"--federation-config=num-supernodes={CLIENTS}")
    for report in _audited(tmp_path, ONE_ROUND):
        assert report["verdict"] == "convicted", report["findings"]
        assert report["details"]["rounds"] == ROUNDS * STEPS
        assert report["rows"]["loop"]["attack"]["proven"] > 0.94 * WHOLE


def test_the_twin_that_keeps_its_accountant_is_supported(tmp_path):
    # SuperNodes, which start a process for every message.
    with _flower(tmp_path) as own, _deployed(tmp_path, own) as connection:
        _run(tmp_path, own, connection, keep="true")
    for report in _audited(tmp_path, WHOLE):
        assert report["verdict"] == "supported", report["findings"]


def _run(folder, own, *where, keep="false"):
    """Run the app with `flwr run`, as a Flower user would."""
    config = {
        "num-server-rounds": ROUNDS,
        "clients": CLIENTS,
        "client-transcript": f"'{folder}/client-{{node}}.fedt'",
        "keep-accountant": keep,
    }
    settings = " ".join(f"{name}={value}" for name, value in config.items())
    done = subprocess.run(
        [executable("flwr"), "run", str(APP), *where, "--stream", "--run-config", settings],
        cwd=folder / "empty",
        env=own,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (folder / "client-0.fedt").exists(), done.stdout[-3000:] + done.stderr[-3000:]


def _audited(folder, claimed):
    """Audit what each client recorded, at what its accountant says last."""
    for client in range(CLIENTS):
        transcript = read_transcript(folder / f"client-{client}.fedt")
        steps = Counter(str(step.mechanism["engine"]) for step in transcript.rounds)
        assert [*steps.values()] == [STEPS] * ROUNDS
        # Opacus's own bound is looser than the loss distribution, by a hundredth.
        yield audit(transcript, AuditOptions(claim=Claim(1.01 * claimed, DELTA))).report


@contextmanager
def _flower(folder):
    """Yield the environment of a Flower of this test's own, and end its processes."""
    home = folder / "flwr"
    home.mkdir()
    # Ray's workers import from the working directory before they look into the app.
    (folder / "empty").mkdir()
    own = environment(home) | {
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(_free()),
        "FLWR_LOCAL_CONTROL_API_PORT": str(_free()),
    }
    try:
        yield own
    finally:
        left = [process for process in psutil.process_iter() if _home(process) == str(home)]
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=10)  # one whose parent does not ask for it stays a zombie


@contextmanager
def _deployed(folder, own):
    """Start a SuperLink and a SuperNode for each client; yield the name of the connection."""
    link = f"127.0.0.1:{_free()}"
    (folder / "flwr" / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "{link}"\ninsecure = true\n'
    )
    host, port = link.split(":")
    commands = [["flower-superlink", "--insecure", "--host", host, "--port", port]]
    node = ["flower-supernode", "--insecure", "--superlink", link]
    for client in range(CLIENTS):
        place = f"partition-id={client} num-partitions={CLIENTS}"
        commands.append([*node, "--port", str(_free()), "--node-config", place])
    with ExitStack() as stack:
        log = stack.enter_context((folder / "flower.log").open("w"))
        for command in commands:
            process = subprocess.Popen(
                [executable(command[0]), *command[1:]],
                env=own,
                cwd=folder / "empty",
                stdout=log,
                stderr=log,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            while not listening(host, int(port), 1.0):
                assert process.poll() is None, (folder / "flower.log").read_text()
                time.sleep(0.2)
        yield "here"


def _free():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def _home(process):
    try:
        return process.environ().get("FLWR_HOME")
    except psutil.Error:
        return None  # it has ended, or is somebody else's
