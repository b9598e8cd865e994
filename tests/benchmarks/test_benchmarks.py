"""The benchmarks are run by hand: here only whether each still starts, and says how."""

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


@pytest.mark.slow
def test_the_benchmarks_that_texts_name_exist():
    places = ("*.md", "docs/**/*.md", "benchmarks/**/*.py", "rfgp/**/*.py")
    texts = [path.read_text(encoding="utf-8") for place in places for path in ROOT.glob(place)]
    named = {name for text in texts for name in re.findall(r"\b(?:benchmarks|tests)/[\w/]+\.py", text)}
    assert [name for name in named if not (ROOT / name).exists()] == []
