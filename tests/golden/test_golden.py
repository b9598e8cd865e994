"""Results of all cases are those of `golden.json`, and a result that changes is found."""

import numpy as np
import pytest

from tests.golden import results

KNOWN = results.read()
SLOW = ("columns", "fits", "selections", "commands")
QUICK = ("text", "dates", "no-target", "no-file", "no-option", "bad-kernel", "no-model", "datasets")
NAMES = [
    pytest.param(f"{group}/{name}", marks=[pytest.mark.slow] if group in SLOW and name not in QUICK else [])
    for group, cases in results.GROUPS.items()
    for name in cases
]


@pytest.mark.parametrize("name", NAMES)
def test_results_are_those_of_the_file(name):
    is_here = KNOWN["processor"] == results.processor()
    assert results.differences(name, results.results_of(name), KNOWN["results"][name], is_here) == []


def test_every_result_of_the_file_has_a_case():
    assert set(KNOWN["results"]) == {parameter.values[0] for parameter in NAMES}


@pytest.mark.parametrize(
    ("name", "key", "size"),
    [("models/exact", "mean", 1e-9), ("fits/exact", "log marginal likelihood", 1e-5), ("draws/kinds", "laplace", 1e-9)],
)
def test_a_changed_result_is_found(name, key, size):
    known = KNOWN["results"][name]
    less, more = (np.multiply(known[key], 1 + factor * size) for factor in (0.1, 10.0))
    assert results.differences(name, {**known, key: less}, known) == []
    assert results.differences(name, {**known, key: more}, known)
    assert results.differences(name, {key: known[key]}, known)


def test_solved_directions_are_compared_on_their_processor_alone():
    name = "draws/functions"
    known = KNOWN["results"][name]
    changed = {key: np.multiply(value, 1.1) for key, value in known.items()}
    assert results.differences(name, changed, known)
    assert results.differences(name, changed, known, is_here=False) == []
    assert set(KNOWN["results"]) >= results.SOLVED
