"""Names of ours that messages recommend exist."""

import ast
import re
from pathlib import Path

import pytest

import graphs
import rfgp

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"(?<![\w./-])(rfgp|graphs)((?:\.[A-Za-z_]\w*)+)")
FILES = [path for folder in ("rfgp", "graphs") for path in sorted((ROOT / folder).rglob("*.py"))]


def texts(tree):
    """Return the texts of a module that are no docstrings, those of f-strings included."""
    places = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    prose = {id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, places) and _has_text(node)}
    prose |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in prose)
    return [node.value for node in constants if isinstance(node.value, str)]


def _has_text(node):
    return bool(node.body) and isinstance(node.body[0], ast.Expr)


def found(name, rest):
    """Return whether a dotted name leads to something."""
    thing, path = {"rfgp": rfgp, "graphs": graphs}[name], ROOT / name / rest.strip(".").replace(".", "/")
    if path.is_dir() or path.with_suffix(".py").is_file():
        return True
    for part in rest.strip(".").split("."):
        if not hasattr(thing, part):
            return False
        thing = getattr(thing, part)
    return True


@pytest.mark.parametrize("folder", ["rfgp", "graphs"])
def test_names_in_messages_lead_somewhere(folder):
    named = {
        (name + rest, path.relative_to(ROOT).as_posix())
        for path in FILES
        if path.is_relative_to(ROOT / folder)
        for text in texts(ast.parse(path.read_text("utf-8")))
        for name, rest in NAME.findall(text)
        if not found(name, rest)
    }
    assert named == set()
