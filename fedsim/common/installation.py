"""Which distribution this program is of, and whether another's files lie among its own.

The package index knows another project by the name `fedsim`, which brings an import package of
that name: where both were installed, one has written over the other.
"""

from importlib.metadata import packages_distributions

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
