"""`fedsim deploy`: a federation across machines."""

import math
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adversaries.errors import InputError, InterruptedRunError
from fedsim import configuration
from fedsim.commands.answer import Answer
from fedsim.commands.answer import lines as lines_of
from fedsim.commands.run import Run, Training, load, trained
from fedsim.commands.settings import Change, Given, Progress, changed, configured, console
from fedsim.commands.terminal import Terminal
from fedsim.common import reading
from fedsim.common.strict_json import report_json
from fedsim.configuration.objects import Scheme
from fedsim.experiment import check_ledger, prepare
from fedsim.federation.runs.run_directory import LAST_FILE, SUBMITTED, RunDirectory
from fedsim.privacy.trust.model import Vantage
from fedsim.reports.document.blocks import Cell, Group, Line, Mark, Table
from fedsim.reports.tracking.progress import progress as shown_progress
from fedsim.reports.tracking.progress import warn

if TYPE_CHECKING:
    from fedsim.federation.runtimes.flower_command import Submission

ENDING = 60.0
"""Seconds that a server's process may take to end after its SuperLink was killed. It asks the new
SuperLink after up to 20 s, and ends up to 6 s after its refusal."""

LONGEST = 3650
"""Most days of a certificate."""


def _did(*lines: str, report: Mapping[str, Any] | None = None) -> Answer:
    return Answer(report=report or {}, _terminal=lines_of(*lines))


def init(
    directory: Path,
    /,
    *,
    server_address: str,
    clients: int = 3,
    port: int = 8443,
    superlink_port: int = 8000,
    listen: str = "0.0.0.0",
    auditor: bool = False,
    days: int = 365,
    certificate: Path | None = None,
    key: Path | None = None,
    ca: Path | None = None,
) -> Answer:
    """Write keys, certificates, scripts and instructions for the server and every client.

    Example: fedsim deploy init hospitals --clients 3 --server-address federation.example.org

    Args:
        directory: path of the new directory.
        server_address: HOST[:PORT], the host name or address that clients connect to.
        clients: number of clients (m), at least 2.
        port: port that clients connect to.
        superlink_port: port of the SuperLink, on loopback.
        listen: address that the server listens on.
        auditor: add a folder for an auditor.
        days: lifetime of the server's certificate, in days, at most 3650.
        certificate: certificate of the server from your own authority (PEM, with its chain).
        key: key of --certificate (PEM).
        ca: certificate of the authority that the nodes trust. Needed with --certificate.

    Raises:
        InputError: the directory exists, or an option is out of range.
    """
    from fedsim.deployment import certificates, kit  # noqa: PLC0415
    from fedsim.deployment.certificates import Own  # noqa: PLC0415

    _within("--clients", clients, 2, None)
    _within("--days", days, 1, LONGEST)
    _within("--port", port, 1, 65535)
    _within("--superlink-port", superlink_port, 1, 65535)
    own = None
    if certificate is not None and key is not None and ca is not None:
        own = Own(certificate, key, ca)
    elif certificate is not None or key is not None or ca is not None:
        raise InputError("a certificate of your own needs all of --certificate, --key and --ca")
    host, port = _address(server_address, port)
    if port == superlink_port:
        raise InputError(
            f"the clients and the SuperLink cannot share port {port}; choose another with "
            "--port or --superlink-port"
        )
    written = kit.write_kit(
        directory,
        host,
        port,
        clients,
        superlink_port=superlink_port,
        listen=listen,
        auditor=auditor,
        days=days,
        own=own,
    )
    end = certificates.end(directory / "server" / "server.crt")
    return _did(
        f"{directory}: {', '.join(written.machines)}; the certificate ends on {end:%F}",
        f"Instructions for each machine: {directory / 'README.md'}",
    )


def _within(option: str, value: int, least: int, most: int | None) -> None:
    if value < least or (most is not None and value > most):
        end = "" if most is None else f" and at most {most}"
        raise InputError(f"{option} is {value}; give at least {least}{end}")


