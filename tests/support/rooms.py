"""Who imports whom in the two packages: circles, floors, and the diagram of CONTRIBUTING.md.

A file that imports `p.m` has an arrow to `p/m.py`; one that imports a package p, or a name from its page, has an arrow
to `p/__init__.py`. Imports within functions and for types count as much as those at the top of a file.

A room is a module or a folder; every folder has rooms of its own. An arrow between two files is one between the
rooms that hold them, on each level where these differ; a folder's page belongs to it, and is a room of it as well.

`python tests/support/rooms.py` draws the diagram in CONTRIBUTING.md again.
"""

import ast
import re
from collections import defaultdict
from pathlib import Path
from textwrap import wrap

import networkx as nx

ROOT = Path(__file__).parents[2]
PACKAGES = ("rfgp", "graphs")
BEGIN, END = "<!-- rooms: drawn by `make rooms` -->\n", "<!-- end of rooms -->\n"


def files_of(root=ROOT, packages=PACKAGES):
    """Return the files of packages by the dotted name under which each is imported."""
    found = {}
    for path in sorted(path for package in packages for path in (root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def arrows_between(files):
    """Return the graph of imports between files."""
    graph = nx.DiGraph()
    graph.add_nodes_from(files)
    for name, path in files.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        targets = {target for node in ast.walk(tree) for target in imported(node, files)}
        graph.add_edges_from((name, target) for target in targets - {name})
    return graph


def imported(node, files):
    """Yield the files that one statement imports; relative imports are an error, as no file of ours has any."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in files)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: a relative import"
        for alias in node.names:
            whole = f"{node.module}.{alias.name}"
            yield from (target for target in (whole if whole in files else node.module,) if target in files)


def circles(graph):
    """Return the groups that reach themselves, each sorted."""
    return sorted(sorted(group) for group in nx.strongly_connected_components(graph) if len(group) > 1)


def rooms_of(folder, arrows):
    """Return the graph of imports between the rooms of a folder ("" for the packages themselves)."""
    graph, prefix = nx.DiGraph(), f"{folder}." if folder else ""

    def room(name):
        return name.removeprefix(prefix).split(".")[0] if name != folder else "__init__"

    inside = {name for name in arrows if name == folder or name.startswith(prefix)}
    graph.add_nodes_from(map(room, inside))
    graph.add_edges_from((room(a), room(b)) for a, b in arrows.edges if {a, b} <= inside and room(a) != room(b))
    return graph


def circles_of_rooms(files, arrows):
    """Return the circles of rooms by the folder where they are."""
    folders = ["", *(name for name, path in files.items() if path.name == "__init__.py")]
    found = {folder: circles(rooms_of(folder, arrows)) for folder in folders}
    return {folder: groups for folder, groups in found.items() if groups}


def floors(graph):
    """Return the rooms of a graph without circles by floor: one above the highest room that they import."""
    floor = {}
    for name in reversed(list(nx.topological_sort(graph))):
        floor[name] = max((floor[below] + 1 for below in graph[name]), default=0)
    found = defaultdict(list)
    for name in sorted(floor):
        found[floor[name]].append(name)
    return dict(sorted(found.items(), reverse=True))


def sentence(path):
    """Return the first sentence of a module's docstring, without its full stop."""
    text = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n\n")[0].replace("\n", " ")
    return re.split(r"(?<!App)\.(?:\s|$)", text, maxsplit=1)[0]


def drawn(package, files, arrows):
    """Return the rows of one package: floor, room, the rooms it stands on, and what it is."""
    graph = rooms_of(package, arrows)
    graph.remove_node("__init__")
    assert not circles(graph), f"there are no floors in a circle: {circles(graph)}"
    below = nx.transitive_reduction(graph)
    others = {name.split(".")[1] for name, to in arrows.edges if leaves(package, name, to)}
    rows = []
    for floor, names in floors(graph).items():
        for place, name in enumerate(names):
            on = ", ".join(sorted(below[name])) + (" + graphs" if name in others else "")
            rows += row("" if place else str(floor), name, on, sentence(files[f"{package}.{name}"]))
    return [package, *rows]


def leaves(package, name, to):
    return name.startswith(f"{package}.") and to.split(".")[0] != package


def row(floor, name, on, text):
    """Return the lines of one room; long cells go on below."""
    cells = wrap(on, 30) or [""], wrap(text, 65)
    lines = []
    for i in range(max(map(len, cells))):
        left = f"{floor:>4}  {name:<15}" if i == 0 else " " * 21
        lines.append(left + "".join(f"{c[i] if i < len(c) else '':<{w}}" for c, w in zip(cells, (32, 0), strict=True)))
    return [line.rstrip() for line in lines]


def diagram():
    """Return the diagram of the rooms, as it stands between the two marks of CONTRIBUTING.md."""
    files = files_of()
    arrows = arrows_between(files)
    head = row("floor", "room", "stands on", "what it is")
    blocks = ["\n".join(drawn(package, files, arrows)) for package in PACKAGES]
    return BEGIN + "```\n" + "\n\n".join(["\n".join(head), *blocks]) + "\n```\n" + END


def redrawn(text):
    """Return a text with the diagram of now between its two marks."""
    before, rest = text.split(BEGIN)
    return before + diagram() + rest.split(END)[1]


if __name__ == "__main__":
    page = ROOT / "CONTRIBUTING.md"
    page.write_text(redrawn(page.read_text(encoding="utf-8")), encoding="utf-8")
