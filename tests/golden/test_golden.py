"""Results of all cases are those of `golden.json`."""

import pytest

import rfgp
from rfgp import likelihoods
from tests.golden import models, results

KNOWN = results.read()
SLOW = ("fits", "selections", "commands")
NAMES = [
    pytest.param(f"{group}/{name}", marks=[pytest.mark.slow] if group in SLOW else [])
    for group, cases in results.GROUPS.items()
    for name in cases
]


@pytest.mark.parametrize("name", NAMES)
def test_results_are_those_of_the_file(name):
    is_here = KNOWN["processor"] == results.processor()
    assert results.differences(name, results.results_of(name), KNOWN["results"][name], is_here) == []


def test_every_result_of_the_file_has_a_case():
    assert set(KNOWN["results"]) == {parameter.values[0] for parameter in NAMES}


def test_every_model_and_likelihood_has_a_case():
    made = [make() for make in (models.MODELS[name] for name in ("features", "exact", "roads", "mesh", "graph-exact"))]
    assert {type(case.model) for case in made} == {
        rfgp.SparseSpectrumGP,
        rfgp.ExactGP,
        rfgp.RoadGP,
        rfgp.MeshGP,
        rfgp.GraphGP,
    }
    assert all(any(name in case for case in models.MODELS) for name in likelihoods.names() if name != "gaussian")
