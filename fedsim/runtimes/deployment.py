"""Flower's deployment runtime behind one command: a run on a SuperLink that is up already.

The same apps and the same configuration as in process. What the nodes are told names no folder of
the server's but the run directory: each owner's data are where its own node's config says.
"""

import tempfile
from pathlib import Path

from fedsim import config as configuration
from fedsim.config import Config
from fedsim.deployment import kit
from fedsim.runtimes.flower_command import FlowerError, Submission, flwr, submit, write_app


def start(server: Path, config: Config) -> Submission:
    """Submit a prepared run (`run.out` is its directory) to the SuperLink of a server's folder.

    Raises FlowerError when the SuperLink does not answer or refuses it.
    """
    home = _home(server)
    with tempfile.TemporaryDirectory(prefix="fedsim-deployment-") as temporary:
        app = Path(temporary) / "fedsim"
        app.mkdir()
        write_app(app)
        run_config = Path(temporary) / "run.toml"
        told = configuration.dump(config.reading_data_from(""))
        run_config.write_text(told, encoding="utf-8")
        return submit(home, kit.CONNECTION, app, run_config)


def register(server: Path) -> dict[str, str]:
    """Register every public key of server/keys; return the node's id by its machine's name.

    Keys that are registered already keep their node. Raises FlowerError.
    """
    home = _home(server)
    nodes = kit.registered(server)
    living = set(statuses(server))
    for path in sorted((server / "keys").glob("*.pub")):
        if nodes.get(path.stem) in living:
            continue
        arguments = ["supernode", "register", str(path), kit.CONNECTION, "--name", path.stem]
        try:
            answer = flwr(home, *arguments)
        except FlowerError as error:
            raise FlowerError(f"{path.stem}: {error}") from None
        nodes[path.stem] = str(answer["node-id"])
        kit.write_registered(server, nodes)
    return nodes


def statuses(server: Path) -> dict[str, str]:
    """Return the status of each node that the SuperLink knows, by its id. Raises FlowerError."""
    listed = flwr(_home(server), "supernode", "list", kit.CONNECTION)["nodes"]
    return {str(node["node-id"]): str(node["status"]) for node in listed}


def _home(server: Path) -> Path:
    kit.connect_flower(server, kit.port(server, "SUPERLINK_PORT"))
    return server / "flower"
