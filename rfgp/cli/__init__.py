"""The command line. Exit codes: 0 done, 1 a named error, 2 a wrong call, 130 interrupted."""

from rfgp.cli.interrupts import heeded


def main() -> None:
    """Run the command line; what goes wrong ends it with one line, never a traceback."""
    with heeded():
        from rfgp.cli.program import run

        run()
