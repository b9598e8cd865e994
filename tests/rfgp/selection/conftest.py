"""Selections without lattices of frequencies, which would end those of tables with few columns at once."""

import pytest

from rfgp.selection import search_space


@pytest.fixture(autouse=True)
def without_lattices(monkeypatch):
    """Leave out candidates on lattices; `tests/rfgp/fitting/test_lattices.py` has selections with them."""
    monkeypatch.setattr(search_space, "MOST_COLUMNS", 0)