def _address(text: str, port: int) -> tuple[str, int]:
    """Split HOST[:PORT]. Raises InputError."""
    from fedsim.deployment import kit  # noqa: PLC0415

    host, colon, digits = text.rpartition(":")
    if not colon:
        host, digits = text, str(port)
    number = int(digits) if digits.isascii() and digits.isdecimal() else 0
    if not 0 < number < 65536 or not kit.is_host(host):
        raise InputError(
            f"--server-address {text!r} is not HOST or HOST:PORT, for example "
            "federation.example.org:8443 (an IPv6 address needs a name)"
        )
    return host, number


def check(directory: Path, /, *, machine: str | None = None) -> Answer:
    """Check a deployment and say how to fix its problems. Exit status 1 if there are any.

    Example: fedsim deploy check hospitals --machine server

    Args:
        directory: directory that fedsim deploy init wrote, or the folder of this machine.
        machine: machine to check: server, client-K or auditor.
    """
    from fedsim.deployment.checks import connection, machines  # noqa: PLC0415

    found = machines.check_machines(directory, machine)
    wrong = sum(one.state == connection.WRONG for one in found)
    kinds = {connection.OK: "good", connection.NOTE: "caution", connection.WRONG: "alarm"}

    def table() -> Table:
        lines = [
            Line(
                Cell(one.machine),
                [
                    Cell(one.what, style=""),
                    Cell("", mark=Mark(one.state, kinds[one.state]), style=""),
                    Cell(one.message, style=""),
                ],
            )
            for one in found
        ]
        return Table(("machine", "what", "state", "message"), [Group("", lines)])

    findings = [vars(one) for one in found]
    return Answer(
        report={"wrong": wrong, "findings": findings},
        table=findings,
        status=1 if wrong else 0,
        _blocks=lambda: [table()],
    )


def register(directory: Path, /) -> Answer:
    """Register every key in server/keys with the running SuperLink.

    Example: fedsim deploy register hospitals

    Args:
        directory: directory that fedsim deploy init wrote, or the folder of the server.
    """
    from fedsim.deployment import kit  # noqa: PLC0415
    from fedsim.deployment import run as deployment  # noqa: PLC0415

    nodes = deployment.register(kit.folder(directory, "server"))
    return _did(*(f"{machine}: node {node}" for machine, node in nodes.items()), report=dict(nodes))


def run(
    directory: Path,
    config: Given,
    /,
    *changes: Change,
    out: Path | None = None,
    experiment: bool = False,
    progress: Progress = None,
) -> Run:
    """Train on the deployed federation, with an adversary. Run it on the server's machine.

    It allows one training only, with noise from the operating system, because the releases of
    several runs about the same people add up. Give the same configuration and run directory again
    to continue a run.

    Example: fedsim deploy run hospitals hospitals/server/deployment.toml

    Args:
        directory: directory that fedsim deploy init wrote, or the folder of the server.
        config: experiment file (TOML), or bundled name.
        changes: changes of configuration keys, as KEY=VALUE.
        out: run directory. Default: fedsim-runs/NAME-TIME.
        experiment: allow settings that protect no client: noise from a seed, or repeated trainings.
        progress: whether to show a bar; None: only in a terminal or a notebook.
    """
    values = changed(changes, {"run.out": out})
    return load(_carry_out(directory, config, values, experiment, console(progress)).path)


def train(
    directory: Path,
    config: Given,
    /,
    *changes: Change,
    out: Path | None = None,
    rehearsal: Path | None = None,
    progress: Progress = None,
) -> Training:
    """Train a model on the deployed federation, once, and keep it. Run it on the server's machine.

    Does the same as `fedsim train`, with each client on its own machine. Give the same command with
    the same --out again to follow a training that still runs, or to continue an interrupted one
    after its last round. Ctrl-C stops the training, and so does `fedsim deploy stop`.

    Example: fedsim deploy train hospitals training.toml --out model

    Args:
        directory: directory that fedsim deploy init wrote, or the folder of the server.
        config: configuration of a training (TOML), or bundled name.
        changes: changes of configuration keys, as KEY=VALUE.
        out: run directory. Default: fedsim-runs/NAME-TIME.
        rehearsal: run of fedsim run with this configuration. Its results go on the model's card.
        progress: whether to show a bar; None: only in a terminal or a notebook.
    """
    values = changed(changes, {"run.out": out})
    shown = console(progress)
    return trained(_carry_out(directory, config, values, False, shown, "training", rehearsal))


