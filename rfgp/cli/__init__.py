"""The command line. Exit codes: 0 done, 1 a named error, 2 a wrong call, 130 interrupted."""

import os
import sys
import warnings
from typing import Annotated

import typer

from rfgp.cli import compare, data, fields, tables
from rfgp.cli.common import console, fail, show_warning
from rfgp.errors import RfgpError

app = typer.Typer(no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False, rich_markup_mode=None)


def main() -> None:
    """Run the command line; our own errors end it with one line and exit code 1, never a traceback."""
    from graphs import GraphError

    warnings.showwarning = show_warning
    try:
        app()
    except (RfgpError, GraphError) as error:
        fail(str(error))
    except MemoryError:
        fail("There is not enough memory for this; ask for less (--size, --num-frequencies), or for a smaller graph.")
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        fail(f"{error.strerror or error}: {error.filename}")
    except KeyboardInterrupt:
        fail("Interrupted. Files are written whole or not at all.", code=130)


def _print_version(wanted: bool) -> None:
    if wanted:
        import rfgp

        console.print(f"rfgp {rfgp.__version__}", highlight=False)
        raise typer.Exit


_VERSION = typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")


@app.callback()
def _root(version: Annotated[bool, _VERSION] = False) -> None:
    """Gaussian processes with random features, always compared with the exact process."""


for _command in (compare.demo, tables.fit, tables.predict, fields.mesh, fields.traffic, compare.compare, data.datasets):
    app.command()(_command)
