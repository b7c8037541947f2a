"""`fedsim plugins`: the plug-ins of installed packages. Their code is not imported."""

from dataclasses import asdict

from rich.table import Table

from adversaries import plugins as installed_plugins
from adversaries import registry
from fedsim.cli.options import AsJson
from fedsim.cli.terminal import Terminal, print_json


def plugins(json_: AsJson = False) -> None:
    """List the plug-ins of installed packages, and whether this machine allows them.

    Their code is not imported. To use one, allow its code and name it:
    fedsim --allow-code CODE run CONFIG --set KEY=plugin:NAME

    Example: fedsim plugins
    """
    found = installed_plugins.installed()
    allowed = [registry.is_allowed(each.code) for each in found]
    if json_:
        rows = zip(found, allowed, strict=True)
        print_json({"plugins": [{**asdict(each), "allowed": may} for each, may in rows]})
        return
    console = Terminal(highlight=False)
    if not found:
        groups = ", ".join(installed_plugins.GROUPS.values())
        console.print(f"No installed package has an entry point in {groups}.")
        return
    table = Table("name", "for", "code", "package", "allowed", box=None, pad_edge=False)
    for each, may in zip(found, allowed, strict=True):
        name = f"{installed_plugins.PREFIX}{each.name}"
        package = f"{each.package} {each.version}"
        table.add_row(name, each.key, each.code, package, "yes" if may else "no")
    console.print(table)
    console.print(
        "Allow one by its code: fedsim --allow-code CODE COMMAND ... The plug-ins of a report need "
        "no name: each one that you allow is on the page."
    )