def stop(directory: Path, /) -> Answer:
    """Stop the runs of the deployed federation. Run it on the server's machine.

    What they released stays released. The command that began a run continues it.

    Example: fedsim deploy stop hospitals

    Args:
        directory: directory that fedsim deploy init wrote, or the folder of the server.
    """
    from fedsim.deployment import kit, run  # noqa: PLC0415

    stopped = run.stop(kit.folder(directory, "server"))
    return _did(f"stopped: run {', '.join(stopped)}" if stopped else "no run is running")


def status(directory: Path, /) -> Answer:
    """Show connected clients, the current run and the certificate's lifetime.

    Run it on the server's machine. Exit status 1 if something needs attention.

    Example: fedsim deploy status hospitals

    Args:
        directory: directory that fedsim deploy init wrote, or the folder of the server.
    """
    from fedsim.deployment import kit  # noqa: PLC0415
    from fedsim.deployment.checks.status import status  # noqa: PLC0415

    now = status(kit.folder(directory, "server"))
    lines = [
        f"{node.machine}: {node.state}{f' since {node.since}' * bool(node.since)}"
        for node in now.nodes
    ]
    if (last := now.run) is not None:
        lines.append(f"{last.directory}: {last.state}, round {last.round} of {last.rounds}")
        if last.reason:
            lines.append(f"{last.directory}: {' '.join(last.reason.split())}")
        lines += [f"{busy.machine}: no answer for {busy.seconds:.0f} s" for busy in last.busy]
    lines.append(f"certificate: {now.certificate_days:.0f} days left")
    lines += [f"wrong: {problem}" for problem in now.problems]
    return Answer(
        report=asdict(now),
        table=[asdict(node) for node in now.nodes],
        status=1 if now.problems else 0,
        details=now,
        _terminal=lines_of(*lines),
    )


def report(
    directory: Path,
    /,
    *,
    others: str = "",
    model: Path | None = None,
    out: Path | None = None,
) -> Answer:
    """Report what this client released, when, at what epsilon, and how exposed its records are.

    Run it on the client's machine, for its owner. No result leaves the machine.

    Example: fedsim deploy report /etc/fedsim/client-0 --others public.csv

    Args:
        directory: folder of this client.
        others: records that the training did not use, for an attack on the model.
        model: released model of the last training. Default: the last model sent to this client.
        out: directory of the report. Default: report in the client's folder.
    """
    from fedsim.reports.client import client_page  # noqa: PLC0415  (torch and matplotlib are slow)
    from fedsim.reports.client.report import ClientNode, assemble  # noqa: PLC0415

    path = directory / "node.toml"
    try:
        values = reading.toml(path)
    except FileNotFoundError:
        raise InputError(f"'{directory}' has no node.toml; name the folder of a client") from None
    except reading.DAMAGE as error:
        raise InputError(
            f"cannot read '{path}': {reading.reason(error)}; correct the file"
        ) from None
    node = ClientNode.of(values, directory.resolve() / "work")
    assembled = assemble(node, others, model)
    place = directory / "report" if out is None else out
    return Answer(
        report=report_json(assembled.as_json()),
        path=place,
        page=client_page.write_client_page(assembled, place),
        details=assembled,
        _terminal=lambda: client_page.summary(assembled),
    )


