"""Which underscore members a file uses that are not its own."""

import ast
import re

NAMED_TUPLES = {"_replace", "_asdict", "_fields"}
"""Public by their documentation, in spite of their names."""
BY_NAME = {"getattr", "setattr", "hasattr", "delattr", "__setattr__", "object", "patch", "attrgetter", "methodcaller"}
"""Functions and methods (of objects, of pytest, of mock) that reach a member by a string."""


def foreign(text):
    """Return (name, line) of every underscore member in a source text that no class of the text defines.

    An attribute of anything but a class's `self`, `cls` and `super()`; a name from another module; a string by which a
    member is reached (`getattr(x, "_y")`, `vars(x)["_y"]`).
    """
    tree = ast.parse(text)
    allowed = members(tree) | NAMED_TUPLES
    within = {id(node) for cls in ast.walk(tree) if isinstance(cls, ast.ClassDef) for node in ast.walk(cls)}
    uses = [(name, node.lineno) for node in ast.walk(tree) for name in used(node, id(node) in within)]
    return sorted({(name, line) for name, line in uses if private(name) and name not in allowed}, key=lambda u: u[1])


def private(name):
    return name.startswith("_") and not name.startswith("__") and name != "_"


def members(tree):
    """Return the names of what the classes of a file define: methods, fields, and attributes set on `self`."""
    own = set()
    for cls in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for node in cls.body:
            own |= {node.name} if isinstance(node, ast.FunctionDef | ast.ClassDef) else assigned(node)
        for node in ast.walk(cls):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value):
                own.add(node.attr)
    return own


def assigned(node):
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {name.id for target in targets if target for name in ast.walk(target) if isinstance(name, ast.Name)}


def is_self(node):
    return ast.unparse(node) in ("self", "cls", "super()")


def used(node, within):
    """Yield the names of members, of any kind, that one node of a tree reaches; `self` counts only within a class."""
    if isinstance(node, ast.Attribute) and not (within and is_self(node.value)):
        yield node.attr
    elif isinstance(node, ast.ImportFrom):
        yield from (*(node.module or "").split("."), *(alias.name for alias in node.names))
    elif isinstance(node, ast.Import):
        for alias in node.names:
            yield from alias.name.split(".")
    elif (
        isinstance(node, ast.Call) and called(node) in BY_NAME and not (within and node.args and is_self(node.args[0]))
    ):
        for text in strings(node.args):
            yield from text.split(".")
    elif isinstance(node, ast.Subscript) and re.match(r"vars\(|.*\.__dict__$", ast.unparse(node.value)):
        yield from strings([node.slice])


def called(node):
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def strings(nodes):
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
