"""The commands under one name, and the errors that end them."""

import os
import sys
import warnings
from typing import Annotated, Any

import typer

from rfgp.cli import compare, fields, forecast, predict, tables
from rfgp.cli.common import console, fail, show_warning
from rfgp.cli.options import command
from rfgp.cli.speech import learn_options
from rfgp.errors import RfgpError

app = typer.Typer(no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False, rich_markup_mode=None)


def run() -> None:
    """Run the command of `sys.argv`. Errors of rfgp end it with exit code 1."""
    warnings.showwarning = show_warning
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except MemoryError:
        fail("There is not enough memory. Use a smaller --approximation, --size or graph.")
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        _mute()
        sys.exit(1)
    except (RfgpError, OSError) as error:
        fail(_said(error))
    except Exception as error:
        from graphs import GraphError

        if not isinstance(error, GraphError):
            raise
        fail(str(error))


def _said(error: Exception) -> str:
    """Return the text of an error. For a system error it is the reason and the file."""
    if isinstance(error, RfgpError) or not isinstance(error, OSError):
        return str(error)
    if error.filename is None:
        _mute()
    return f"{error.filename or 'The standard output'}: {error.strerror or error}."


def _mute() -> None:
    """Discard the remaining text for a standard output that cannot be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_version(wanted: bool) -> None:
    if wanted:
        import rfgp

        console.print(f"rfgp {rfgp.__version__}", highlight=False)
        raise typer.Exit


_VERSION = typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")


@app.callback()
def _root(context: typer.Context, version: Annotated[bool, _VERSION] = False) -> None:
    """Gaussian processes with random features, always compared with the exact process."""
    group: Any = context.command
    learn_options(group.commands[context.invoked_subcommand])


for _command in (
    compare.demo,
    tables.Fit,
    predict.Predict,
    forecast.Forecast,
    fields.Mesh,
    fields.Traffic,
    compare.Compare,
    compare.datasets,
):
    app.command()(command(_command))
