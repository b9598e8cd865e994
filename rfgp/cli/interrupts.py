"""Ctrl-C ends a command with one line and exit code 130, without a traceback.

The interrupt is raised as an exception, so that partly written files are removed. Within an import, a callback or a
destructor Python could lose or print the exception. There the process ends at once, and nothing is written. After the
command is done, an interrupt changes nothing.
"""

import atexit
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

CODE = 130
MESSAGE = "Interrupted. Files are written whole or not at all."
_SECONDS_TO_TIDY = 1.0
_CLEAR = "\r\x1b[2K\x1b[?25h"  # the line of the bar goes, the cursor comes back


class Interrupts:
    """The handler of interrupts, with the time of the first.

    Examples:
        >>> Interrupts().first is None
        True
    """

    def __init__(self) -> None:
        self.first: float | None = None

    def take(self, number: int, frame: FrameType | None) -> None:
        """Raise a KeyboardInterrupt at the first interrupt, and end the process at a second.

        During an import the process ends at once.

        Args:
            number: The number of the signal.
            frame: The current frame.

        Raises:
            KeyboardInterrupt: If this is the first interrupt.
        """
        now = time.monotonic()
        if self.first is None and not _imports(frame):
            self.first = now
            raise KeyboardInterrupt
        if self.first is None or now - self.first > _SECONDS_TO_TIDY:
            leave()

    def unraisable(self, lost: Any) -> None:
        """End the process if a callback could not raise the interrupt.

        Args:
            lost: The argument of `sys.unraisablehook`.
        """
        if self.first is not None and issubclass(lost.exc_type, KeyboardInterrupt):
            leave()
        sys.__unraisablehook__(lost)


@contextmanager
def heeded() -> Iterator[None]:
    """Run a program as a context manager; an interrupt ends it with one line and exit code 130.

    Raises:
        SystemExit: If the program was interrupted.
    """
    interrupts = Interrupts()
    usual, hook = signal.getsignal(signal.SIGINT), sys.unraisablehook
    is_heeded = usual is signal.default_int_handler  # a caller may ignore interrupts, as `nohup` and `&` do
    if is_heeded:
        signal.signal(signal.SIGINT, interrupts.take)
        sys.unraisablehook = interrupts.unraisable
    try:
        yield
    except BaseException as error:
        code = CODE if isinstance(error, KeyboardInterrupt) else getattr(error, "code", None)  # typer exits with it
        if interrupts.first is None and code != CODE:
            raise
        _say()
        raise SystemExit(CODE) from None
    finally:
        if is_heeded:
            signal.signal(signal.SIGINT, usual)
            sys.unraisablehook = hook
            atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # all is written; else Python dies of it


def leave() -> NoReturn:
    """Print that the process was interrupted, and end it at once."""
    _say()
    os._exit(CODE)


def _say() -> None:
    begin = _CLEAR if os.isatty(2) else ""
    os.write(2, f"{begin}{MESSAGE}\n".encode())


def _imports(frame: FrameType | None) -> bool:
    """Return whether a module is being imported."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
