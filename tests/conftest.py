"""Counts the statistical checks of a run, over all workers: their false-alarm rates add up."""

from collections import Counter, defaultdict
from contextlib import ExitStack
from pathlib import Path

import checks
import pytest

import rfgp.testing


@pytest.fixture(autouse=True, scope="session")
def own_cache_folder(tmp_path_factory):
    """Keep what the tests solve and download out of the user's cache folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RFGP_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def limits():
    """Change the limits of `rfgp.testing.limits` until the test ends."""
    with ExitStack() as stack:
        yield lambda **changes: stack.enter_context(rfgp.testing.limits(**changes))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Leave to the fast tests one case in so many of a test that is marked `thinned`, and the first of each value.

    The others are slow, of which `thinned(n, slow=k)` runs one in k. Let k have no factor of the period of a value.
    """
    cases, others, values, left_out = Counter(), Counter(), defaultdict(set), set()
    for item in items:
        if marker := item.get_closest_marker("thinned"):
            test = item.nodeid.partition("[")[0]
            own = {(name, repr(value)) for name, value in item.callspec.params.items()}
            if cases[test] % marker.args[0] and own <= values[test]:
                item.add_marker(pytest.mark.slow)
                left_out |= {item} if others[test] % marker.kwargs.get("slow", 1) else set()
                others[test] += 1
            cases[test] += 1
            values[test] |= own
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


SLOW = Path(__file__).with_name("slow.txt")
"""The cases and whole tests that took longer than about 0.25 s on the reference machine. Only `make test-all` runs
them."""


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item):
    """Mark a test that the list of slow tests names."""
    if listed := _slow & {item.nodeid, item.nodeid.partition("[")[0]}:
        _found.update(listed)
        item.add_marker(pytest.mark.slow)


def pytest_collection_finish(session):
    """Check that the list of slow tests names tests, if all were collected."""
    if session.config.args == session.config.getini("testpaths") and (unknown := _slow - _found):
        raise pytest.UsageError(f"{SLOW.name} names tests that do not exist, such as {min(unknown)}.")


_slow, _found = set(SLOW.read_text(encoding="utf-8").splitlines()), set()
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
