"""Plug-ins: extensions that other packages bring, by entry points of `GROUPS`.

A configuration names one as "plugin:NAME", which stands for code of the package's metadata.
`registry` imports that code only if the machine's owner allowed it by this name.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from adversaries.errors import InputError

PREFIX = "plugin:"

GROUPS = {
    "audit.attacks": "fedsim.attacks",
    "audit.mode": "fedsim.seats",
    "data.name": "fedsim.data_sets",
    "model.name": "fedsim.models",
    "privacy.accountant": "fedsim.accountants",
    "--track": "fedsim.trackers",
    "report": "fedsim.report_sections",
}
"""Groups of entry points, by the key or option that names a plug-in; a report needs no name."""


@dataclass(frozen=True)
class Plugin:
    """An extension that an installed package brings.

    Attributes:
        name: what a configuration writes behind "plugin:".
        key: a key of `GROUPS`.
        code: "package.module:name", which the machine's owner may allow.
        package: name of the distribution.
        version: version of the distribution.
    """

    name: str
    key: str
    code: str
    package: str
    version: str


def installed(keys: Iterable[str] = tuple(GROUPS)) -> list[Plugin]:
    """Return the installed plug-ins of some keys of `GROUPS`, sorted, without importing them."""
    found = {
        _plugin(key, point) for key in keys for point in entry_points(group=GROUPS[key])
    }  # a folder that is twice on the path lists its plug-ins twice
    return sorted(found, key=lambda each: (list(GROUPS).index(each.key), each.name, each.code))


def _plugin(key: str, point: EntryPoint) -> Plugin:
    package = point.dist
    name, version = (package.name, package.version) if package else ("", "")
    return Plugin(point.name, key, point.value, name, version)


def code_of(name: str, key: str) -> str:
    """Return the code that "plugin:NAME" stands for; any other name as it is.

    Args:
        name: what the user wrote.
        key: the key or option with the name; a key of `GROUPS`.

    Raises:
        InputError: no installed package has this plug-in, or two have different ones.
    """
    if not name.startswith(PREFIX):
        return name
    found = [each for each in installed([key]) if PREFIX + each.name == name]
    if len(found) == 1:
        return found[0].code
    if found:
        codes = " or ".join(each.code for each in found)
        raise InputError(f"{key} is '{name}', which two packages have; write {codes}")
    raise InputError(
        f"{key} is '{name}', but no installed package has this plug-in; fedsim plugins lists the "
        "installed ones"
    )
