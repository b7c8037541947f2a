"""The server: FedAvg, recorded where the run config names a transcript."""

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedsim.recording import record
from opacus_app.client_app import model

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for the configured number of rounds."""
    config = context.run_config
    clients = int(config["clients"])
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
    if path := str(config["transcript"]):
        record(strategy, path, app="opacus-app")
    rounds = int(config["num-server-rounds"])
    strategy.start(grid, ArrayRecord(model().state_dict()), num_rounds=rounds)
