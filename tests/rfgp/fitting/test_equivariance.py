"""Fits do not depend on the unit of the target: starts, bounds and tolerances are relative to its scale."""

import numpy as np
import pytest

import rfgp
from rfgp import kernels as k

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
MODELS = {
    "selected": lambda **o: rfgp.GP(**o),
    "exact": lambda **o: rfgp.GP(k.RBF(), approximation=rfgp.Exact(), **o),
    "features": lambda **o: rfgp.GP(k.RBF(), approximation=rfgp.RandomFeatures(32), **o),
    "learned": lambda **o: rfgp.GP(k.RBF(), approximation=rfgp.RandomFeatures(8, learn_frequencies=True), **o),
    "points": lambda **o: rfgp.GP(k.RBF(), approximation=rfgp.InducingPoints(24), **o),
    "neighbors": lambda **o: rfgp.GP(k.Matern(), approximation=rfgp.Vecchia(8), **o),
    "terms": lambda **o: rfgp.GP(k.RBF(0) + k.Linear(1) + k.Matern(0, nu=1.5, name="rough"), **o),
}


@pytest.mark.parametrize(("standardize", "scale"), [(True, 1e-6), (False, 1e6), (False, 1e-6)])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.thinned(2)
def test_predictions_scale_with_the_target(name, standardize, scale):
    rng = np.random.default_rng(0)
    X, Z = rng.uniform(-1, 1, (120, 2)), rng.uniform(-1, 1, (20, 2))
    y = np.sin(4 * X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(120)
    one, other = (MODELS[name](standardize=standardize, seed=0).fit(X, s * y).predict(Z) for s in (1.0, scale))
    np.testing.assert_allclose(other.mean / scale, one.mean, atol=3e-3)
    np.testing.assert_allclose(other.std / scale, one.std, rtol=1e-2)
