"""The benchmarks are run by hand: here only whether each still starts, and says how."""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(path for path in ROOT.glob("benchmarks/*/**/*.py") if "__main__" in path.read_text(encoding="utf-8"))
RIVALS = ("grf_gp", "performer_pytorch", "xGPR")
"""Of other packages' environments: nothing here may need them to start."""


@pytest.fixture(autouse=True)
def rivals_absent(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    for name in RIVALS:
        monkeypatch.setitem(importlib.sys.modules, name, None)


def name_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


@pytest.mark.parametrize("path", SCRIPTS, ids=name_of)
def test_a_script_starts_and_its_docstring_tells_its_command(path):
    for extra in ("botorch", "dask", "distributed"):
        if re.search(rf"^(import|from) {extra}\b", path.read_text(encoding="utf-8"), re.MULTILINE):
            pytest.importorskip(extra)
    module = importlib.import_module(name_of(path))
    assert callable(module.main)
    command = f"    python -m {name_of(path).removesuffix('.__main__')}"
    assert command in re.sub(r"^ +\w+=\d+ python", "    python", module.__doc__, flags=re.M)


def test_a_tool_starts_and_its_docstring_tells_its_command():
    module = importlib.import_module("bundle")
    assert callable(module.main)
    assert "    python tests/support/bundle.py" in module.__doc__


@pytest.mark.slow
def test_nothing_is_loose():
    top = {path.name for path in (ROOT / "benchmarks").glob("*.py")}
    assert top <= {"__init__.py", "page.py", "protocol.py", "record.py"}
    assert {path.parent.name for path in ROOT.glob("benchmarks/*/*.py")} == {"papers", "races", "rivals"}
    for path in ROOT.glob("benchmarks/**/*.py"):
        names = {ast.unparse(node) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        assert "sys.path" not in names, path


@pytest.mark.slow
def test_the_benchmarks_that_texts_name_exist():
    texts = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("benchmarks/**/*.py"),
        *ROOT.glob("rfgp/**/*.py"),
    ]
    named = {
        name
        for path in texts
        for name in re.findall(r"\b(?:benchmarks|tests)/[\w/]+\.py", path.read_text(encoding="utf-8"))
    }
    assert [name for name in named if not (ROOT / name).exists()] == []
