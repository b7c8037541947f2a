"""Command groups that import a command when it is called, and not to list it."""

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, Literal, cast

import click
import typer
from click.shell_completion import CompletionItem
from typer.core import TyperGroup

from adversaries.errors import InputError
from fedsim.cli.commands import PANELS, Command, Group
from fedsim.common import installation

MARKUP: Literal["markdown"] = "markdown"
"""Which leaves [brackets] alone and fills paragraphs."""


class Commands(MutableMapping[str, click.Command]):
    """Commands by name, each imported when it is asked for."""

    def __init__(self, listed: Mapping[str, tuple[Command | Group, str]]) -> None:
        self._listed = dict(listed)
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            self._loaded[name] = _load(*self._listed[name])
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._listed | self._loaded)

    def __len__(self) -> int:
        return len(self._listed | self._loaded)

    def outlines(self) -> dict[str, click.Command]:
        """Return what help and completion say of each command, which nothing is imported for."""
        return {
            name: typer.core.TyperCommand(
                name,
                help=command.words,
                hidden=isinstance(command, Command) and command.hidden,
                rich_help_panel=panel,
                rich_markup_mode=MARKUP,
            )
            for name, (command, panel) in self._listed.items()
        }


class LazyGroup(TyperGroup):
    """A group whose help and completion are those of the table in `commands`."""

    def __init__(
        self, *, listed: Mapping[str, tuple[Command | Group, str]] | None = None, **attrs: Any
    ) -> None:
        super().__init__(**attrs)
        lazily = Commands(_of_panels() if listed is None else listed)
        self.suggest_commands = False  # click does
        self._outlines = lazily.outlines()
        self.commands = cast(dict[str, click.Command], lazily)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments begin with. Raises UsageError if there is none."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if ctx.parent is None or "Did you mean" in error.message:
                raise
            known = ", ".join(self.list_commands(ctx))
            advice = f"{error.message} fedsim {self.name} takes one of {known} first."
            raise click.UsageError(advice, ctx) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the table."""
        return list(self.commands)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help, by the words of the table."""
        outline = TyperGroup(
            name=self.name,
            commands=self._outlines,
            help=self.help,
            rich_markup_mode=self.rich_markup_mode,
            context_settings=self.context_settings,
        )
        outline.params = self.params
        outline.format_help(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the names that begin so, with the words of the table."""
        found = [
            CompletionItem(name, help=command.get_short_help_str())
            for name, command in self._outlines.items()
            if name.startswith(incomplete) and not command.hidden
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)  # and options


def _of_panels() -> dict[str, tuple[Command | Group, str]]:
    return {each.name: (each, panel) for panel, listed in PANELS.items() for each in listed}


def _load(command: Command | Group, panel: str) -> click.Command:
    """Return a command that can be called. Raises InputError for code of another project."""
    if isinstance(command, Group):
        return LazyGroup(
            name=command.name,
            help=f"{command.words}\n\n{command.more}".strip(),
            short_help=command.words,
            no_args_is_help=True,
            rich_markup_mode=MARKUP,
            rich_help_panel=panel,
            listed={each.name: (each, "Commands") for each in command.commands},
        )
    module, _, name = command.code.partition(":")
    try:
        function = getattr(import_module(f"fedsim.cli.{module}"), name)
    except (ImportError, AttributeError):
        # Modules of another project, in the place of this one's, lack what is imported.
        if complaint := installation.complaint():
            raise InputError(complaint) from None
        raise
    one = typer.Typer(add_completion=False, rich_markup_mode=MARKUP, pretty_exceptions_enable=False)
    one.command(command.name, hidden=command.hidden, rich_help_panel=panel)(function)
    return typer.main.get_command(one)
