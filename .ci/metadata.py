"""Metadata that names the project's owner: authors, addresses, and the links of the index page.

Hatch calls the hook when it builds. The owner is one line of pyproject.toml, in the table of this
hook; RELEASING.md says when to fill it in.
"""

from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

OWNER = "{owner}"
"""Stands for the owner in the hook's table, and in the substitutions of the index page."""


class OwnerHook(MetadataHookInterface):
    """Adds the authors and addresses, and puts the owner into the index page."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in the dynamic fields; the other hook has made the index page before."""
        owner = self.config["owner"]
        metadata["authors"] = [{"name": name} for name in self.config["authors"]]
        urls = self.config["urls"].items()
        metadata["urls"] = {name: address.replace(OWNER, owner) for name, address in urls}
        metadata["readme"]["text"] = metadata["readme"]["text"].replace(OWNER, owner)
