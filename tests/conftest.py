"""Counts the statistical checks of a run, over all workers: their false-alarm rates add up."""

from contextlib import ExitStack
from zlib import crc32

import checks
import pytest

import rfgp.testing


@pytest.fixture
def limits():
    """Change the limits of `rfgp.testing.limits` until the test ends."""
    with ExitStack() as stack:
        yield lambda **changes: stack.enter_context(rfgp.testing.limits(**changes))


def pytest_addoption(parser):
    parser.addoption("--part", help="run one of n parts of the tests, as 1/2; cases of one test are in the same part")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Leave the tests of other parts out."""
    if part := config.getoption("--part", None):
        number, count = map(int, part.split("/"))
        own = [crc32(item.nodeid.partition("[")[0].encode()) % count == number - 1 for item in items]
        config.hook.pytest_deselected(items=[item for item, is_own in zip(items, own, strict=True) if not is_own])
        items[:] = [item for item, is_own in zip(items, own, strict=True) if is_own]


_of_workers = []


def pytest_testnodedown(node, error):
    """Take over what a worker of pytest-xdist counted."""
    _of_workers.append(getattr(node, "workeroutput", {}).get("checks", 0))


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["checks"] = checks.calls
        return
    calls = checks.calls + sum(_of_workers)
    print(f"\n{calls} statistical checks: a false-alarm rate of {calls * checks.ALARM:.1g}", end="")
    if calls * checks.ALARM > 1e-6:
        session.exitstatus = 1
        print(" exceeds the stated 1e-6 a run.")
