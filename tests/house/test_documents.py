"""What a reader runs: the README's code and the examples."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.splitlines()[0])
def test_readme_code_runs(block, capsys):
    names = {}
    exec(compile(block, "README.md", "exec"), names)
    assert {"gp", "kernel", "k_hat"} & set(names)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(path, capsys):
    runpy.run_path(str(path), run_name="__main__")
    assert "KL" in capsys.readouterr().out


def test_nothing_names_a_machine():
    for path in ROOT.rglob("*"):
        if path.suffix in (".py", ".md", ".toml", ".txt", ".cff", ".yaml") and ".venv" not in str(path):
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"/(work|root|home/\w+)/\w", text), path
            assert "index-url" not in text or path.name == Path(__file__).name, path
