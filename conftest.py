"""What the tests and the examples of docstrings share."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def own_cache_folder(tmp_path_factory):
    """Keep what the tests solve and download out of the user's cache folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RFGP_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def pytest_configure(config):
    """Make warnings of the packages errors. Named in pyproject.toml, they would be imported before coverage begins."""
    for name in ("rfgp.RfgpWarning", "graphs.GraphWarning"):
        config.addinivalue_line("filterwarnings", f"error::{name}")
