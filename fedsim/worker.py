"""The worker of a campaign: it trains one batch of trials in its own in-process federation."""

import logging
from typing import Any

from fedsim import client_app
from fedsim.common import device
from fedsim.configuration import to_run_config
from fedsim.federation.runtimes.inprocess import InProcessGrid
from fedsim.federation.runtimes.workers import ONE_AT_A_TIME, Done, check_program
from fedsim.federation.server import experiment
from fedsim.federation.server.batch import Batch
from fedsim.federation.server.training import Training


def train_batch(program: dict[str, str], batch: Batch) -> Done:
    """Train a batch of trials, whose rounds are charged, and return its findings and events.

    Raises InputError if the worker has another program, another kind of device or other data.
    """
    with ONE_AT_A_TIME:
        logging.getLogger("flwr").setLevel(logging.WARNING)
        config = batch.plan.config
        check_program(config, program)
        loaded = batch.plan.federation()
        if loaded.device.type == "cpu":
            device.single_threaded_kernels()
        grid = InProcessGrid(client_app.app, config.federation.clients, to_run_config(config))
        events: list[dict[str, Any]] = []

        def note(**event: Any) -> None:
            events.append(event)

        training = Training(grid, batch, log_event=note)
        return experiment.train(training, loaded), events
