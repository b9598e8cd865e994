"""The public names of the packages, read from their sources, and the names that the reference lists."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = {
    "approximations": "rfgp.approximations",
    "attention": "rfgp.attention rfgp.sampling rfgp.features.softmax",
    "botorch": "rfgp.botorch",
    "compare": "rfgp.compare rfgp.plotting rfgp.report",
    "couplings": "rfgp.couplings rfgp.spectra",
    "dask": "rfgp.dask",
    "datasets": "rfgp.datasets",
    "errors": "rfgp.errors graphs.errors",
    "features": "rfgp.features",
    "fields": "rfgp.fields",
    "gpytorch": "rfgp.gpytorch",
    "graphs": "graphs graphs.kernels",
    "kernels": "rfgp.kernels rfgp.parameters rfgp.priors rfgp.lengthscales",
    "learn": "rfgp.learn",
    "likelihoods": "rfgp.likelihoods",
    "metrics": "rfgp.metrics",
    "models": "rfgp rfgp.hyperparameters",
    "sklearn": "rfgp.sklearn",
    "tables": "rfgp.tables",
    "testing": "rfgp.testing",
    "theory": "rfgp.theory",
}
"""The modules whose names stand on each page of docs/reference."""

INTERNAL = {
    "rfgp.errors": {"called", "arguments", "requires_extra"},
    "rfgp.parameters": {"ParameterSpace", "ParameterValues"},
    "graphs.errors": {"requires_extra", "warn"},
}
"""Names without an underscore that other modules of the packages use, and users do not."""


def source_of(module: str) -> Path:
    """Return the file of a module."""
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.If | ast.With):
            yield from _statements(node.body)
        else:
            yield node


@cache
def exports_of(module: str) -> dict[str, str]:
    """Return the names of a module (`from a import b as b`, classes, functions) with the module that each is from."""
    found = {}
    for node in _statements(ast.parse(source_of(module).read_text(encoding="utf-8")).body):
        if isinstance(node, ast.ImportFrom):
            found.update({each.name: node.module or "" for each in node.names if each.asname == each.name})
        elif isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            found[node.name] = module
    return found


def definition_of(module: str, name: str) -> str:
    """Return the module that defines a name, following imports from room to room."""
    home = exports_of(module).get(name, module)
    return module if home == module else definition_of(home, name)


def public_names() -> dict[str, str]:
    """Return the public names, each once under its shortest path, with the modules that define them."""
    modules = sorted({name for names in ROOMS.values() for name in names.split()}, key=lambda name: name.count("."))
    found: dict[tuple[str, str], str] = {}
    for module in modules:
        for name, home in exports_of(module).items():
            if name not in INTERNAL.get(module, ()) and not source_of(f"{home}.{name}").exists():
                found.setdefault((definition_of(module, name), name), f"{module}.{name}")
    return {path: home for (home, _), path in found.items()}


def listed_names(text: str) -> list[str]:
    """Return the names of the autosummaries of a page."""
    return re.findall(r"^   ((?:rfgp|graphs)[\w.]*\.\w+)$", text, re.MULTILINE)
