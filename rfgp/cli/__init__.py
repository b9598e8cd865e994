"""The command line. Exit codes: 0 for success, 1 for a named error, 2 for invalid arguments, 130 after an interrupt."""

from rfgp.cli.interrupts import heeded
from rfgp.errors import MissingDependencyError, requires_extra


def main() -> None:
    """Run the command line. Errors end it with one line, without a traceback.

    Raises:
        SystemExit: If the command has ended with an error.
    """
    with heeded():
        try:
            with requires_extra("cli"):
                from rfgp.cli.program import run
        except MissingDependencyError as error:
            raise SystemExit(f"Error: {error}") from None
        run()
