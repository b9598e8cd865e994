"""Without the optional packages the core works, and what needs one names the extra that brings it."""

import json
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import extras
import pytest

import rfgp

ROOT = Path(rfgp.__file__).parent.parent
NOT_OURS = {"all", "dev", "docs"}


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.slow
def test_core_fits_without_optional_packages_and_each_missing_one_is_named():
    """In one process that finds none of them."""
    command = [sys.executable, extras.__file__, "--blocked"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.stdout, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["loaded by import rfgp"] == []
    assert found["loaded by a fit"] == []
    assert found["uses"] == dict.fromkeys(extras.USES, "names its extra")


def test_each_extra_has_a_use(project):
    assert {entry.extra for entry in extras.USES.values()} == set(project["optional-dependencies"]) - NOT_OURS


def test_each_package_has_an_extra(project):
    """Compare the packages that are blocked with the requirements of the extras, by the names of distributions."""
    homes = packages_distributions()
    blocked = {home.lower().replace("_", "-") for name in extras.PACKAGES for home in homes[name]}
    found = project["optional-dependencies"].items()
    texts = [text for extra, texts in found if extra not in ("dev", "docs") for text in texts]
    required = {text.partition(">=")[0].partition("[")[0] for text in texts} - {"rfgp"}
    assert required == blocked - {"linear-operator"}  # gpytorch brings it


def test_all_has_each_extra(project):
    found = project["optional-dependencies"]
    named = set(found["all"][0].removeprefix("rfgp[").removesuffix("]").split(","))
    assert named == set(found) - NOT_OURS - {"metis"}  # which has wheels for some systems only
