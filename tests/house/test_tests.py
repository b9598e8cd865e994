"""Rules of the tests themselves."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
MAKERS = ("default_rng", "RandomState", "Generator", "manual_seed", "generator", "numpy_generator")
"""What returns a generator, by the last part of its name."""


def common_generators(text):
    """Return the names of a module's own generators: what a function draws from one depends on what ran before it."""
    made = [node for node in ast.parse(text).body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)]
    calls = {ast.unparse(target): ast.unparse(node.value.func) for node in made for target in node.targets}
    return [name for name, call in calls.items() if call.split(".")[-1] in MAKERS]


def test_each_test_draws_from_a_generator_of_its_own():
    assert [path for path in TESTS.rglob("*.py") if common_generators(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    "made", ["np.random.default_rng(0)", "random.generator(0)", "torch.Generator().manual_seed(0)"]
)
def test_planted_a_common_generator(made):
    assert common_generators(f"RNG = {made}\n\ndef test_a():\n    RNG.normal()") == ["RNG"]
    assert common_generators(f"X = {made}.normal()\n\ndef test_a():\n    rng = {made}") == []


def test_the_tests_of_a_package_are_where_its_rooms_are():
    """A folder of tests of a package is called like a room, at any depth."""
    for package in ("rfgp", "graphs"):
        for folder in {path.parent for path in (TESTS / package).rglob("test_*.py")}:
            room = TESTS.parent / folder.relative_to(TESTS)
            assert room.is_dir() or room.with_suffix(".py").exists(), folder
