"""A server of the older stack, made by a function."""

import numpy as np
from flwr.app import Context
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAdagrad
from flwr.serverapp import ServerApp


def server_fn(context: Context) -> ServerAppComponents:
    """Return the strategy and the rounds."""
    strategy = FedAdagrad(initial_parameters=ndarrays_to_parameters([np.zeros(8)]))
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=2))


app = ServerApp(server_fn=server_fn)
