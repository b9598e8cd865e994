"""Links between pages: those of a built site, and those of the files that readers open in the repository."""

import importlib
import re
from pathlib import Path

import pytest
from site_links import broken_links

ROOT = Path(__file__).parents[2]
PAGE = (
    '<a href="other.html#here">x</a><a href="#top" id="top">x</a><img src="a%20b.png"><a href="https://a.org/#b">x</a>'
)


def write_site(folder):
    (folder / "sub").mkdir()
    (folder / "index.html").write_text(PAGE, encoding="utf-8")
    (folder / "other.html").write_text('<h1 id="here">x</h1><a href="sub/">x</a>', encoding="utf-8")
    (folder / "sub" / "index.html").write_text('<a href="../index.html">x</a>', encoding="utf-8")
    (folder / "a b.png").touch()


def test_site_without_a_fault_passes(tmp_path):
    write_site(tmp_path)
    assert broken_links(tmp_path) == []


@pytest.mark.parametrize(
    "link",
    ['href="missing.html"', 'href="other.html#missing"', 'href="#missing"', 'src="sub/a.png"', 'href="../a.html"'],
)
def test_planted_broken_link_is_found(tmp_path, link):
    write_site(tmp_path)
    (tmp_path / "index.html").write_text(f"{PAGE}<a {link}>x</a>", encoding="utf-8")
    target = link.split('"')[1]
    assert broken_links(tmp_path) == [f"index.html: {target}"]


def missing_targets(text, folder):
    """Return the relative targets of the links of a Markdown text that do not exist in a folder."""
    targets = re.findall(r"\]\((?!\w+:)([^)#\s]+)[^)]*\)", text)
    return [target for target in targets if not (folder / target).exists()]


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"])
def test_links_of_the_repository_exist(name):
    assert missing_targets((ROOT / name).read_text(encoding="utf-8"), ROOT) == []


def test_planted_missing_target_is_found():
    assert missing_targets("[a](docs/missing.md#x) [b](https://a.org) [c](README.md)", ROOT) == ["docs/missing.md"]


def resolve(name):
    """Return the object that a dotted name means."""
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


@pytest.mark.parametrize("inventory", sorted((ROOT / "docs" / "inventories").glob("*.txt")), ids=lambda file: file.stem)
def test_names_of_other_projects_exist(inventory):
    pytest.importorskip(inventory.stem)
    first, *others = inventory.read_text(encoding="utf-8").splitlines()
    assert re.fullmatch(r"# https://\S+/", first)
    assert len(others) == len({resolve(line.split()[0]) and line for line in others})
