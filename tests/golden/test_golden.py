"""The golden cases reach every kind of model, and a result that changes is found."""

import numpy as np
import pytest

import rfgp
from rfgp import likelihoods
from tests.golden.cases import CASES
from tests.golden.results import TOLERANCE, differences, results_of

FEW = ("features", "neighbors", "roads")


@pytest.mark.parametrize("name", FEW)
def test_results_do_not_depend_on_earlier_runs(name):
    found, again = (results_of(name, CASES[name]()) for _ in range(2))
    assert differences(name, found, again) == []


def test_a_changed_result_is_found():
    found = {"mean": np.array([1.0, 2.0]), "variance": np.array([0.5])}
    assert differences("features", found, {**found, "mean": found["mean"] * (1 + 3 * TOLERANCE)})
    assert differences("features", found, {"mean": found["mean"]})
    assert differences("features", found, {**found, "variance": np.ones(2)})
    assert not differences("features", found, {**found, "mean": found["mean"] * (1 + TOLERANCE / 3)})


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_every_model_and_likelihood_has_a_case():
    models = [make().model for make in CASES.values()]
    assert {type(model) for model in models} == {
        rfgp.SparseSpectrumGP,
        rfgp.ExactGP,
        rfgp.GP,
        rfgp.RoadGP,
        rfgp.MeshGP,
        rfgp.GraphGP,
    }
    used = {type(model.spec.options.likelihood) for model in models}
    assert used == {type(likelihoods.by_name(name)) for name in likelihoods.names()}