def renew(
    directory: Path,
    /,
    *,
    days: int = 365,
    certificate: Path | None = None,
    key: Path | None = None,
) -> Answer:
    """Write a new certificate for the server. All nodes accept it without changes.

    Example: fedsim deploy renew hospitals

    Args:
        directory: directory that fedsim deploy init wrote, with its ca/ folder.
        days: lifetime of the server's certificate, in days, at most 3650.
        certificate: certificate of the server from your own authority (PEM, with its chain).
        key: key of --certificate (PEM).
    """
    from fedsim.deployment.renewal import renew  # noqa: PLC0415

    _within("--days", days, 1, LONGEST)
    if (certificate is None) != (key is None):
        raise InputError("a certificate of your own needs both --certificate and --key")
    own = None if certificate is None or key is None else (certificate, key)
    end = renew(directory, days, own)
    return _did(
        f"{directory / 'server' / 'server.crt'}: valid until {end:%F}",
        "Copy it and server.key to the server's folder. The proxy reads them within a minute.",
    )


def certificates(directory: Path, /, *, days: int = 365) -> Answer:
    """Write the certificates that identify the machines of a Dask cluster to each other.

    Writes one certificate for all machines, and that of the authority that signed it. A holder of
    key.pem can run code on every machine of the cluster: copy the folder over a secure channel. The
    key of the authority is deleted, so that it signs no other certificate.

    Example: fedsim deploy certificates cluster-tls

    Args:
        directory: path of the new folder.
        days: lifetime of the certificates, in days.
    """
    from fedsim.common import private_files  # noqa: PLC0415
    from fedsim.deployment.certificates import authority, server_certificate  # noqa: PLC0415
    from fedsim.federation.runtimes.dask_pool import (  # noqa: PLC0415  (torch)
        AUTHORITY,
        CERTIFICATE,
        KEY,
    )

    _within("--days", days, 1, None)
    if directory.exists():
        raise InputError(f"'{directory}' exists; name a new folder")
    issuer = authority(days)
    pair = server_certificate(issuer, ["fedsim-cluster"], days, both_sides=True)
    private_files.make_directory(directory)
    for name, content in ((AUTHORITY, issuer.public), (CERTIFICATE, pair.public)):
        private_files.write_private(directory / name, content)
    private_files.write_private(directory / KEY, pair.private)
    flags = f"--tls-ca-file {AUTHORITY} --tls-cert {CERTIFICATE} --tls-key {KEY}"
    worker = "dask worker tls://HOST:8786 --nthreads 1"
    return _did(
        f"{directory}: {AUTHORITY}, {CERTIFICATE}, {KEY}; valid for {days} days",
        f"Copy it to each machine and run there: dask scheduler --protocol tls {flags}",
        f"or: {worker} {flags}",
    )


def proxy(
    directory: Path,
    /,
    *,
    listen: str = "0.0.0.0",
    port: int = 8443,
    superlink_port: int = 8000,
) -> None:
    """Pass only the Fleet API from the clients to the SuperLink. start.sh calls it."""
    from fedsim.deployment import kit  # noqa: PLC0415
    from fedsim.deployment.proxy import serve  # noqa: PLC0415

    serve(listen, port, superlink_port, kit.folder(directory, "server"))


def superlink(directory: Path, /) -> None:
    """Run the SuperLink of this machine, and watch its processes. start.sh calls it."""
    from fedsim.deployment.run import serve_superlink  # noqa: PLC0415

    serve_superlink(directory)


def supernode(directory: Path, /) -> None:
    """Run the SuperNode of this machine, and answer its messages. start.sh calls it."""
    from fedsim.deployment import supernode  # noqa: PLC0415

    supernode.serve(directory)


