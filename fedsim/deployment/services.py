"""The services of each machine, and the files that start them: scripts and units of systemd."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from fedsim.deployment import templates

LIGHT, FULL = "25%", "75%"
"""Share of the machine's memory: of a service that only relays, and of one that trains."""


@dataclass(frozen=True)
class Service:
    """A program that a machine runs.

    Attributes:
        name: name in start.sh.
        unit: name of the systemd unit.
        memory: largest share of the machine's memory.
    """

    name: str
    unit: str
    description: str
    memory: str


SERVER = (
    Service("superlink", "fedsim-superlink", "Flower's SuperLink, on loopback", FULL),
    Service("proxy", "fedsim-proxy", "the Fleet API for the clients", LIGHT),
)


def of(machine: str) -> tuple[Service, ...]:
    if machine == "server":
        return SERVER
    memory = LIGHT if machine == "auditor" else FULL
    return (Service("supernode", f"fedsim-{machine}", f"the node of {machine}", memory),)


def files(machine: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return the files of a machine's folder that start its services, by name."""
    own, is_server = of(machine), machine == "server"
    values = {
        **values,
        "FOLDER": f"/etc/fedsim/{machine}",
        "OWN": "" if is_server else " and node.toml",
        "SERVICES": " ".join(one.name for one in reversed(own)),
        "UNITS": " ".join(one.unit for one in own),
    }
    parts = {
        "start.sh": ("start.sh", "server.sh" if is_server else "node.sh"),
        "stop.sh": ("stop.sh",),
        "install.sh": ("install.sh",),
    }
    texts = {
        name: "".join(templates.filled(part, values) for part in several)
        for name, several in parts.items()
    }
    for each in own:
        fields = {name.upper(): value for name, value in asdict(each).items()}
        texts[f"{each.unit}.service"] = templates.filled("unit.service", {**fields, **values})
    return texts
