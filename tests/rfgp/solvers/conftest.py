"""Fixtures of the tests of solvers."""

import pytest


@pytest.fixture(autouse=True)
def _precise(monkeypatch):
    """Solve for variances to more digits than by default, for comparisons with dense algebra."""
    monkeypatch.setattr("rfgp.solvers.iterative.posterior.PATH_TOLERANCE", 1e-11)
