"""Likelihoods of exact terms and their gradients in closed form, against dense algebra and central differences."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

import rfgp
from rfgp import kernels as k
from rfgp import priors
from rfgp.fitting.closed_form import ClosedForm
from rfgp.fitting.maximize import Objective
from rfgp.regression.state import begin
from rfgp.rows import Chunk
from rfgp.solvers.dense import DenseSolver

STEP = 1e-5


def gaussian(x, values, name):
    z = x / values[f"{name}.lengthscale"]
    return values[f"{name}.outputscale"] * np.exp(-0.5 * cdist(z, z, "sqeuclidean"))


def rough(x, values, name):
    z = x / values[f"{name}.lengthscale"]
    return values[f"{name}.outputscale"] * np.exp(-cdist(z, z))


def once_differentiable(x, values, name):
    z = x / values[f"{name}.lengthscale"]
    t = math.sqrt(3) * cdist(z, z)
    return values[f"{name}.outputscale"] * (1 + t) * np.exp(-t)


def linear(x, values, name):
    centered = x - x.mean(0)
    return (centered * values[f"{name}.variance"]) @ centered.T


def half_cauchy(values, count):
    tau = priors.SCALE / math.sqrt(count)
    return np.sum(math.log(2 / (math.pi * tau)) - np.log1p(values["linear.variance"] / tau**2))


SUM = k.RBF(name="rbf") + k.Matern(nu=1.5, name="local")
LINE = k.Linear(name="linear")
SPARSE = {"linear.variance": priors.SparseVariances()}
CASES = {
    "sum": (SUM, {"rbf": gaussian, "local": once_differentiable}, 3, 1, {}),
    "line and rough": (LINE + k.Matern(nu=0.5, name="m"), {"linear": linear, "m": rough}, 3, 1, {}),
    "isotropic": (k.RBF(name="rbf", ard=False), {"rbf": gaussian}, 3, 1, {}),
    "many columns": (k.Matern(nu=0.5, name="m"), {"m": rough}, 15, 1, {}),
    "two outputs": (k.RBF(name="rbf"), {"rbf": gaussian}, 3, 2, {}),
    "sparse line": (LINE, {"linear": linear}, 40, 1, SPARSE),
}


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def case(request):
    """A regression of 30 rows, two of them equal, hyperparameters away from its start, and formulas of terms."""
    kernel, formulas, d, outputs, own = request.param
    rng = np.random.default_rng(3)
    X = rng.normal(size=(30, d))
    X[7] = X[4]
    y = np.sin(X[:, :1]) + X[:, 1:2] + 0.3 * rng.normal(size=(30, outputs))
    gp = rfgp.GP(kernel, approximation=rfgp.Exact(), priors=own)
    state = begin(gp.spec, Chunk(X, y if outputs > 1 else y[:, 0]))
    start = state.hyperparameters
    names = start.space.free(())
    vector = start.vector(names)
    return state, start.moved(names, vector + 0.3 * rng.normal(size=len(vector))), formulas


def density(state, values, formulas):
    """Return the log density of standardized targets and that of the hyperpriors by dense algebra."""
    rows = state.rows
    x, y = rows.inputs.numpy(), rows.targets.numpy()
    known = {name: values.standardized(name).numpy() for name in values.space.names}
    kernel = sum(formula(x, known, name) for name, formula in formulas.items())
    covariance = kernel + known["noise"] * np.eye(len(x))
    residual = y - known["mean"]
    squares = np.sum(residual * np.linalg.solve(covariance, residual))
    logs = np.linalg.slogdet(covariance)[1] + len(x) * math.log(2 * math.pi)
    prior = half_cauchy(known, x.shape[1]) if values.space.hyperpriors else 0.0
    return -0.5 * (squares + y.shape[1] * logs) + prior


def differences(state, values, formulas, free):
    """Return central differences of the density in free raw values."""
    vector, found = values.vector(free), []
    for step in STEP * np.eye(len(vector)):
        ends = [density(state, values.moved(free, vector + sign * step), formulas) for sign in (1, -1)]
        found.append((ends[0] - ends[1]) / (2 * STEP))
    return np.array(found)


def mistake(state, values, formulas):
    """Return the largest errors of the value and of the gradient."""
    closed, free = ClosedForm.of(state, state.rows), values.space.free(())
    value, gradient = closed(values, free)
    expected = differences(state, values, formulas, free)
    errors = np.abs(gradient.numpy() - expected) / np.abs(expected).max()
    return abs(float(value) - density(state, values, formulas)), errors.max()


def test_value_and_gradient_match_dense_algebra(case):
    in_value, in_gradient = mistake(*case)
    assert in_value < 1e-9
    assert in_gradient < 1e-7


def test_gradient_matches_autograd(case):
    state, values, _ = case
    free = values.space.free(())
    found = Objective.of(state, state.rows).evaluated(values, free)
    plain = Objective.of(state, state.rows)
    theirs = Objective(plain.log_likelihood, plain.rows, plain.count, plain.jacobian).evaluated(values, free)
    torch.testing.assert_close(found["value"], theirs["value"], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found["gradient"], theirs["gradient"], rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("planted", ["slope", "noise"])
def test_planted_error_in_the_gradient_is_found(case, planted, monkeypatch):
    state, values, formulas = case
    if planted == "slope" and not any("lengthscale" in name for name in values.space.names):
        pytest.skip("no term is stationary")
    if planted == "slope":
        measure = next(term.measure for term in state.spec.terms if term.measure is not None)
        right = type(measure).gram_and_slope
        monkeypatch.setattr(
            type(measure), "gram_and_slope", lambda self, z: (right(self, z)[0], 1.01 * right(self, z)[1])
        )
    else:
        right = DenseSolver.likelihood_and_gradients

        def wrong(self):
            value, gradients = right(self)
            return value, [*gradients[:-2], 1.01 * gradients[-2], gradients[-1]]

        monkeypatch.setattr(DenseSolver, "likelihood_and_gradients", wrong)
    assert mistake(state, values, formulas)[1] > 1e-6


@pytest.mark.parametrize(
    ("kernel", "approximation"),
    [(k.RBF(), rfgp.RandomFeatures(8)), (k.RBF(0) * k.RBF(1), rfgp.Exact()), (k.Linear(), rfgp.Exact())],
    ids=["features", "product", "few weights"],
)
def test_other_models_have_no_closed_form(kernel, approximation):
    X = np.random.default_rng(0).normal(size=(30, 3))
    state = begin(rfgp.GP(kernel, approximation=approximation).spec, Chunk(X, X[:, 0]))
    assert ClosedForm.of(state, state.rows) is None


def test_row_far_out_has_no_closed_form():
    X = np.random.default_rng(0).normal(size=(30, 2))
    gp = rfgp.GP(k.RBF(name="rbf"), approximation=rfgp.Exact())
    state = begin(gp.spec, Chunk(X, X[:, 0]))
    values = state.hyperparameters.replaced({"rbf.lengthscale": torch.full((2,), math.log(1e-6))})
    free = values.space.free(())
    assert ClosedForm.of(state, state.rows)(values, free) is None
    assert bool(torch.isfinite(Objective.of(state, state.rows).evaluated(values, free)["value"]))
