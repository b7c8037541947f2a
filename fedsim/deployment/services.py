"""The services of each machine, and the files that start them: systemd, containers, nginx.

An image holds only the program. Keys, settings, records and ledgers stay in the machine's folder.
Only services that train or evaluate have PyTorch.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import requires

from fedsim import DISTRIBUTION
from fedsim.deployment import templates

LIGHT, FULL = "light", "full"
TORCH = ("torch", "torchvision")

HEAVY = frozenset(
    {*TORCH, "scikit-learn", "scikit-image", "dp-accounting", "matplotlib", "jinja2", "safetensors"}
)

MEMORY = {LIGHT: ("25%", "2g"), FULL: ("75%", "${FEDSIM_MEMORY:-8g}")}
"""Memory limit of a service: share of the machine's under systemd, and size in a container."""


@dataclass(frozen=True)
class Service:
    """A program that a machine runs.

    Attributes:
        name: name in start.sh.
        unit: name of the systemd unit.
        image: stage of the Dockerfile.
        port_name: setting of its port.
        host: address where the machine itself reaches it; or $$ and a setting.
    """

    name: str
    unit: str
    description: str
    image: str
    port_name: str
    host: str = "127.0.0.1"


SERVER = (
    Service(
        "superlink", "fedsim-superlink", "Flower's SuperLink, on loopback", FULL, "SUPERLINK_PORT"
    ),
    Service("proxy", "fedsim-proxy", "the Fleet API for the clients", LIGHT, "PORT", "$$LISTEN"),
)


def of(machine: str) -> tuple[Service, ...]:
    if machine == "server":
        return SERVER
    image = LIGHT if machine == "auditor" else FULL
    return (
        Service("supernode", f"fedsim-{machine}", f"the node of {machine}", image, "NODE_PORT"),
    )


def files(machine: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return the program's files of a machine's folder, by name. An upgrade replaces them."""
    own = of(machine)
    is_server = machine == "server"
    texts = {
        "start.sh": templates.SCRIPT_HEAD
        + (templates.SERVER_SCRIPT if is_server else templates.NODE_SCRIPT),
        "stop.sh": templates.STOP_SCRIPT,
        "install.sh": templates.INSTALL_SCRIPT,
        "Dockerfile": dockerfile(values["WHEEL"], values["FLOWER"]),
        ".dockerignore": templates.DOCKERIGNORE,
        "compose.yaml": templates.COMPOSE_HEAD + "".join(map(_container, own)),
        **{f"{one.unit}.service": _filled(templates.UNIT, one) for one in own},
        **({"nginx.conf": templates.NGINX} if is_server else {}),
    }
    values = {
        **values,
        "MACHINE": machine,
        "FOLDER": f"/etc/fedsim/{machine}",
        "OWN": "" if is_server else " and node.toml",
        "SERVICES": " ".join(one.name for one in reversed(own)),
        "UNITS": " ".join(one.unit for one in own),
    }
    return {name: templates.fill(text, values) for name, text in texts.items()}


def dockerfile(wheel: str, flower: str) -> str:
    """Return the Dockerfile of both images, for the wheel's file beside it and Flower's version."""
    listed = [need for need in requires(DISTRIBUTION) or [] if ";" not in need]
    needs = {re.split(r"[^\w.-]", need, maxsplit=1)[0]: need for need in listed}
    light = [need for name, need in needs.items() if name not in HEAVY | {"flwr"}]
    values = {
        "WHEEL": wheel,
        "LIGHT": _quoted([f"flwr=={flower}", *light]),
        "TORCH": _quoted([needs[name] for name in TORCH]),
    }
    return templates.fill(templates.DOCKERFILE, values)


def _container(service: Service) -> str:
    is_full = service.image == FULL
    values = {
        "ARGUMENTS": templates.COMPOSE_ARGUMENTS if is_full else "",
        "DATA": templates.COMPOSE_DATA if is_full and service.name == "supernode" else "",
    }
    return _filled(templates.fill(templates.COMPOSE_SERVICE, values), service)


def _filled(template: str, service: Service) -> str:
    memory, limit = MEMORY[service.image]
    values = {name.upper(): value for name, value in asdict(service).items()}
    return templates.fill(template, values | {"MEMORY": memory, "LIMIT": limit})


def _quoted(needs: list[str]) -> str:
    return " ".join(f'"{need}"' for need in needs)
