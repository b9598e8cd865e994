"""What may come of any call: a named error or a right answer, within 10 seconds and 1 GB."""

import gc
import resource
import signal
import threading
import time
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path

import graphs
import rfgp

SECONDS, BYTES = 10.0, 2**30
NAMED = (rfgp.RfgpError, graphs.GraphError)
PYTHONS_OWN = (
    "missing 1 required",
    "missing 2 required",
    "unexpected keyword argument",
    "got multiple values for argument",
    "positional argument",
)
"""What Python itself says, as a TypeError, of a call that does not fit a signature: no other foreign error may pass."""

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class FoundError(AssertionError):
    """Something came of a call that may not."""


class Passed(BaseException):
    """The time is over; no handler of errors in between takes it for one of its own."""


def outcome(call):
    """Return what a call returns, or the named error that it raises.

    Raises:
        FoundError: it raises anything else.
    """
    try:
        return call()
    except NAMED as error:
        if not str(error).strip():
            raise FoundError(f"{type(error).__name__} without a message") from error
        return error
    except TypeError as error:
        if any(words in str(error) for words in PYTHONS_OWN) and error.__traceback__.tb_next.tb_next is None:
            return error
        raise FoundError(f"{type(error).__name__}: {error}") from error
    except FoundError:
        raise
    except Exception as error:
        raise FoundError(f"{type(error).__name__}: {str(error)[:300]}") from error


def is_error(result):
    """Return whether an outcome is an error."""
    return isinstance(result, Exception)


@contextmanager
def bounded(seconds=SECONDS, size=BYTES):
    """Run what is within for so long, and with so much memory more than there is now.

    The peak of resident memory is measured where Linux tells it; an address space of three times as much is the wall
    that nothing passes (allocators reserve more than they use).

    Raises:
        FoundError: one of the bounds was passed.
    """
    before, started = _peak(reset=True), time.monotonic()
    with _alarm(seconds), _walls(3 * size), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except Passed as error:
            raise FoundError(f"it took more than {seconds:g} s") from error
        except MemoryError as error:
            if isinstance(error, NAMED):
                raise
            raise FoundError(f"it wanted more than {3 * size:,} bytes") from error
    took, used = time.monotonic() - started, _peak() - before
    if took > seconds:
        raise FoundError(f"it took {took:.0f} s")
    if used > size:
        raise FoundError(f"it used {used:,} bytes")


@contextmanager
def _alarm(seconds):
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(*_):
        raise Passed

    old = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


@contextmanager
def _walls(size):
    if not _STATUS.exists():
        yield
        return
    gc.collect(0)
    old = resource.getrlimit(resource.RLIMIT_AS)
    now = _status("VmSize")
    resource.setrlimit(resource.RLIMIT_AS, (now + size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, old)


def _peak(reset=False):
    if not _STATUS.exists():
        return 0
    if reset:
        with suppress(OSError):
            _CLEAR.write_text("5")
    return _status("VmRSS" if reset else "VmHWM")


def _status(name):
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(name + ":"))
    return int(line.split()[1]) * 1024
