"""A SuperNode that hands its work to its own processes alone, and to no other account.

By itself Flower's SuperNode gives each task, on loopback, to whoever asks first: the run's
configuration, the model, and the right to answer for the node; and it starts the process of a task
with its token on the command line, which every account can read. Here a task is given for a secret,
over TLS with a key, which are both of this start, and its token is in a file without a name.
"""

import os
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from fedsim.deployment import certificates, kit, logs
from fedsim.runtimes.flower_private import Runtime

CERTIFICATE_DAYS = 3650
"""Longer than a node runs."""

POLL_INTERVAL = 0.1
"""Seconds between two questions for a task."""

LOGS_INTERVAL = 60.0
"""Seconds between two looks at the length of the log."""


def start(place: Path) -> None:
    """Become the SuperNode of a machine's folder, beside a process that starts its apps."""
    settings, port = kit.settings(place), kit.port(place, "NODE_PORT")
    pair, trusted = certificates.loopback(CERTIFICATE_DAYS)
    runtime = place / "state" / "runtime"
    contents = {
        "secret": secrets.token_bytes(32),
        "key": pair.private,
        "crt": pair.public,
        "ca": trusted,
    }
    for name, content in contents.items():
        kit.write_file(runtime / name, content)
    beside = [sys.executable, "-m", "fedsim", "deploy", "apps", f"{place}/", str(os.getpid())]
    subprocess.Popen(beside)
    command = ["flower-supernode", "--superlink", settings.get("SUPERLINK", "")]
    command += ["--root-certificates", f"{place / 'ca.crt'}"]
    command += ["--auth-supernode-private-key", f"{place / 'node.key'}"]
    command += ["--node-config", f"{place / 'node.toml'}", "--port", f"{port}"]
    command += ["--isolation", "process", "--superexec-auth-secret-file", f"{runtime / 'secret'}"]
    command += ["--ssl-keyfile", f"{runtime / 'key'}", "--ssl-certfile", f"{runtime / 'crt'}"]
    command += ["--ssl-ca-certfile", f"{runtime / 'ca'}"]
    os.execvp(command[0], command)


def serve_apps(place: Path, supernode: int) -> None:
    """Start a process for each task of a SuperNode, the parent of this process, until it ends."""
    folder, address = place / "state" / "runtime", f"127.0.0.1:{kit.port(place, 'NODE_PORT')}"
    running: list[subprocess.Popen[bytes]] = []
    looked = 0.0
    trusted, secret = (folder / "ca").read_bytes(), (folder / "secret").read_bytes()
    with Runtime(address, trusted, secret) as runtime:
        while os.getppid() == supernode:
            try:
                if token := runtime.task():
                    running.append(_start_app(address, folder / "ca", token))
            except httpx.HTTPError:
                time.sleep(1)  # the SuperNode is about to listen, or to end
            running = [process for process in running if process.poll() is None]
            if time.monotonic() - looked > LOGS_INTERVAL:
                looked = time.monotonic()
                logs.rotate(place / "logs")
            time.sleep(POLL_INTERVAL)


def _start_app(address: str, trusted: Path, token: str) -> subprocess.Popen[bytes]:
    """Start the process of a task, which ends with this one."""
    with tempfile.TemporaryFile() as file:
        file.write(token.encode())
        file.flush()
        command = ["flwr-clientapp", "--runtime-api-address", address]
        command += ["--root-certificates", f"{trusted}", "--parent-pid", f"{os.getpid()}"]
        command += ["--token-file", f"/dev/fd/{file.fileno()}"]
        return subprocess.Popen(command, pass_fds=[file.fileno()])
