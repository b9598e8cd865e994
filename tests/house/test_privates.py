"""No file uses an underscore member that is another's: neither in the packages, nor in the tests, nor elsewhere."""

from pathlib import Path

import privates
import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("rfgp", "graphs", "tests", "benchmarks", "examples")

THEIRS = {
    ("rfgp/attention/module.py", "_C"): "torch tells only there whether a backward pass is running",
    ("rfgp/attention/module.py", "_current_graph_task_id"): "the same",
    ("rfgp/cli/interrupts.py", "_exit"): "Python's own name for an end at once",
    ("rfgp/sklearn/checks.py", "_validate_data"): "scikit-learn's own name before 1.6",
    ("tests/faults/kills.py", "_exit"): "os has no other name for the end of a forked child",
    ("tests/mutants/__main__.py", "_exit"): "likewise",
    ("tests/rfgp/attention/test_functional.py", "_python_dispatch"): "torch's only module for it",
    ("tests/rfgp/inference/test_distributions.py", "_python_dispatch"): "the same",
    ("tests/rfgp/sklearn/test_transform.py", "_gamma"): "scikit-learn tells only there what gamma='scale' came to",
    ("tests/rfgp/sklearn/test_transform.py", "_get_tags"): "scikit-learn's own name before 1.6",
}
"""Members of other packages, each with its reason."""


def uses():
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    found = {str(path.relative_to(ROOT)): privates.foreign(path.read_text(encoding="utf-8")) for path in paths}
    return {(file, name) for file, members in found.items() for name, _ in members}


def test_no_file_uses_a_member_that_is_private_to_another():
    assert uses() == THEIRS.keys()


PLANTED = {
    "an attribute": "model._state",
    "of what is called": "model.of(x)._state",
    "that is set": "model._state = 1",
    "a name of another module": "from rfgp.models.gp import _state",
    "a module": "from rfgp._state import fit",
    "a module's whole name": "import rfgp._state",
    "in a function": "def f(model):\n    import rfgp._state as s",
    "of a self that no class has": "def fit(self): return self._state\nModel.fit = fit",
    "a string": "getattr(model, '_state')",
    "a string, in a frozen object": "object.__setattr__(model, '_state', 1)",
    "a string of another's call": "monkeypatch.setattr(model, '_state', 1)",
    "a dotted string": "monkeypatch.setattr('rfgp.models.gp._state', 1)",
    "among its variables": "vars(model)['_state']",
    "in its dictionary": "model.__dict__['_state']",
    "of a function of this file": "def _state(): pass\nmodel._state",
}
FINE = {
    "its own": "class A:\n    def f(self): return self._state",
    "another of its own class": "class A:\n    _state: int\n    def f(self, other): return other._state",
    "set by its class": "class A:\n    def __init__(self): self._state = 1\ndef f(a): return a._state",
    "a named tuple's": "point._replace(x=1)._asdict()",
    "a special one": "model.__class__",
    "a name of its own": "_state = 1\nprint(_state)",
    "of itself by a string": "class A:\n    def f(self): return getattr(self, '_state')",
}


@pytest.mark.parametrize("text", PLANTED.values(), ids=PLANTED)
def test_planted_uses_are_found(text):
    assert [name for name, _ in privates.foreign(text)] == ["_state"]


@pytest.mark.parametrize("text", FINE.values(), ids=FINE)
def test_own_private_members_are_allowed(text):
    assert privates.foreign(text) == []
