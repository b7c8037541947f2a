"""What is installed: of which distribution this program is, and the versions of others.

The package index knows another project by the name `fedsim`, which brings an import package of
that name: where both were installed, one has written over the other.
"""

from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, packages_distributions, version

from fedsim import DISTRIBUTION

PACKAGES = ("fedsim", "adversaries")
"""The import packages of the distribution."""


def complaint() -> str:
    """Return which other distribution has a hand in what runs, with the remedy; "" for none."""
    holders = packages_distributions()
    names = {name for package in PACKAGES for name in holders.get(package, ())}
    others = sorted(names - {DISTRIBUTION})
    if not others:
        return ""
    return (
        f"the distribution '{others[0]}' is another project, with files under the import names of "
        f"this one: pip uninstall {others[0]}, then install the wheel of {DISTRIBUTION} anew "
        "(pip install --force-reinstall --no-deps)"
    )


def installed(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of those distributions that are installed."""
    found = {}
    for name in names:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
