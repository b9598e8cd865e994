"""What may come of any call: a named error or a right answer, within 10 seconds and 1 GB."""

import resource
import signal
import threading
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, settings

import graphs
import rfgp

SECONDS, BYTES = 10, 2**30
NAMED = (rfgp.RfgpError, graphs.GraphError)
PYTHONS_OWN = ("missing", "unexpected keyword argument", "multiple values for argument", "positional argument")
"""Words of Python's own TypeError for a call that does not fit a signature. No other foreign error may pass."""
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def options(examples, **more):
    """Return settings of a search that tries the same examples each time."""
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        **more,
    )


def outcome(call):
    """Return what a call returns, or the named error that it raises. Other errors are raised."""
    try:
        return call()
    except NAMED as error:
        if not str(error).strip():
            raise AssertionError("an error without a message") from error
        return error
    except TypeError as error:
        if any(words in str(error) for words in PYTHONS_OWN) and error.__traceback__.tb_next.tb_next is None:
            return error
        raise


def is_error(result):
    """Return whether an outcome is an error."""
    return isinstance(result, Exception)


def assert_finite(result, what="an answer"):
    """Check that an outcome is an error or finite numbers."""
    if not is_error(result):
        values = np.asarray(result.detach() if hasattr(result, "detach") else result, dtype=float)
        assert np.isfinite(values).all(), f"{what} is not finite"


@contextmanager
def bounded():
    """Run a block for at most 10 s, and with at most 1 GB more memory than before.

    The peak of resident memory is measured on Linux. An address space of three times as much is never exceeded.
    """
    before = peak(reset=True)
    with alarm(), walls(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    used = peak() - before
    assert used < BYTES, f"it used {used:,} bytes"


@contextmanager
def alarm():
    """Fail in the main thread after 10 s of the processor, which a busy machine does not change."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(*_):
        raise AssertionError(f"it took more than {SECONDS} s")

    old = signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)


@contextmanager
def walls():
    """Limit the address space to 3 GB more than now."""
    old = resource.getrlimit(resource.RLIMIT_AS)
    if STATUS.exists():
        resource.setrlimit(resource.RLIMIT_AS, (status("VmSize") + 3 * BYTES, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, old)


def peak(reset=False):
    """Return the peak of resident memory in bytes, or the present memory after a reset."""
    if not STATUS.exists():
        return 0
    if reset:
        with suppress(OSError):
            CLEAR.write_text("5")
    return status("VmRSS" if reset else "VmHWM")


def status(name):
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name + ":"))
    return int(line.split()[1]) * 1024
