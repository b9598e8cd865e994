"""Mutants: errors in the syntax tree of a file, or an exchange of one text, which a module is imported with."""

import ast
import copy
import gc
import importlib.abc
import importlib.util
import inspect
import json
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from tests.mutants.mistakes import lines_of, places, variants

ROOT = Path(__file__).parents[2]
PACKAGES = ("rfgp", "graphs")
PLANTED = Path(__file__).with_name("planted.json")
"""Errors that somebody thought of: [file, right, wrong]."""


class Mutant(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An error in a file, and the import of the module with it.

    Args:
        path: The file, relative to the root.
        lines: The lines that a test must reach.
        words: The change in words.
        loop: The name of the compiled function with the error, or "".
    """

    def __init__(self, path: str, lines: range, words: str, loop: str = "") -> None:
        self.path, self.lines, self.words, self.loop = path, lines, words, loop
        self.name = ".".join(Path(path).with_suffix("").parts).removesuffix(".__init__")

    def __str__(self) -> str:
        return f"{self.path}:{self.lines.start}: {self.words}"

    def code(self) -> Any:
        """Return the code of the module with the error."""
        raise NotImplementedError

    @property
    def functions(self) -> dict[tuple[str, int], CodeType] | None:
        """The codes of functions with the error, by name and line without it; None if what an import runs differs."""
        if self.loop:
            return None
        found = dict[tuple[str, int], CodeType]()
        text = (ROOT / self.path).read_text(encoding="utf-8")
        right = compile(text, str(ROOT / self.path), "exec", dont_inherit=True)
        return found if _differences(right, self.code(), found) else None

    def exchange(self) -> None:
        """Put the error into the functions of the imported module."""
        wrong = self.functions or {}
        for function in gc.get_objects():
            if type(function) is FunctionType and function.__code__.co_filename == str(ROOT / self.path):
                code = function.__code__
                function.__code__ = wrong.get((code.co_qualname, code.co_firstlineno), code)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec of the module, or None if another one is imported."""
        file = ROOT / self.path
        inside = [str(file.parent)] if file.stem == "__init__" else None
        found = importlib.util.spec_from_file_location(name, file, loader=self, submodule_search_locations=inside)
        return found if name == self.name else None

    def exec_module(self, module: Any) -> None:
        """Import the module with the error."""
        exec(self.code(), module.__dict__)


def _differences(right: CodeType, wrong: CodeType, found: dict[tuple[str, int], CodeType]) -> bool:
    """Collect the functions that differ, and return whether all else, that an import runs, is equal."""
    inner = [[one for one in code.co_consts if isinstance(one, CodeType)] for code in (right, wrong)]
    if right.co_flags & inspect.CO_OPTIMIZED:  # a function
        if right != wrong:
            found[right.co_qualname, right.co_firstlineno] = wrong
        if len(inner[0]) != len(inner[1]):
            return True
    elif _run(right) != _run(wrong) or len(inner[0]) != len(inner[1]):
        return False
    return all(_differences(*pair, found) for pair in zip(*inner, strict=True))


def _run(code: CodeType) -> tuple[Any, ...]:
    values = [repr(one) for one in code.co_consts if not isinstance(one, CodeType)]
    return code.co_code, code.co_names, values


class TreeMutant(Mutant):
    """One node of a tree exchanged for another."""

    def __init__(self, path: str, tree: ast.Module, statement: ast.stmt, old: Any, new: Any, loop: str) -> None:
        was, now = (" ".join(ast.unparse(node).split())[:90] for node in (old, new))
        super().__init__(path, lines_of(statement), f"{was}  ->  {now}", loop)
        self.tree, self.old, self.new = tree, old, new

    def code(self) -> Any:
        """Return the code of the module with the error."""
        copies = dict[int, Any]()  # other mutants share the tree
        tree = copy.deepcopy(self.tree, copies)
        tree = ast.fix_missing_locations(_Exchange(copies[id(self.old)], self.new).visit(tree))
        return compile(tree, str(ROOT / self.path), "exec", dont_inherit=True)


class TextMutant(Mutant):
    """A text exchanged for another, at its first place."""

    def __init__(self, path: str, right: str, wrong: str) -> None:
        self.source, self.right, self.wrong = (ROOT / path).read_text(encoding="utf-8"), right, wrong
        first = self.source[: max(self.source.find(right), 0)].count("\n") + 1
        lines = range(first, first + right.count("\n") + 1)
        loops = [one.name for one in loops_in(ast.parse(self.source)) if one.lineno <= first <= one.end_lineno]
        super().__init__(path, lines, f"{right}  ->  {wrong}"[:190], "".join(loops[:1]))

    @property
    def is_possible(self) -> bool:
        """Whether the file has the text."""
        return self.right in self.source

    def code(self) -> Any:
        """Return the code of the module with the error."""
        return compile(self.source.replace(self.right, self.wrong, 1), str(ROOT / self.path), "exec", dont_inherit=True)


class Unchanged(Mutant):
    """The file of a mutant without its error, as a control: whatever fails now fails without it."""

    def __init__(self, mutant: Mutant) -> None:
        super().__init__(mutant.path, mutant.lines, f"unchanged ({mutant.words})", mutant.loop)

    def code(self) -> Any:
        """Return the code of the module."""
        text = (ROOT / self.path).read_text(encoding="utf-8")
        return compile(text, str(ROOT / self.path), "exec", dont_inherit=True)


class _Exchange(ast.NodeTransformer):
    def __init__(self, old: Any, new: Any) -> None:
        self.old, self.new = old, new

    def visit(self, node: Any) -> Any:
        return self.new if node is self.old else self.generic_visit(node)


def loops_in(tree: ast.Module) -> list[ast.FunctionDef]:
    """Return the compiled functions of a file."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(one) for one in node.decorator_list)
    ]


def mutants_of(path: str) -> Iterator[TreeMutant]:
    """Yield all mutants of a file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    loops = {id(node): loop.name for loop in loops_in(tree) for node in ast.walk(loop)}
    for statement, old in places(tree):
        for new in variants(old):
            yield TreeMutant(path, tree, statement, old, new, loops.get(id(old), ""))


def files() -> list[str]:
    """Return the files of the packages, relative to the root."""
    return sorted(file.relative_to(ROOT).as_posix() for one in PACKAGES for file in (ROOT / one).rglob("*.py"))


def room_of(path: str) -> str:
    """Return the folder of a file: its package and the first folder in it."""
    parts = Path(path).parts
    return "/".join(parts[:2]) if len(parts) > 2 else f"{parts[0]}/*.py"


def drawn(count: int, least: int, loops: int, seed: int) -> list[Mutant]:
    """Return mutants that are drawn in proportion to the lines of each folder.

    Args:
        count: About how many.
        least: The least number of a folder.
        loops: The least number in compiled functions.
        seed: The seed.
    """
    rng, by_room, lines, chosen = random.Random(seed), defaultdict(list), defaultdict[str, int](int), list[Mutant]()
    for path in files():
        mutants = list(mutants_of(path))
        by_room[room_of(path)] += mutants
        lines[room_of(path)] += len({number for mutant in mutants for number in mutant.lines})
    total = sum(lines.values())
    for room, mutants in sorted(by_room.items()):
        size = max(least, round(count * lines[room] / total))
        chosen += rng.sample(mutants, min(size, len(mutants)))
    found = [mutant for mutant in chosen if mutant.loop]
    known = set(map(id, chosen))
    others = [m for mutants in by_room.values() for m in mutants if m.loop and id(m) not in known]
    return chosen + rng.sample(others, max(0, loops - len(found)))


def planted() -> list[Mutant]:
    """Return the errors that somebody thought of, as far as the code has their text."""
    mutants = [TextMutant(*entry) for entry in json.loads(PLANTED.read_text(encoding="utf-8"))]
    return [mutant for mutant in mutants if mutant.is_possible]


class Callers:
    """Where compiled functions are called, because coverage does not see their lines."""

    def __init__(self) -> None:
        self.places: dict[str, list[tuple[str, int, str]]] = defaultdict(list)
        for path in files():
            tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
            inside = {id(node): loop.name for loop in loops_in(tree) for node in ast.walk(loop)}
            for node in ast.walk(tree):
                name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
                if name:
                    self.places[name].append((path, node.lineno, inside.get(id(node), "")))

    def of(self, loop: str) -> tuple[dict[str, set[int]], set[str]]:
        """Return the lines that call a compiled function, also through others, and the files of those others."""
        lines, modules, seen, todo = defaultdict[str, set[int]](set), set[str](), {loop}, [loop]
        while todo:
            for path, line, caller in self.places[todo.pop()]:
                lines[path].add(line)
                if caller:
                    modules.add(path)
                if caller and caller not in seen:
                    seen.add(caller)
                    todo.append(caller)
        return lines, modules
