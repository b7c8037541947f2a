"""A run on the deployed federation: submitted on the server's machine, and followed to its end."""

import math
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from rich.console import Console

from adversaries.errors import InputError, InterruptedRunError
from fedsim import configuration
from fedsim.configuration import Config
from fedsim.configuration.objects import Scheme
from fedsim.deployment import kit, run
from fedsim.deployment.checks.connection import WRONG
from fedsim.deployment.checks.server import services
from fedsim.experiment import check_ledger, prepare
from fedsim.federation.runs import spending
from fedsim.federation.runs.run_directory import LAST_FILE, SUBMITTED, RunDirectory
from fedsim.federation.runtimes import ports
from fedsim.federation.runtimes.flower_command import ProcessEndedError, Submission
from fedsim.federation.server.nodes import ENDED, REGISTERED
from fedsim.federation.server.plan import planned_epsilons
from fedsim.game.mechanisms import privacy as noise
from fedsim.privacy.accounting import accountant
from fedsim.privacy.trust.model import Vantage
from fedsim.reports import model_card
from fedsim.reports.tracking.progress import progress, warn

ENDING = 60.0
"""Seconds that a server's process may take to end after its SuperLink was killed. It asks the new
SuperLink after up to 20 s, and ends up to 6 s after its refusal."""


def carry_out(
    server: Path,
    config: Config,
    console: Console,
    *,
    experiment: bool = False,
    rehearsal: Path | None = None,
) -> RunDirectory:
    """Submit a run to the server's SuperLink, or go on with it, and wait for its end.

    Args:
        server: folder of the server.
        config: configuration of a training or an experiment.
        console: for the progress.
        experiment: whether settings that protect no client are allowed.
        rehearsal: run whose results go on the card of a training.

    Returns:
        The run directory.

    Raises:
        InputError: the run is finished, or cannot be begun or continued.
        InterruptedRunError: Ctrl-C stopped it.
    """
    training = config.run.job == "training"
    _check(config.scheme, config.trials.count, kit.read_kit(server).clients, experiment)
    values = configuration.to_run_config(config)
    evidence = None if rehearsal is None else model_card.findings(values, rehearsal)
    tolerated = config.federation.tolerated_dropouts if training else 0
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
            if training and (larger := _larger(config.scheme, plan.noise_multiplier)):
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
        earlier = run.runs(server)
        ended = earlier.keys() - set(run.unfinished(earlier))
        run_directory.write_json(ENDED, {"runs": ",".join(sorted(ended))})
    run_config = configuration.dump(config.reading_data_from(""))
    submitted = run.start(server, run_config, Path(config.run.out))
    return _follow(server, submitted, run_directory, console)


def _running(server: Path, run_directory: RunDirectory) -> Submission | None:
    """Return the unfinished submission that writes a run directory, or will; None without one."""
    directory, id = run.last(server) or (None, "")
    ids = [id] if directory == run_directory.path else []  # its process may not have begun
    ids += [run_directory.submitted()] if run_directory.has(SUBMITTED) else []
    # Without a process, the SuperLink may not know yet that it was killed.
    living = [id for id in ids if not run_directory.ended(id)]
    unfinished = run.unfinished(run.runs(server)) if living else ()
    return next((run.submission(server, id) for id in living if id in unfinished), None)


def _follow(
    server: Path, submitted: Submission, run_directory: RunDirectory, console: Console
) -> RunDirectory:
    """Wait for the end of a run; Ctrl-C stops it. Return its directory."""
    port, id = kit.port(server, "SUPERLINK_PORT"), submitted.run_id

    def lost() -> bool:
        return run_directory.ended(id) or not ports.listening("127.0.0.1", port)

    ending = partial(run_directory.has, LAST_FILE)
    try:
        with progress(run_directory, console):
            submitted.wait(ending, partial(_say_why, server, console), lost)
    except KeyboardInterrupt:
        submitted.stop()
        raise InterruptedRunError(
            "interrupted; the finished part is kept. To continue, run the same command again with "
            f"--out {run_directory.path}"
        ) from None
    return run_directory


def _say_why(server: Path, console: Console, state: str, seconds: float) -> None:
    """Print that a submitted run has not begun for some seconds, and which part is missing."""
    found = services(server, kit.read_kit(server))
    why = "; ".join(f"{what}: {message}" for what, state, message in found if state == WRONG)
    why = why or "all parts of the server live, so its machine is busy: see logs/superlink.log"
    warn(console, f"the run is {state} for {seconds:.0f} s: {why}")


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


def _check(scheme: Scheme, trials: int, clients: int, experiment: bool) -> None:
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
    everything = spending.describe_everything(scheme, noise.noise_multiplier(scheme), [])
    if everything is None:
        return "would release sums that no noise protects"
    mechanism = everything.towards(scheme.federation.vantage)
    epsilon = accountant(scheme.privacy.accountant).epsilon(mechanism, scheme.privacy.delta)
    return f"would cost epsilon {epsilon:.4g} at delta {scheme.privacy.delta:g} in total"
