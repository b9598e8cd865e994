"""Each public name stands in the reference of the documentation exactly once."""

import importlib
import inspect
import re
import tomllib
from collections import Counter

import public_names
import pytest
import reference_pages as pages

import graphs
import rfgp
from examples import without_example

TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in (pages.ROOT / "docs" / "reference").glob("*.rst")}


def faults(texts):
    """Return the names that are missing, repeated or unknown in the pages' texts."""
    counts = Counter(name for text in texts for name in pages.listed_names(text))
    names = set(pages.public_names())
    return {
        "missing": sorted(names - set(counts)),
        "repeated": sorted(name for name, count in counts.items() if count > 1),
        "unknown": sorted(set(counts) - names),
    }


def test_each_public_name_is_listed_once():
    assert faults(TEXTS.values()) == {"missing": [], "repeated": [], "unknown": []}


def test_each_name_of_all_is_listed():
    names = {f"rfgp.{name}" for name in rfgp.__all__ if not pages.source_of(f"rfgp.{name}").exists()}
    names |= {f"graphs.{name}" for name in dir(graphs) if name not in ("errors", "kernels")}
    assert names <= set(pages.public_names())


def test_each_page_is_in_the_table_of_contents():
    assert set(TEXTS["index"].split()) >= set(pages.ROOMS) == set(TEXTS) - {"index"}


@pytest.mark.parametrize(
    ("fault", "old", "new"),
    [
        ("missing", "   rfgp.GP\n", ""),
        ("repeated", "   rfgp.GP\n", "   rfgp.GP\n   rfgp.GP\n"),
        ("unknown", "   rfgp.GP\n", "   rfgp.GP\n   rfgp.NoSuchName\n"),
    ],
)
def test_planted_fault_is_found(fault, old, new):
    assert old in TEXTS["models"]
    assert faults([text.replace(old, new) for text in TEXTS.values()])[fault]


def test_no_name_of_the_last_release_is_missing():
    """A removed name has been deprecated for two minor releases (docs/releasing.md); then it leaves the record."""
    assert public_names.recorded() - set(pages.public_names()) == set()


def test_versions_agree():
    project = tomllib.loads((pages.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = (pages.ROOT / "CITATION.cff").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+)", (pages.ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert f"\nversion: {project['version']}\n" in citation
    assert newest[1] == project["version"]


def classes_and_functions():
    """Return the public classes and functions by their names in the reference."""
    things = {}
    for path, home in pages.public_names().items():
        things[path] = getattr(importlib.import_module(home), path.rpartition(".")[2])
    return {path: thing for path, thing in things.items() if inspect.isclass(thing) or inspect.isfunction(thing)}


def test_each_public_class_and_function_has_an_example():
    assert without_example(classes_and_functions()) == []


def test_planted_class_without_an_example_is_found():
    class Bare(rfgp.ExactGP):
        """A class without an example."""

    assert without_example({**classes_and_functions(), "rfgp.Bare": Bare}) == ["rfgp.Bare"]


ERRORS = (pages.ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
CLASSES = set(pages.listed_names(TEXTS["errors"]))


def rows_of_errors(text):
    """Return the classes of the tables of the errors' page whose cause and remedy are not empty."""
    return re.findall(r"^\| `((?:rfgp|graphs)\.\w+)` \| [^|\s][^|]* \| [^|\s][^|]* \|$", text, re.MULTILINE)


def test_each_error_has_one_row_with_cause_and_remedy():
    assert sorted(rows_of_errors(ERRORS)) == sorted(CLASSES)
    assert {"Error", "Warning"} == {re.search("Error|Warning", name)[0] for name in CLASSES}


@pytest.mark.parametrize("row", ["", "| `rfgp.DataError` | a cause |  |\n"])
def test_planted_row_without_a_remedy_is_found(row):
    lines = [row if line.startswith("| `rfgp.DataError`") else line for line in ERRORS.splitlines(keepends=True)]
    assert set(rows_of_errors("".join(lines))) == CLASSES - {"rfgp.DataError"}
