"""The `fedsim` command. Exit status: 0 done, 1 failed, 2 bad input, 130 interrupted."""

import sys
from typing import Annotated

import click
import typer

import fedsim
from fedsim.cli.accounting import account, calibrate
from fedsim.cli.report import report
from fedsim.cli.run import run
from fedsim.errors import InputError

app = typer.Typer(
    name="fedsim",
    help="How identifiable is one person in a federation's training data, to whom, and how far is "
    "that from what differential privacy allows?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (run, report, calibrate, account):
    app.command()(command)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(fedsim.__version__)
        raise typer.Exit()


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit; every error is one line on standard error."""
    try:
        status = app(args=arguments, standalone_mode=False)
    except InputError as error:
        _exit(2, str(error))
    except click.exceptions.Abort:
        _exit(130, "interrupted")
    except KeyboardInterrupt:
        _exit(130, "interrupted")
    except click.exceptions.ClickException as error:
        _exit(2, error.format_message())
    except Exception as error:
        _exit(1, f"{error or type(error).__name__}")
    sys.exit(status if isinstance(status, int) else 0)


def _exit(status: int, message: str) -> None:
    one_line = " ".join(message.split())
    print(f"fedsim: {one_line}", file=sys.stderr)
    sys.exit(status)
