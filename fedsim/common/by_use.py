"""Tables of entries by name, of which a process needs few."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TypeVar

Entry = TypeVar("Entry")


class ByUse(Mapping[str, Entry]):
    """A registry whose entries are imported at their first use: a process needs few of them.

    places: the place of each entry by its name, "package.module:attribute".
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = dict(places)

    def __getitem__(self, name: str) -> Entry:
        module, _, attribute = self._places[name].partition(":")
        entry: Entry = getattr(import_module(module), attribute)
        return entry

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
