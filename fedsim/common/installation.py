"""The installed distributions; another project named `fedsim` may overwrite this one."""

import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version

from fedsim import DISTRIBUTION

PACKAGES = ("fedsim", "adversaries")
"""The import packages of the distribution."""


def complaint() -> str:
    """Return a complaint about a distribution that shares this program's files, or ""."""
    holders = _holders(tuple(sys.path))
    names = {name for package in PACKAGES for name in holders.get(package, ())}
    others = sorted(names - {DISTRIBUTION})
    if not others:
        return ""
    return (
        f"the installed distribution '{others[0]}' is another project, but has files under the "
        f"import names of fedsim; run pip uninstall {others[0]}, then install the wheel of "
        f"{DISTRIBUTION} again (pip install --force-reinstall --no-deps)"
    )


@cache  # it reads the list of files of every distribution
def _holders(_path: tuple[str, ...]) -> Mapping[str, list[str]]:
    return packages_distributions()


def command(extra: str) -> str:
    """Return the command that installs an extra of pyproject.toml."""
    return f'pip install "{DISTRIBUTION}[{extra}]"'


def installed(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of those distributions that are installed, by name."""
    versions = {}
    for name in names:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions
