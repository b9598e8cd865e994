"""No circle of files or of rooms, and a picture of them that is drawn from the imports."""

import re

import pytest
import rooms


@pytest.fixture(scope="module")
def house():
    files = rooms.files_of()
    return files, rooms.arrows_between(files)


def test_no_circle_of_files(house):
    assert rooms.circles(house[1]) == []


def test_no_circle_of_rooms(house):
    assert rooms.circles_of_rooms(*house) == {}


def test_package_pages_are_above_all_rooms_but_the_command_line(house):
    """`rfgp` loads rooms by their names on first use, which no arrow shows; so nothing below may import it."""
    files, arrows = house
    assert {name for name in arrows.predecessors("rfgp") if not name.startswith("rfgp.cli")} == set()
    assert {name for name in arrows.predecessors("graphs") if name.startswith("graphs.")} == set()
    by_name = {name for name, path in files.items() if re.search("import_module|__import__", path.read_text("utf-8"))}
    assert by_name == {"rfgp"}


def test_the_picture_of_contributing_is_that_of_the_imports():
    text = (rooms.ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert rooms.redrawn(text) == text, "`make rooms` draws it again"


USUAL = {"p/__init__.py": "", "p/a.py": "", "p/b/__init__.py": "", "p/b/c.py": "", "p/b/d.py": ""}
"""A package with the rooms `p/a.py` and `p/b/`, the second with two of its own."""


def planted(folder, sources):
    for name, text in (USUAL | sources).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    files = rooms.files_of(folder, ["p"])
    return files, rooms.arrows_between(files)


WAYS = {
    "at the top": "import p.b.c",
    "by name": "from p.b import c",
    "a name of it": "from p.b.c import thing",
    "in a function": "def f():\n    from p.b.c import thing",
    "for types": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import p.b.c",
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_planted_a_circle_of_files(tmp_path, way):
    files, arrows = planted(tmp_path, {"p/a.py": way, "p/b/c.py": "from p.a import other"})
    assert rooms.circles(arrows) == [["p.a", "p.b.c"]]
    assert rooms.circles_of_rooms(files, arrows) == {"p": [["a", "b"]]}


def test_planted_a_circle_of_rooms_alone(tmp_path):
    files, arrows = planted(tmp_path, {"p/a.py": "import p.b.c", "p/b/d.py": "import p.a"})
    assert rooms.circles(arrows) == []
    assert rooms.circles_of_rooms(files, arrows) == {"p": [["a", "b"]]}


def test_planted_a_page_that_closes_a_circle(tmp_path):
    """A page is a file, and what it imports its room imports."""
    files, arrows = planted(tmp_path / "file", {"p/__init__.py": "from p.a import x", "p/a.py": "import p"})
    assert rooms.circles(arrows) == [["p", "p.a"]]
    files, arrows = planted(tmp_path / "room", {"p/b/__init__.py": "from p.a import x", "p/a.py": "import p.b.c"})
    assert rooms.circles(arrows) == []
    assert rooms.circles_of_rooms(files, arrows) == {"p": [["a", "b"]]}


def test_floors_are_longest_ways_down(tmp_path):
    sources = {
        "p/a.py": '"""The upper. More."""\nimport p.b.c',
        "p/b/__init__.py": '"""The lower."""',
        "p/e.py": "import p.a, p.b",
    }
    files, arrows = planted(tmp_path, sources)
    assert rooms.circles_of_rooms(files, arrows) == {}
    rows = [row.split() for row in rooms.drawn("p", files, arrows)]
    assert rows == [["p"], ["2", "e", "a"], ["1", "a", "b", "The", "upper"], ["0", "b", "The", "lower"]]
