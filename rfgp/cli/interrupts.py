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


@contextmanager
def heeded() -> Iterator[None]:
    """Run a program as a context manager; an interrupt ends it with one line and exit code 130.

    The first interrupt is an exception. A second one, or one during an import, ends the process at once, and so does
    one that a callback could not raise.

    Raises:
        SystemExit: If the program was interrupted.
    """
    first: float | None = None
    usual, hook = signal.getsignal(signal.SIGINT), sys.unraisablehook

    def take(number: int, frame: FrameType | None) -> None:
        nonlocal first
        now = time.monotonic()
        if first is None and not _imports(frame):
            first = now
            raise KeyboardInterrupt
        if first is None or now - first > _SECONDS_TO_TIDY:
            _leave()

    def unraisable(lost: Any) -> None:
        if first is not None and issubclass(lost.exc_type, KeyboardInterrupt):
            _leave()
        sys.__unraisablehook__(lost)

    is_heeded = usual is signal.default_int_handler  # a caller may ignore interrupts, as `nohup` and `&` do
    if is_heeded:
        signal.signal(signal.SIGINT, take)
        sys.unraisablehook = unraisable
    try:
        yield
    except BaseException as error:
        code = CODE if isinstance(error, KeyboardInterrupt) else getattr(error, "code", None)  # typer exits with it
        if first is None and code != CODE:
            raise
        _say()
        raise SystemExit(CODE) from None
    finally:
        if is_heeded:
            signal.signal(signal.SIGINT, usual)
            sys.unraisablehook = hook
            atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # all is written; else Python dies of it


def _leave() -> NoReturn:
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
