"""A client of the older stack, behind the mods of secure aggregation and clipping."""

import numpy as np
from flwr.app import Context
from flwr.client import NumPyClient
from flwr.client.mod import fixedclipping_mod, secaggplus_mod
from flwr.clientapp import ClientApp


class Client(NumPyClient):
    """Returns the model that it was sent."""

    def fit(self, parameters, config):
        """Return the model, the number of examples and no metrics."""
        return [np.asarray(each) for each in parameters], 10, {}


def client_fn(context: Context):
    """Return a client."""
    return Client().to_client()


app = ClientApp(client_fn, mods=[secaggplus_mod, fixedclipping_mod])
