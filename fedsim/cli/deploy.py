"""`fedsim deploy`: a federation across machines, from keys to a run."""

import json
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from adversaries.errors import InputError, InterruptedRunError
from fedsim import config as configuration
from fedsim.campaign.run_directory import RunDirectory
from fedsim.cli import client_report, deploy_upkeep
from fedsim.cli.options import AcceptEpsilon, Rehearsal, SetOption
from fedsim.cli.terminal import Terminal
from fedsim.config import Config, Scalar
from fedsim.experiment import check_ledger, prepare
from fedsim.runtimes.progress import conclude, conclude_training, progress

app = typer.Typer(
    name="deploy",
    help="Run a federation across machines: keys, certificates, scripts, checks and runs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

for command in (deploy_upkeep.status, deploy_upkeep.rotate, deploy_upkeep.upgrade):
    app.command()(command)

Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="The kit, or the folder of this machine.")
]

Days = Annotated[
    int, typer.Option(min=1, max=3650, help="How long the server's certificate lasts.")
]
Certificate = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The server's, of your own authority (PEM, with its chain)."),
]
Key = Annotated[Path | None, typer.Option(metavar="FILE", help="The key of --certificate (PEM).")]


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new directory.")],
    server_address: Annotated[
        str,
        typer.Option(metavar="HOST[:PORT]", help="The name or address that clients connect to."),
    ],
    clients: Annotated[int, typer.Option(min=2, help="How many clients.")] = 3,
    port: Annotated[int, typer.Option(min=1, max=65535, help="The clients' port.")] = 8443,
    superlink_port: Annotated[
        int, typer.Option(min=1, max=65535, help="The SuperLink's own, on loopback.")
    ] = 8000,
    listen: Annotated[str, typer.Option(help="The address the server listens on.")] = "0.0.0.0",
    auditor: Annotated[bool, typer.Option("--auditor", help="A folder for an auditor.")] = False,
    days: Days = 365,
    certificate: Certificate = None,
    key: Key = None,
    ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What nodes trust your own certificate by.")
    ] = None,
) -> None:
    """Write keys, certificates, scripts and instructions for the server and every client.

    Example: fedsim deploy init hospitals --clients 3 --server-address federation.example.org
    """
    from fedsim.deployment import certificates, kit  # noqa: PLC0415
    from fedsim.deployment.own_certificate import Own  # noqa: PLC0415

    own = None
    if certificate is not None and key is not None and ca is not None:
        own = Own(certificate, key, ca)
    elif certificate is not None or key is not None or ca is not None:
        raise InputError("a certificate of your own needs all of --certificate, --key and --ca")
    host, port = _address(server_address, port)
    if port == superlink_port:
        raise InputError(
            f"port {port} is both the clients' and the SuperLink's own; choose another with "
            "--port or --superlink-port"
        )
    written = kit.write(
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
    typer.echo(f"{directory}: {', '.join(written.machines)}; the certificate lasts until {end:%F}")
    typer.echo(f"What to do on each machine: {directory / 'README.md'}")


@app.command()
def check(
    directory: Directory,
    machine: Annotated[
        str | None, typer.Option(metavar="NAME", help="server, client-K or auditor.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Say what is wrong with a deployment, and how to mend it. Exit status 1 if anything is.

    Example: fedsim deploy check hospitals --machine server
    """
    from fedsim.deployment.checks import findings, machines  # noqa: PLC0415

    found = machines.check(directory, machine)
    wrong = sum(one.state == findings.WRONG for one in found)
    if json_:
        typer.echo(json.dumps({"wrong": wrong, "findings": [vars(one) for one in found]}))
    else:
        line = Column(overflow="fold")  # commands must be whole
        table = Table("machine", "what", "", line, box=None, pad_edge=False)
        colours = {findings.OK: "green", findings.NOTE: "yellow", findings.WRONG: "red"}
        for one in found:
            state = Text(one.state, colours[one.state])
            table.add_row(one.machine, one.what, state, Text(one.message))
        Terminal(highlight=False).print(table)
    raise typer.Exit(1 if wrong else 0)


app.command("report")(client_report.report)


@app.command()
def renew(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The kit, with its ca/.")],
    days: Days = 365,
    certificate: Certificate = None,
    key: Key = None,
) -> None:
    """Write a new certificate of the server, which every node takes: no node's folder changes.

    Example: fedsim deploy renew hospitals
    """
    from fedsim.deployment.renewal import renew  # noqa: PLC0415

    if (certificate is None) != (key is None):
        raise InputError("a certificate of your own needs both --certificate and --key")
    own = None if certificate is None or key is None else (certificate, key)
    end = renew(directory, days, own)
    typer.echo(f"{directory / 'server' / 'server.crt'}: until {end:%F}")
    typer.echo(
        "Copy it and server.key to the server's folder; the proxy takes them up within a minute."
    )


@app.command()
def register(directory: Directory) -> None:
    """Tell the running SuperLink which keys may join: every one in server/keys.

    Example: fedsim deploy register hospitals
    """
    from fedsim.deployment import kit  # noqa: PLC0415
    from fedsim.deployment import run as deployment  # noqa: PLC0415

    nodes = deployment.register(kit.folder(directory, "server"))
    for machine, node in nodes.items():
        typer.echo(f"{machine}: node {node}")


@app.command()
def run(
    directory: Directory,
    config_file: Annotated[Path, typer.Argument(metavar="CONFIG", help="Experiment file (TOML).")],
    out: Annotated[
        Path | None, typer.Option(help="Run directory; default fedsim-runs/NAME-TIME.")
    ] = None,
    set_: SetOption = None,
    experiment: Annotated[
        bool,
        typer.Option(
            "--experiment",
            help="Allow what protects nobody: noise from a seed, or repeated trainings.",
        ),
    ] = False,
    accept_epsilon: AcceptEpsilon = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress and no summary.")] = False,
) -> None:
    """Train on the deployed federation; on the server's machine.

    One training, with noise from the operating system: what several runs release about the same
    people adds up. A run directory that was begun with the same configuration is continued.

    Example: fedsim deploy run hospitals hospitals/server/deployment.toml
    """
    start = time.time()
    console = Terminal(stderr=True, quiet=quiet)
    config = configuration.load(config_file, _overrides(set_, out))
    configuration.check_is_no_training(config, str(config_file))
    conclude(_carry_out(directory, config, experiment, accept_epsilon, console), start, console)


@app.command()
def train(
    directory: Directory,
    config_file: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="Training file (TOML); see configs/.")
    ],
    out: Annotated[Path | None, typer.Option(help="Run directory.")] = None,
    set_: SetOption = None,
    accept_epsilon: AcceptEpsilon = None,
    rehearsal: Rehearsal = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress and no summary.")] = False,
) -> None:
    """Train a model on the deployed federation, once, and keep it; on the server's machine.

    As `fedsim train`, with each client on its own machine. The same command with the same --out
    goes on after the last round of a training that was interrupted.

    Example: fedsim deploy train hospitals training.toml --out model
    """
    start = time.time()
    console = Terminal(stderr=True, quiet=quiet)
    config = configuration.load(config_file, _overrides(set_, out), "training")
    run_directory = _carry_out(directory, config, False, accept_epsilon, console, rehearsal)
    conclude_training(run_directory, start, console)


def _overrides(set_: list[str] | None, out: Path | None) -> dict[str, Scalar]:
    overrides = configuration.parse_overrides(set_)
    return overrides if out is None else overrides | {"run.out": str(out)}


def _carry_out(
    directory: Path,
    config: Config,
    experiment: bool,
    accept_epsilon: float | None,
    console: Console,
    rehearsal: Path | None = None,
) -> RunDirectory:
    """Submit a run to the server's SuperLink, and return its directory when it has ended.

    Raises InputError and FlowerError, for what is wrong before it begins and while it runs.
    """
    from fedsim.deployment import kit  # noqa: PLC0415
    from fedsim.deployment import run as deployment  # noqa: PLC0415
    from fedsim.report import rehearsed  # noqa: PLC0415
    from fedsim.server.nodes import REGISTERED  # noqa: PLC0415

    server = kit.folder(directory, "server")
    _refuse(config, kit.read(server).clients, experiment)
    found = None if rehearsal is None else rehearsed.findings(config, rehearsal)
    nodes = _clients_nodes(server, config.federation.clients)
    with console.status("preparing"):
        plan = prepare(config, deployed=True)
        config, run_directory = plan.config, plan.begin()
    last = run_directory.last_file
    if run_directory.has(last):
        raise InputError(
            f"'{run_directory.path}' holds a finished run, with its {last}; read it, or name a new "
            "directory with --out"
        )
    with run_directory.lock():  # the server's own process holds it once it has begun
        check_ledger(plan, run_directory, accept_epsilon)
        if found is not None:
            rehearsed.attach(run_directory, found)
        run_directory.write_json(REGISTERED, nodes)
    submitted = deployment.start(server, config)
    try:
        with progress(run_directory, config, console):
            submitted.wait(lambda: run_directory.has(last))
    except KeyboardInterrupt:
        submitted.stop()
        raise InterruptedRunError(
            "interrupted; what is finished is kept: give the same command again with "
            f"--out {run_directory.path}"
        ) from None
    return run_directory


@app.command(hidden=True)
def proxy(
    directory: Directory,
    listen: Annotated[str, typer.Option()] = "0.0.0.0",
    port: Annotated[int, typer.Option()] = 8443,
    superlink_port: Annotated[int, typer.Option()] = 8000,
) -> None:
    """Pass the Fleet API, and nothing else, from the clients to the SuperLink. start.sh calls
    it."""
    from fedsim.deployment import kit  # noqa: PLC0415
    from fedsim.deployment.proxy import serve  # noqa: PLC0415

    serve(listen, port, superlink_port, kit.folder(directory, "server"))


@app.command(hidden=True)
def superlink(directory: Directory) -> None:
    """Become the SuperLink of this machine. start.sh calls it."""
    from fedsim.deployment import superlink  # noqa: PLC0415

    superlink.start(directory)


@app.command(hidden=True)
def supernode(directory: Directory) -> None:
    """Become the SuperNode of this machine. start.sh calls it."""
    from fedsim.deployment import supernode  # noqa: PLC0415

    supernode.start(directory)


@app.command(hidden=True)
def apps(directory: Directory, parent: Annotated[int, typer.Argument()]) -> None:
    """Start the processes of the SuperNode's tasks, beside it. `supernode` calls it."""
    from fedsim.deployment import supernode  # noqa: PLC0415

    supernode.serve_apps(directory, parent)


def _address(text: str, port: int) -> tuple[str, int]:
    """Split HOST[:PORT]. Raises InputError."""
    from fedsim.deployment import kit  # noqa: PLC0415

    host, colon, given = text.rpartition(":")
    if not colon:
        host, given = text, str(port)
    number = int(given) if given.isascii() and given.isdecimal() else 0
    if not 0 < number < 65536 or not kit.is_host(host):
        raise InputError(
            f"--server-address {text!r} is not HOST or HOST:PORT, for example "
            "federation.example.org:8443 (an IPv6 address needs a name)"
        )
    return host, number


def _clients_nodes(server: Path, clients: int) -> dict[str, int]:
    """Return the node of each client's key by partition. Raises InputError for one without."""
    from fedsim.deployment import registrations  # noqa: PLC0415

    registered, files = registrations.registered(server), registrations.key_files(server)
    nodes = {}
    for client in range(clients):
        machine = f"client-{client}"
        node = registered.get(machine)
        if node is None or not node.node.isdecimal():
            raise InputError(
                f"the key of {machine} is not registered; start the server and give "
                "fedsim deploy register"
            )
        if machine in files and node.key != registrations.key(files[machine]):
            raise InputError(
                f"keys/{machine}.pub is not the registered key; give fedsim deploy register"
            )
        nodes[str(client)] = int(node.node)
    return nodes


def _refuse(config: Config, clients: int, experiment: bool) -> None:
    """Raise InputError for a run that this federation cannot, or should not, carry out."""
    if config.federation.clients != clients:
        raise InputError(
            f"federation.clients is {config.federation.clients}, but {clients} clients are "
            f"deployed; add --set federation.clients={clients}"
        )
    if config.privacy.noise_source == "seed" and not experiment:
        raise InputError(
            'privacy.noise-source is "seed", and every node is told the seed, so that the noise '
            "protects nobody; add --set privacy.noise-source=system, or --experiment to go on"
        )
    if config.trials.count > 1 and not experiment:
        raise InputError(
            f"trials.count is {config.trials.count}, and that many trainings on the same people "
            f"release {_together(config)}; add --set trials.count=1 --set trials.worlds=d-only, as "
            "in the server's deployment.toml, or --experiment to go on"
        )
    if config.federation.summed_in_the_clear and config.privacy.noise_source != "seed":
        raise InputError(
            "federation.trust is 'distributed', but federation.secure-aggregation is 'simulated', "
            "so that the server would see every message under a share of the noise only; add --set "
            "federation.secure-aggregation=secagg+ (an --experiment with noise from the seed may "
            "simulate it)"
        )


def _together(config: Config) -> str:
    """Say what all trainings of a campaign come to."""
    from fedsim.campaign import spending  # noqa: PLC0415
    from fedsim.mechanisms import privacy  # noqa: PLC0415
    from fedsim.privacy.accounting import accountant  # noqa: PLC0415

    everything = spending.describe_everything(config, privacy.noise_multiplier(config), [])
    if everything is None:
        return "what no noise hides"
    mechanism = everything.towards(config.federation.vantage)
    epsilon = accountant(config.privacy.accountant).epsilon(mechanism, config.privacy.delta)
    return f"epsilon {epsilon:.4g} at delta {config.privacy.delta:g} together"
