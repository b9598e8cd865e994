"""Selections without lattices of frequencies, which are the only candidates for tables with few columns."""

import pytest

from rfgp.selection import candidates


@pytest.fixture(autouse=True)
def without_lattices(monkeypatch):
    """Leave out candidates on lattices; `tests/rfgp/fitting/test_lattices.py` has selections with them."""
    monkeypatch.setattr(candidates, "MAX_COLUMNS", 0)
