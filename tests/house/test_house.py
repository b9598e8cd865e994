"""The rules that a linter does not know."""

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import graphs
import rfgp

ROOT = Path(rfgp.__file__).parent.parent
HEAVY = ("ot", "trimesh", "pandas", "matplotlib", "sklearn", "gpytorch", "numba", "networkx", "typer", "rich")
HEAVY += ("botorch", "dask", "distributed", "pyarrow", "plotly", "pooch", "safetensors", "rdata")
SHAPE = re.compile(r"\([^()]*\)|0-d|None|True|False|-> ")
ARRAYS = re.compile(r"Tensor|ndarray|NDArray|ArrayLike|csr_array")


def said_by(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_imports_and_models_load_only_needed_packages():
    more = ("torch", "numpy", "scipy", "graphs", *HEAVY)
    assert ast.literal_eval(said_by(f"import sys, rfgp; print([m for m in {more} if m in sys.modules])")) == []
    assert ast.literal_eval(said_by(f"import sys, rfgp.models; print([m for m in {HEAVY} if m in sys.modules])")) == []


@pytest.mark.slow
def test_every_name_comes_on_first_use():
    named = said_by(
        "import rfgp; print([n for n in rfgp.__all__ if not hasattr(rfgp, n)], set(rfgp.__all__) <= set(dir(rfgp)))"
    )
    assert named == "[] True\n"
    assert said_by("from rfgp import *; print(SparseSpectrumGP.__name__, spectra.__name__)") == (
        "SparseSpectrumGP rfgp.spectra\n"
    )
    assert said_by("import rfgp; print(hasattr(rfgp, 'nothing'), hasattr(rfgp, '_check'), 'Any' in dir(rfgp))") == (
        "False False False\n"
    )


def test_graphs_load_nothing_heavy_and_never_torch():
    code = (
        f"import sys, graphs; print([m for m in {HEAVY} if m in sys.modules]); "
        "graphs.sample_walks(graphs.Graph.from_edges([(0, 1)])); print('torch' in sys.modules)"
    )
    assert said_by(code) == "[]\nFalse\n"


def test_another_package_called_graphs_is_named(tmp_path):
    (tmp_path / "graphs.py").write_text("")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import rfgp"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "PackageClashError" in run.stderr
    assert str(tmp_path / "graphs.py") in run.stderr


def modules():
    for package in (graphs, rfgp):
        yield package
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield importlib.import_module(info.name)


def public():
    """Return every public function, class and method that is ours, by its full name."""
    found = {}
    for module in modules():
        for name, thing in vars(module).items():
            if name.startswith("_") or getattr(thing, "__module__", None) != module.__name__:
                continue
            if inspect.isfunction(thing) or inspect.isclass(thing):
                found[f"{module.__name__}.{name}"] = thing
            if inspect.isclass(thing):
                for key, member in vars(thing).items():
                    member = getattr(member, "__func__", getattr(member, "fget", getattr(member, "func", member)))
                    if not key.startswith("_") and inspect.isfunction(member):
                        found[f"{module.__name__}.{name}.{key}"] = member
    return found


def takes_arrays(thing):
    try:
        source = inspect.getsource(thing)
    except (OSError, TypeError):
        return False
    header = source.split('"""')[0]
    return inspect.isfunction(thing) and bool(ARRAYS.search(header))


def undocumented(things):
    """Return the names without a docstring, or without a shape beside their arrays."""
    out = []
    for name, thing in things.items():
        doc = inspect.getdoc(thing)
        header = inspect.getsource(thing).split('"""')[0] if inspect.isfunction(thing) else ""
        if not doc or (takes_arrays(thing) and not SHAPE.search(doc) and not re.search(r"# .*\(", header)):
            out.append(name)
    return out


COMPILED = "graphs.walks.compiled"
ELEMENTWISE = {
    "graphs.random.mix",
    "graphs.random.to_unit",
    "graphs.random.derive",
    "graphs.random.uniforms",
    "rfgp.scaling.Affine.standardizing",
    "rfgp.scaling.Affine.identity",
    "rfgp.scaling.Affine.forward",
}


def test_public_names_have_docstrings_with_shapes():
    things = {name: thing for name, thing in public().items() if not name.startswith(COMPILED)}
    assert len(things) > 150
    assert set(undocumented(things)) <= ELEMENTWISE


def test_planted_a_missing_shape_is_found():
    namespace = {}
    path = ROOT / "tests" / "house" / "planted" / "docstrings.py"
    module = importlib.util.spec_from_file_location("planted", path)
    planted = importlib.util.module_from_spec(module)
    module.loader.exec_module(planted)
    namespace.update(vars(planted))
    names = {name: namespace[name] for name in ("no_docstring", "no_shape", "good")}
    assert undocumented(names) == ["no_docstring", "no_shape"]


OTHER_TITLE = re.compile(r"(?m)^ *(?!Examples: *$)(?i:examples?|usage|samples?|demos?):+ *$")
"""Titles of a section of examples other than "Examples:", the only one of Google style here."""


def test_examples_have_one_title():
    for folder in ("graphs", "rfgp", "benchmarks", "examples", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            assert not OTHER_TITLE.search(path.read_text(encoding="utf-8")), path


def test_planted_titles_of_examples_are_found():
    titles = ("Example:", "Examples:", "Example::", "examples:", "Usage:")
    found = [title for title in titles if OTHER_TITLE.search(f"Text.\n\n    {title}\n        >>> 1\n")]
    assert found == ["Example:", "Example::", "examples:", "Usage:"]


def sources():
    return [path for package in ("graphs", "rfgp") for path in sorted((ROOT / package).rglob("*.py"))]


def functions(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def body_length(function):
    lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function, clean=False) is not None:
        lines -= function.body[0].end_lineno - function.body[0].lineno + 1
    return lines


def test_pieces_are_small():
    lengths = sorted(body_length(f) for path in sources() for f in functions(path))
    assert lengths[len(lengths) // 2] <= 10
    assert lengths[-1] <= 60


def test_classes_have_few_methods_and_shallow_inheritance():
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                names = {f.name for f in node.body if isinstance(f, ast.FunctionDef)}
                most = 25
                assert len(names) < most, f"{path}: {node.name} has {len(names)}"
    for cls in filter(inspect.isclass, (thing for module in modules() for thing in vars(module).values())):
        is_deep = cls.__module__.startswith(("rfgp.kernels.", "rfgp.approximations.", "rfgp.models."))
        most = 3 if is_deep else 2  # a kernel, the stationary ones, and those by name; a model and its presets
        assert depth(cls) <= most or issubclass(cls, Exception | Warning), cls


def depth(cls):
    """Return the length of the longest chain of classes of ours from a class to its bases, 0 for a class of others."""
    if cls.__module__.split(".")[0] not in ("graphs", "rfgp"):
        return 0
    return 1 + max(map(depth, cls.__bases__), default=0)


def test_no_global_random_state_and_nothing_left_open():
    marks = r"np\.random\.(seed|rand|randn|normal|choice)\(|torch\.manual_seed\(|TODO|FIXME|type: ignore|noqa"
    for path in sources():
        assert not re.search(marks, path.read_text(encoding="utf-8")), path


def test_the_names_of_the_page_exist():
    for name in dir(rfgp):
        assert getattr(rfgp, name) is not None
    assert {"GraphGP", "gpytorch", "sampling"} <= set(dir(rfgp))
    assert not hasattr(rfgp, "nothing")
