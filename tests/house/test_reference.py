"""Each public name is in the reference of the documentation once, with an example."""

import importlib
import inspect
import re
import tomllib
from pathlib import Path

import public_names

ROOT = Path(__file__).parents[2]
LISTED = public_names.listed()
ERRORS = public_names.listed("errors")


def thing_of(name):
    module, _, member = name.rpartition(".")
    return getattr(importlib.import_module(module), member)


def test_listed_names_exist_once_and_none_of_the_last_release_is_missing():
    """A removed name has been deprecated for two minor releases (docs/releasing.md); then it leaves the record."""
    assert sorted(LISTED) == sorted(set(LISTED))
    assert all(thing_of(name) is not None for name in LISTED)
    assert public_names.recorded() - set(LISTED) == set()


INTERNAL = {"arguments", "called", "requires_extra", "warn", "ParameterSpace", "ParameterValues"}
INTERNAL |= {"find_path", "find_paths", "Registry", "REGISTRY", "Affine", "AnyAxes"}
"""Names without an underscore that other modules of the packages use, and users do not."""


def test_names_that_a_public_module_shows_are_listed():
    known = [thing_of(name) for name in LISTED]
    for module in sorted({name.rpartition(".")[0] for name in LISTED}):
        home = importlib.import_module(module)
        for name in (name for name in dir(home) if not name.startswith("_")):
            thing = getattr(home, name)
            is_ours = getattr(thing, "__module__", "").split(".")[0] in ("rfgp", "graphs")
            assert not is_ours or name in INTERNAL or any(thing is each for each in known), f"{module}.{name}"


def test_a_star_import_takes_the_public_names_of_graphs_alone():
    names = dict[str, object]()
    exec("from graphs import *", names)
    shown = {name for name in LISTED if name.startswith("graphs.") and name.count(".") == 1}
    assert {name.removeprefix("graphs.") for name in shown} <= set(names)
    assert set(names) & {"Any", "importlib"} == set()
    assert not hasattr(importlib.import_module("graphs"), "a.b")


def test_each_page_is_in_the_table_of_contents():
    pages = {path.stem for path in public_names.PAGES.glob("*.rst")} - {"index"}
    assert pages <= set((public_names.PAGES / "index.rst").read_text(encoding="utf-8").split())


def test_each_public_class_and_function_has_an_example():
    things = {name: thing_of(name) for name in LISTED}
    shown = {name: thing for name, thing in things.items() if inspect.isclass(thing) or inspect.isfunction(thing)}
    assert [name for name, thing in shown.items() if ">>>" not in (thing.__doc__ or "")] == []


def test_each_error_has_one_row_with_cause_and_remedy():
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `((?:rfgp|graphs)\.\w+)` \| [^|\s][^|]* \| [^|\s][^|]* \|$", text, re.MULTILINE)
    assert sorted(rows) == sorted(ERRORS)


def test_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest[1] == project["version"]
    assert f"\nversion: {project['version']}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
