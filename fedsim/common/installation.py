"""The installed distributions; another project named `fedsim` may overwrite this one."""

from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, packages_distributions, version

from fedsim import DISTRIBUTION

PACKAGES = ("fedsim", "adversaries")
"""The import packages of the distribution."""


def complaint() -> str:
    """Return a complaint about a distribution that shares this program's files, or ""."""
    holders = packages_distributions()
    names = {name for package in PACKAGES for name in holders.get(package, ())}
    others = sorted(names - {DISTRIBUTION})
    if not others:
        return ""
    return (
        f"the distribution '{others[0]}' is another project, with files under the import names of "
        f"fedsim; pip uninstall {others[0]}, then install the wheel of {DISTRIBUTION} again "
        "(pip install --force-reinstall --no-deps)"
    )


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
