"""What tests of solvers share."""

import pytest


@pytest.fixture(autouse=True)
def _precise(monkeypatch):
    """Solve for variances to more digits than users get, for comparisons with dense algebra."""
    monkeypatch.setattr("rfgp.solvers.iterative.posterior.PATH_TOLERANCE", 1e-11)
