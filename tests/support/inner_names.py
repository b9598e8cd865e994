"""The names that tests import from the packages although they are not public; `--write` records the present ones.

A test names public names, or one of the roles of a solver, a posterior, a field, a coupling and a likelihood. The few
other names of `inner-names.txt` are numeric kernels whose errors are hard to see from outside.
"""

import ast
import sys
from pathlib import Path

import public_names

TESTS = Path(__file__).parents[1]
RECORD = Path(__file__).with_name("inner-names.txt")


def imported(path):
    """Yield the full names that a file imports from the packages."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] in ("rfgp", "graphs"))


def inner():
    """Return the imported names that are neither public nor modules of public names."""
    public = public_names.recorded()
    modules = {name.rpartition(".")[0] for name in public} | {"rfgp", "graphs"}
    return {name for path in TESTS.rglob("*.py") for name in imported(path)} - public - modules


def recorded():
    """Return the names that tests may import."""
    return set(RECORD.read_text(encoding="utf-8").split())


if __name__ == "__main__":
    print(*sorted(inner()), sep="\n")
    if "--write" in sys.argv[1:]:
        RECORD.write_text("\n".join(sorted(inner())) + "\n", encoding="utf-8")
