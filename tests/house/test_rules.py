"""Rules of the packages and of the tests that ruff and import-linter do not know."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import inner_names
import pytest

import rfgp

ROOT = Path(__file__).parents[2]
PACKAGES = ("rfgp", "graphs")
HEAVY = ("ot", "trimesh", "pandas", "matplotlib", "sklearn", "gpytorch", "numba", "networkx", "typer", "rich")
HEAVY += ("botorch", "dask", "distributed", "pyarrow", "plotly", "pooch", "safetensors", "rdata")


@cache
def trees(*folders):
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


# --- imports -----------------------------------------------------------------------------------------------------


def printed(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


LOADED = [
    ("rfgp", ("torch", "numpy", "scipy", "graphs.checks", *HEAVY)),
    pytest.param("rfgp.gp", HEAVY, marks=pytest.mark.slow),
    pytest.param("graphs", ("torch", *HEAVY), marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("module", "heavy"), LOADED)
def test_imports_load_only_needed_packages(module, heavy):
    assert printed(f"import sys, {module}; print([m for m in {heavy} if m in sys.modules])") == "[]\n"


@pytest.mark.slow
def test_each_name_is_loaded_on_first_use():
    code = "import rfgp; print([n for n in rfgp.__all__ if not hasattr(rfgp, n)], set(rfgp.__all__) <= set(dir(rfgp)))"
    assert printed(code) == "[] True\n"
    code = "from rfgp import *; print(SparseSpectrumGP.__name__, spectra.__name__)"
    assert printed(code) == "SparseSpectrumGP rfgp.spectra\n"
    code = "import graphs, sys; graphs.sample_walks(graphs.Graph.from_grid((2, 2))); print('torch' in sys.modules)"
    assert printed(code) == "False\n"
    assert not hasattr(rfgp, "nothing")


def test_another_package_called_graphs_is_named(tmp_path):
    (tmp_path / "graphs.py").write_text("")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import rfgp"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "PackageClashError" in run.stderr
    assert str(tmp_path / "graphs.py") in run.stderr


def test_no_module_imports_its_package():
    """A package loads its modules by their names on first use, which the contracts of import-linter do not see."""
    found = set()
    for file, tree in trees(*PACKAGES).items():
        package, nodes = file.split("/")[0], list(ast.walk(tree))
        whole = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        members = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module == package]
        paths = {ROOT / package / alias.name for node in members for alias in node.names}
        if package in whole or not all(path.is_dir() or path.with_suffix(".py").exists() for path in paths):
            found.add(file)
    assert {file for file in found if not file.startswith("rfgp/cli/")} == set()


ONLY_POSIX = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")
WITHOUT_POSIX = f"""
import importlib, os, pkgutil, signal, sys, warnings
warnings.simplefilter("ignore")
for name in {(*HEAVY, "torch", "scipy.stats", "finufft", "matplotlib.pyplot", "jinja2", "meshio", "requests")}:
    importlib.import_module(name)
sys.modules.update(dict.fromkeys({ONLY_POSIX}))
for name in "fork register_at_fork sysconf sched_getaffinity uname mkfifo".split():
    delattr(os, name)
del signal.SIGKILL, signal.SIGALRM
import graphs, rfgp
for package in (rfgp, graphs):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
print(graphs.checks.machine_memory() > 0)
"""


@pytest.mark.slow
def test_modules_import_without_what_only_posix_has():
    assert printed(WITHOUT_POSIX) == "True\n"


# --- private members ---------------------------------------------------------------------------------------------

OF_OTHERS = {
    ("rfgp/attention/module.py", "_C"): "torch tells only there whether a backward pass is running",
    ("rfgp/attention/module.py", "_current_graph_task_id"): "the same",
    ("rfgp/cli/interrupts.py", "_exit"): "Python's own name for an end at once",
    ("rfgp/sklearn/base.py", "_validate_data"): "scikit-learn's own name before 1.6",
}
"""Private members of other packages, each with its reason."""
NAMED_TUPLES = {"_replace", "_asdict", "_fields"}


def test_private_members_are_used_in_their_file_alone():
    """For tests ruff's SLF001 says so; in a package a function may use the private members of a class beside it."""
    found = set()
    for name, tree in trees(*PACKAGES).items():
        nodes = list(ast.walk(tree))
        used = {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load)}
        used |= {alias.name for n in nodes if isinstance(n, ast.ImportFrom) for alias in n.names}
        own = {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef)} | NAMED_TUPLES
        own |= {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
        own |= {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        own |= {
            n.attr for n in nodes if isinstance(n, ast.Attribute) and ast.unparse(n.value) in ("self", "cls", "super()")
        }
        found |= {(name, each) for each in used - own if re.match(r"_[a-zA-Z]", each)}
    assert found == OF_OTHERS.keys()


# --- messages ----------------------------------------------------------------------------------------------------

NAME = re.compile(r"(?<![\w./-])(rfgp|graphs)((?:\.[A-Za-z_]\w*)+)")


def leads_somewhere(name):
    """Return whether a dotted name is a module of the packages, or a member of something in them."""
    path = ROOT / name.replace(".", "/")
    if path.is_dir() or path.with_suffix(".py").is_file():
        return True
    thing = sys.modules[name.split(".")[0]]
    for part in name.split(".")[1:]:
        if not hasattr(thing, part):
            return False
        thing = getattr(thing, part)
    return True


@pytest.mark.slow
def test_names_in_messages_exist():
    found = set()
    for tree in trees(*PACKAGES).values():
        prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        constants = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        texts = [node.value for node in constants if id(node) not in prose]
        found |= {"".join(match) for text in texts for match in NAME.findall(text)}
    assert len(found) > 20
    assert {name for name in found if not leads_somewhere(name)} == set()


# --- tests -------------------------------------------------------------------------------------------------------


def test_tests_import_public_names_and_few_listed_ones():
    """`python tests/support/inner_names.py --write` records them; a name is added for a reason, not by the way."""
    assert inner_names.inner() == inner_names.recorded()
    assert len(inner_names.recorded()) <= 40


MAKERS = ("default_rng", "RandomState", "Generator", "manual_seed", "generator", "numpy_generator")


def test_each_test_draws_from_a_generator_of_its_own():
    """What a function draws from a generator of its module depends on what ran before it."""
    common = set()
    for name, tree in trees("tests").items():
        made = [node for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)]
        common |= {name for node in made if ast.unparse(node.value.func).split(".")[-1] in MAKERS}
    assert common == set()
