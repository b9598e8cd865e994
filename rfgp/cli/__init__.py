"""The command line. Exit codes: 0 done, 1 a named error, 2 a wrong call, 130 interrupted."""

from rfgp.cli.interrupts import heeded
from rfgp.errors import MissingDependencyError, requires_extra


def main() -> None:
    """Run the command line; what goes wrong ends it with one line, never a traceback."""
    with heeded():
        try:
            with requires_extra("cli"):
                from rfgp.cli.program import run
        except MissingDependencyError as error:
            raise SystemExit(f"Error: {error}") from None
        run()
