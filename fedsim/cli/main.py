"""The `fedsim` command. Exit status: 0 done, 1 failed, 2 bad input, 130 interrupted.

`fedsim audit` and `fedsim verify` also end with 3 or 4, by their verdict
(`fedsim.audits.judgement.claim`), and a release gate ends a command with 3 (`fedsim.cli.gate`).
"""

import os
import sys
from typing import Annotated, NoReturn

import click
import typer

import fedsim
from adversaries import registry
from adversaries.errors import InputError, InterruptedRunError
from fedsim.cli import INTERRUPTED
from fedsim.cli.lazy import MARKUP, LazyGroup
from fedsim.common import installation
from fedsim.common.foreign_text import shown, without_password
from fedsim.common.private_files import NO_ROOM

app = typer.Typer(
    name="fedsim",
    help="Measure how identifiable one person is in the training data of a "
    "federation, and compare that with the limits of differential privacy.",
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=MARKUP,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _before(
    version: Annotated[bool, typer.Option("--version", "-V", help="Print the version.")] = False,
    allow_code: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE:NAME",
            help="Code of your own that a configuration may name. May be repeated.",
        ),
    ] = None,
) -> None:
    registry.allow(allow_code or ())
    if version:
        if complaint := installation.complaint():
            raise InputError(complaint)
        typer.echo(fedsim.__version__)
        raise typer.Exit()


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit; every error is one line on standard error.

    With FEDSIM_TRACEBACK in the environment, an unexpected error prints its traceback.
    """
    try:
        status = app(args=arguments, standalone_mode=False)
    except InputError as error:
        _exit(2, str(error))
    except InterruptedRunError as error:
        _exit(INTERRUPTED, str(error))
    except click.exceptions.NoArgsIsHelpError:
        sys.exit(2)  # the help is on the screen already
    except click.exceptions.NoSuchOption as error:
        early = "--allow-code belongs before the command: fedsim --allow-code MODULE:NAME COMMAND …"
        _exit(2, early if error.option_name == "--allow-code" else error.format_message())
    except click.exceptions.ClickException as error:
        _exit(2, error.format_message())
    except OSError as error:
        if "FEDSIM_TRACEBACK" in os.environ or error.errno not in NO_ROOM:
            _unexpected(error)
        _exit(
            2,
            "a disk that this command writes to is full; make room, and run the same command again",
        )
    except Exception as error:
        _unexpected(error)
    if status == INTERRUPTED:  # typer caught a Ctrl-C
        _exit(INTERRUPTED, "interrupted")
    sys.exit(status if isinstance(status, int) else 0)


def _unexpected(error: Exception) -> NoReturn:
    """Exit with one line about an error, or raise it if FEDSIM_TRACEBACK is set."""
    if "FEDSIM_TRACEBACK" in os.environ:
        raise error
    expected = isinstance(error, RuntimeError | FloatingPointError)
    _exit(1, str(error) if expected else f"{type(error).__name__}: {error}")


LONGEST_MESSAGE = 2000
"""Most characters of a message. A damaged file may hold a name or a value of any length."""


def _exit(status: int, message: str) -> NoReturn:
    one_line = " ".join(without_password(message)[:LONGEST_MESSAGE].split())
    print(f"fedsim: {shown(one_line)}", file=sys.stderr)
    sys.exit(status)
