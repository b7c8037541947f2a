"""The texts of a deployment kit, which texts.toml has by the name of a file."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

LIGHT, FULL = "25%", "75%"
"""Share of the machine's memory: of a service that only relays, and of one that trains."""


@cache
def _texts() -> dict[str, str]:
    path = Path(__file__).with_name("texts.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def filled(name: str, values: Mapping[str, str]) -> str:
    """Return a text with values in place of `@NAME@`, one after the other."""
    text = _texts()[name]
    for placeholder, value in values.items():
        text = text.replace(f"@{placeholder}@", value)
    return text


def services(machine: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return the files of a machine's folder that start its services: scripts, systemd's units."""
    is_server, memory = machine == "server", LIGHT if machine == "auditor" else FULL
    # Each service by its name in start.sh, with its unit, what it is, and its share of the memory.
    own = {"supernode": (f"fedsim-{machine}", f"the node of {machine}", memory)}
    if is_server:
        own = {
            "superlink": ("fedsim-superlink", "Flower's SuperLink, on loopback", FULL),
            "proxy": ("fedsim-proxy", "the Fleet API for the clients", LIGHT),
        }
    values = {
        **values,
        "FOLDER": f"/etc/fedsim/{machine}",
        "OWN": "" if is_server else " and node.toml",
        "SERVICES": " ".join(reversed(own)),
        "UNITS": " ".join(unit for unit, _, _ in own.values()),
    }
    start = filled("start.sh", values) + filled("server.sh" if is_server else "node.sh", values)
    texts = {"start.sh": start}
    texts |= {name: filled(name, values) for name in ("stop.sh", "install.sh")}
    for name, (unit, description, share) in own.items():
        fields = {"NAME": name, "UNIT": unit, "DESCRIPTION": description, "MEMORY": share}
        texts[f"{unit}.service"] = filled("unit.service", {**fields, **values})
    return texts
