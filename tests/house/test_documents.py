"""Code that a reader runs: that of the README, of the pages and the examples."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXTRAS = ("botorch", "dask")


def blocks_of(path):
    return re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


PAGES = [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").rglob("*.md") if blocks_of(path))]


def test_each_howto_page_without_code_is_about_commands():
    silent = set((ROOT / "docs" / "howto").glob("*.md")) - set(PAGES)
    assert all(path.name.startswith("command-") for path in silent)


@pytest.mark.slow
@pytest.mark.pages
@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_page_code_runs(path, tmp_path, monkeypatch, capsys):
    """The blocks of a page are one program; it is skipped only where it names an extra that is not installed."""
    blocks = blocks_of(path)
    for extra in EXTRAS:
        if any(re.search(rf"^\s*(import|from)\s.*\b{extra}\b", block, re.MULTILINE) for block in blocks):
            pytest.importorskip(extra)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RFGP_DATA_DIR", str(ROOT / "data"))
    (tmp_path / "data").symlink_to(ROOT / "data")
    names = {"__name__": path.stem}
    for block in blocks:
        exec(compile(block, path.name, "exec"), names)
    assert capsys.readouterr().out


SAYS = {"decisions.py": "round 5: measured 6.", "hero.py": "% of the days in their 95 % intervals"}
"""What an example prints at least, if it is not a divergence. decisions.py finds the optimum of 6.17."""


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
@pytest.mark.slow
def test_examples_run(path, capsys):
    runpy.run_path(str(path), run_name="__main__")
    assert SAYS.get(path.name, "KL") in capsys.readouterr().out


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"])
def test_links_of_the_repository_lead_to_files(name):
    targets = re.findall(r"\]\((?!\w+:)([^)#\s]+)[^)]*\)", (ROOT / name).read_text(encoding="utf-8"))
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_nothing_names_a_machine():
    for path in ROOT.rglob("*"):
        if path.suffix in (".py", ".md", ".toml", ".txt", ".cff", ".yaml") and ".venv" not in str(path):
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"/(work|root|home/\w+)/\w", text), path
            assert "index-url" not in text or path.name == Path(__file__).name, path


def test_bibtex_entry_agrees_with_the_citation_file():
    record = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "citing.md").read_text(encoding="utf-8")
    for key in ("title", "version", "license"):
        value = re.search(rf'^{key}: "?([^"\n]*)', record, re.MULTILINE)[1]
        assert re.search(rf"^  {key}\s*= \{{{re.escape(value)}\}},?$", page, re.MULTILINE), key
