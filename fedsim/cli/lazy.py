"""Command groups that import a command only when it is called."""

from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from importlib import import_module
from typing import Any, Literal, cast

import click
import typer
from click.shell_completion import CompletionItem
from typer.core import TyperGroup

from adversaries.errors import InputError
from fedsim.cli.commands import PANELS, Command, CommandGroup
from fedsim.cli.option_groups import ungrouped
from fedsim.common import installation

MARKUP: Literal["markdown"] = "markdown"
"""Markup of help texts. Markdown prints [brackets] as they are and fills paragraphs."""


class Commands(Mapping[str, click.Command]):
    """Commands by name. A command is imported when it is looked up."""

    def __init__(self, listed: Mapping[str, tuple[Command | CommandGroup, str]]) -> None:
        self._listed = listed

    def __getitem__(self, name: str) -> click.Command:
        return _load(*self._listed[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)


class LazyGroup(TyperGroup):
    """A group that takes its help and completion from the table in `commands`."""

    def __init__(
        self,
        *,
        listed: Mapping[str, tuple[Command | CommandGroup, str]] | None = None,
        **attrs: Any,
    ) -> None:
        super().__init__(**attrs)
        if listed is None:
            listed = {each.name: (each, panel) for panel, row in PANELS.items() for each in row}
        self.suggest_commands = False  # click itself suggests similar names
        self._listed = listed
        self.commands = cast(dict[str, click.Command], Commands(listed))

    @cached_property
    def _outlines(self) -> dict[str, click.Command]:
        """A stand-in for each command, for help and completion, without importing it."""
        return {
            name: typer.core.TyperCommand(
                name,
                help=command.words,
                hidden=command.hidden,
                rich_help_panel=panel,
                rich_markup_mode=MARKUP,
            )
            for name, (command, panel) in self._listed.items()
        }

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name. Raises UsageError for an unknown one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if ctx.parent is None or "Did you mean" in error.message:
                raise
            names = ", ".join(self.list_commands(ctx))
            advice = f"{error.message} Give one of these after fedsim {self.name}: {names}."
            raise click.UsageError(advice, ctx) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
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
        """Return the names that begin with `incomplete`, with their help from the table."""
        names = [
            CompletionItem(name, help=command.get_short_help_str())
            for name, command in self._outlines.items()
            if name.startswith(incomplete) and not command.hidden
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)  # and options


@cache
def _load(command: Command | CommandGroup, panel: str) -> click.Command:
    """Return a command that can be called. Raises InputError if another project shadows fedsim."""
    if isinstance(command, CommandGroup):
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
        # Another project's modules may shadow ours and lack the imported names.
        if complaint := installation.complaint():
            raise InputError(complaint) from None
        raise
    one = typer.Typer(add_completion=False, rich_markup_mode=MARKUP, pretty_exceptions_enable=False)
    one.command(command.name, hidden=command.hidden, rich_help_panel=panel)(ungrouped(function))
    return typer.main.get_command(one)