def _carry_out(
    directory: Path,
    config_file: Given,
    overrides: Mapping[str, Any],
    experiment: bool,
    console: Terminal,
    job: str | None = None,
    rehearsal: Path | None = None,
) -> RunDirectory:
    """Submit a run to the server's SuperLink, wait for its end, and return its directory."""
    from fedsim.deployment import kit  # noqa: PLC0415
    from fedsim.deployment import run as deployment  # noqa: PLC0415
    from fedsim.federation.runtimes.flower_command import ProcessEndedError  # noqa: PLC0415
    from fedsim.federation.server.nodes import ENDED, REGISTERED  # noqa: PLC0415
    from fedsim.reports import model_card  # noqa: PLC0415

    config = configured(config_file, overrides, job)
    if job is None:
        configuration.check_is_no_training(config.run.job, str(config_file))
    server = kit.folder(directory, "server")
    _refuse(config.scheme, config.trials.count, kit.read_kit(server).clients, experiment)
    values = configuration.to_run_config(config)
    evidence = None if rehearsal is None else model_card.findings(values, rehearsal)
    tolerated = config.federation.tolerated_dropouts if job == "training" else 0
    nodes = _clients_nodes(server, config.federation.clients, tolerated)
    with ExitStack() as held:
        with console.status("preparing") as status:
            plan = prepare(config, deployed=True)
            config, run_directory = plan.config, RunDirectory(plan.path.absolute())
            if (running := _running(server, run_directory)) is not None:
                say = f"following run {running.run_id}, which has not ended; Ctrl-C stops it"
                console.print(say, highlight=False)
                with suppress(ProcessEndedError):  # it was ending, and another one continues
                    return _follow(server, running, run_directory, console)
            run_directory = plan.begin()
            if job == "training" and (larger := _larger(config.scheme, plan.noise_multiplier)):
                console.print(larger, highlight=False)
            # Once the run has begun, the server's process holds the lock.
            status.update("waiting for the last server process of this run to end")
            held.enter_context(run_directory.lock(patience=ENDING))
        if run_directory.has(LAST_FILE):
            raise InputError(
                f"'{run_directory.path}' holds a finished run, with its {LAST_FILE}; read it, or "
                "name a new directory with --out"
            )
        check_ledger(plan, run_directory)
        if evidence is not None:
            model_card.attach(run_directory, evidence)
        run_directory.write_json(REGISTERED, nodes)
        earlier = deployment.runs(server)
        ended = earlier.keys() - set(deployment.unfinished(earlier))
        run_directory.write_json(ENDED, {"runs": ",".join(sorted(ended))})
    run_config = configuration.dump(config.reading_data_from(""))
    submitted = deployment.start(server, run_config, Path(config.run.out))
    return _follow(server, submitted, run_directory, console)


def _running(server: Path, run_directory: RunDirectory) -> "Submission | None":
    """Return the unfinished submission that writes a run directory, or will; None without one."""
    from fedsim.deployment import run  # noqa: PLC0415

    directory, id = run.last(server) or (None, "")
    ids = [id] if directory == run_directory.path else []  # its process may not have begun
    ids += [run_directory.submitted()] if run_directory.has(SUBMITTED) else []
    # Without a process, the SuperLink may not know yet that it was killed.
    living = [id for id in ids if not run_directory.ended(id)]
    unfinished = run.unfinished(run.runs(server)) if living else ()
    return next((run.submission(server, id) for id in living if id in unfinished), None)


def _follow(
    server: Path, submitted: "Submission", run_directory: RunDirectory, console: Terminal
) -> RunDirectory:
    """Wait for the end of a run; Ctrl-C stops it. Return its directory."""
    from fedsim.deployment import kit  # noqa: PLC0415
    from fedsim.federation.runtimes import ports  # noqa: PLC0415

    port, id = kit.port(server, "SUPERLINK_PORT"), submitted.run_id

    def lost() -> bool:
        return run_directory.ended(id) or not ports.listening("127.0.0.1", port)

    ending = partial(run_directory.has, LAST_FILE)
    try:
        with shown_progress(run_directory, console):
            submitted.wait(ending, partial(_say_why, server, console), lost)
    except KeyboardInterrupt:
        submitted.stop()
        raise InterruptedRunError(
            "interrupted; the finished part is kept. To continue, run the same command again with "
            f"--out {run_directory.path}"
        ) from None
    return run_directory


def _say_why(server: Path, console: Terminal, state: str, seconds: float) -> None:
    """Print that a submitted run has not begun for some seconds, and which part is missing."""
    from fedsim.deployment import kit  # noqa: PLC0415
    from fedsim.deployment.checks.connection import WRONG  # noqa: PLC0415
    from fedsim.deployment.checks.server import services  # noqa: PLC0415

    found = services(server, kit.read_kit(server))
    why = "; ".join(f"{what}: {message}" for what, state, message in found if state == WRONG)
    why = why or "all parts of the server live, so its machine is busy: see logs/superlink.log"
    warn(console, f"the run is {state} for {seconds:.0f} s: {why}")


