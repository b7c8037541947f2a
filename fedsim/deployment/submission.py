"""A run on the deployed federation: submitted on the server's machine, and followed to its end."""

from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from rich.console import Console

from adversaries.errors import InputError, InterruptedRunError
from fedsim.configuration import Config
from fedsim.configuration import files as configuration_files
from fedsim.deployment import kit, run
from fedsim.experiment import prepare
from fedsim.federation.runs.run_directory import LAST_FILE, RunDirectory
from fedsim.federation.runtimes.flower_command import ProcessEndedError, Submission
from fedsim.federation.server.nodes import REGISTERED
from fedsim.reports.tracking.progress import progress, warn

ENDING = 60.0
"""Seconds that a server's process may take to end after its SuperLink was killed. It asks the new
SuperLink after up to 20 s, and ends up to 6 s after its refusal."""


def carry_out(
    server: Path, config: Config, console: Console, *, experiment: bool = False
) -> RunDirectory:
    """Submit a run to the server's SuperLink, or go on with it, and wait for its end.

    Args:
        server: folder of the server.
        config: configuration of a training or an experiment.
        console: for the progress.
        experiment: whether settings that protect no client are allowed.

    Returns:
        The run directory.

    Raises:
        InputError: the run is finished, or cannot be begun or continued.
        InterruptedRunError: Ctrl-C stopped it.
    """
    training = config.run.job == "training"
    _check(config, kit.read_kit(server).clients, experiment)
    tolerated = config.federation.tolerated_dropouts if training else 0
    nodes = _clients_nodes(server, config.federation.clients, tolerated)
    with ExitStack() as held:
        with console.status("preparing") as status:
            plan = prepare(config, deployed=True)
            config, run_directory = plan.config, RunDirectory(plan.path.absolute())
            directory, id = run.last(server) or (None, "")
            if directory == run_directory.path and id in run.unfinished(run.runs(server)):
                say = f"following run {id}, which has not ended; Ctrl-C stops it"
                console.print(say, highlight=False)
                with suppress(ProcessEndedError):  # its process was killed; another one continues
                    return _follow(run.submission(server, id), run_directory, console)
            run_directory = plan.begin()
            # Once the run has begun, the server's process holds the lock.
            status.update("waiting for the last server process of this run to end")
            held.enter_context(run_directory.lock(patience=ENDING))
        if run_directory.has(LAST_FILE):
            raise InputError(
                f"'{run_directory.path}' holds a finished run, with its {LAST_FILE}; read it, or "
                "name a new directory with --out"
            )
        plan.left(run_directory)  # raises where the rest of the budget does not suffice
        run_directory.write_json(REGISTERED, nodes)
    run_config = configuration_files.dump(config.reading_data_from(""))
    submitted = run.start(server, run_config, Path(config.run.out))
    return _follow(submitted, run_directory, console)


def _follow(submitted: Submission, run_directory: RunDirectory, console: Console) -> RunDirectory:
    """Wait for the end of a run; Ctrl-C stops it. Return its directory."""
    try:
        with progress(run_directory, console):
            submitted.wait(partial(run_directory.has, LAST_FILE), partial(warn, console))
    except KeyboardInterrupt:
        submitted.stop()
        raise InterruptedRunError(
            "interrupted; the finished part is kept. To continue, run the same command again with "
            f"--out {run_directory.path}"
        ) from None
    return run_directory


def _clients_nodes(server: Path, clients: int, tolerated: int) -> dict[str, int]:
    """Return the node of each client's key, by partition.

    tolerated: number of clients that may have left for good, with no registered key.
    Raises InputError if more are missing.
    """
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


def _check(config: Config, clients: int, experiment: bool) -> None:
    """Raise InputError for a run that this federation cannot, or should not, carry out."""
    federation, privacy, trials = config.federation, config.privacy, config.trials.count
    seeded = privacy.noise_source == "seed"
    refusals = {
        f"federation.clients is {federation.clients}, but {clients} clients are deployed; add "
        f"federation.clients={clients}. If a client left for good, also add "
        "federation.tolerated-dropouts=1": federation.clients != clients,
        'privacy.noise-source is "seed", and every node knows the seed, so the noise protects no '
        "client; add privacy.noise-source=system, or --experiment to run it anyway": (
            seeded and not experiment
        ),
        f"trials.count is {trials}, and the costs of so many trainings on the same people add up; "
        "add trials.count=1, as in the server's deployment.toml, or --experiment to run them "
        "anyway": trials > 1 and not experiment,
        'federation.trust is "distributed", but federation.secure-aggregation is "simulated", so '
        "the server would see every message with only a share of the noise; add "
        "federation.secure-aggregation=secagg+ (an --experiment with noise from the seed may "
        "simulate it)": federation.summed_in_the_clear and not seeded,
    }
    if said := [text for text, refused in refusals.items() if refused]:
        raise InputError(said[0])
