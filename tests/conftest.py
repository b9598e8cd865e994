"""Counts the statistical checks of a run: their false-alarm rates add up."""

import checks
import pytest


@pytest.fixture(autouse=True, scope="session")
def own_cache_folder(tmp_path_factory):
    """Keep what the tests solve and download out of the user's cache folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RFGP_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def pytest_sessionfinish(session):
    if checks.calls * checks.ALARM > 1e-6:
        session.exitstatus = 1
        print(f"\n{checks.calls} statistical checks exceed the stated false-alarm rate of 1e-6 a run.")