def _clients_nodes(server: Path, clients: int, tolerated: int) -> dict[str, int]:
    """Return the node of each client's key, by partition.

    tolerated: number of clients that may have left for good, with no registered key.
    Raises InputError if more are missing.
    """
    from fedsim.deployment import run  # noqa: PLC0415

    registered, files = run.registered(server), run.key_files(server)
    nodes = {}
    for client in range(clients):
        machine = f"client-{client}"
        node = registered.get(machine)
        if node is None or not node.node.isdecimal():
            tolerated -= 1
            if tolerated >= 0:
                continue
            raise InputError(
                f"the key of {machine} is not registered; start the server and run "
                "fedsim deploy register"
            )
        if machine in files and node.key != run.fingerprint_of(files[machine]):
            raise InputError(
                f"keys/{machine}.pub is not the registered key; run fedsim deploy register"
            )
        nodes[str(client)] = int(node.node)
    return nodes


def _refuse(scheme: Scheme, trials: int, clients: int, experiment: bool) -> None:
    """Raise InputError for a run that this federation cannot, or should not, carry out."""
    federation, privacy = scheme.federation, scheme.privacy
    if federation.clients != clients:
        raise InputError(
            f"federation.clients is {federation.clients}, but {clients} clients are "
            f"deployed; add federation.clients={clients}. If a client left for good, also "
            "add federation.tolerated-dropouts=1"
        )
    if privacy.noise_source == "seed" and not experiment:
        raise InputError(
            'privacy.noise-source is "seed", and every node knows the seed, so the noise protects '
            "no client; add privacy.noise-source=system, or --experiment to run it anyway"
        )
    if trials > 1 and not experiment:
        raise InputError(
            f"trials.count is {trials}, and so many trainings on the same people "
            f"{_together(scheme)}; add trials.count=1, as in the "
            "server's deployment.toml, or --experiment to run them anyway"
        )
    if federation.summed_in_the_clear and privacy.noise_source != "seed":
        raise InputError(
            'federation.trust is "distributed", but federation.secure-aggregation is "simulated", '
            "so the server would see every message with only a share of the noise; add "
            "federation.secure-aggregation=secagg+ (an --experiment with noise from the seed may "
            "simulate it)"
        )


def _larger(scheme: Scheme, nominal: float) -> str:
    """Return a sentence about the largest epsilon; "" if it is towards federation.vantage."""
    from fedsim.federation.server.plan import planned_epsilons  # noqa: PLC0415

    configured, trust = scheme.federation.vantage, scheme.federation.trust.model
    if not nominal:  # noise without an epsilon
        return ""
    epsilons = planned_epsilons(scheme, nominal)
    if trust.server_draws:  # the server is trusted
        del epsilons[Vantage.SERVER]
    most = max(epsilons, key=lambda vantage: epsilons[vantage])
    least = epsilons.get(configured, math.inf)
    if epsilons[most] <= least * (1 + 1e-9):
        return ""
    return (
        f"The rounds cost epsilon {epsilons[most]:.4g} towards the {most.value}, more than the "
        f"{least:.4g} towards the {configured.value} that the file plans; a client's epsilon-limit "
        "must allow the larger one."
    )


def _together(scheme: Scheme) -> str:
    """Return what all trainings of a campaign would release, as the end of a sentence."""
    from fedsim.federation.runs import spending  # noqa: PLC0415
    from fedsim.game.mechanisms import privacy  # noqa: PLC0415
    from fedsim.privacy.accounting import accountant  # noqa: PLC0415

    everything = spending.describe_everything(scheme, privacy.noise_multiplier(scheme), [])
    if everything is None:
        return "would release sums that no noise protects"
    mechanism = everything.towards(scheme.federation.vantage)
    epsilon = accountant(scheme.privacy.accountant).epsilon(mechanism, scheme.privacy.delta)
    return f"would cost epsilon {epsilon:.4g} at delta {scheme.privacy.delta:g} in total"
