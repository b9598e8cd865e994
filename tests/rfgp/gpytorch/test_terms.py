"""Kernels of terms in GPyTorch: covariances, marginal likelihoods and predictions are those of `rfgp.GP`."""

import copy
import json
import pickle
from operator import setitem

import gpytorch
import pytest
import torch
from gpytorch_models import Model
from linear_operator.operators import (
    LowRankRootAddedDiagLinearOperator,
    LowRankRootLinearOperator,
    RootLinearOperator,
)
from refusals import refused

import graphs
import rfgp
from rfgp import kernels as k
from rfgp.gpytorch import SparseRootLinearOperator, TermKernel, kernel_of

F64 = torch.float64
NOISE, MEAN = 0.05, 0.3


def table(n, seed, levels):
    """Return rows of two numbers and a level."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.rand(n, 2, generator=generator, dtype=F64)
    return torch.cat([numbers, torch.randint(0, levels, (n, 1), generator=generator).double()], dim=1)


X = table(40, 0, 4)
Y = torch.sin(6 * X[:, 0]) + 0.3 * X[:, 2] + 0.1 * torch.cos(40 * X[:, 1])
Z = torch.cat([X[:3], table(8, 2, 7)])  # rows of X, and new levels
MIXED = k.RBF((0, 1), name="trend") + k.Group(2) + k.Linear(1) * k.Matern(0) + k.Periodic(1, period=0.5)
NUMBERS = k.Matern((0, 1), nu=2.5, name="trend") + k.Linear(1)
DRAWN = rfgp.RandomFeatures(6, coupling="orthogonal")
THREE = [rfgp.Exact(), DRAWN, rfgp.InducingPoints(6)]


def moved(kernel):
    """Move the hyperparameters that are learned from their starting values."""
    for number, (path, value) in enumerate(kernel.hyperparameters.items()):
        if value.requires_grad:
            kernel.hyperparameters[path] = value.detach() * (1.1 + 0.1 * number)
    return kernel


def values_of(kernel):
    return {path: kernel.hyperparameters[path].detach().tolist() for path in kernel.quantities}


def gp_of(kernel, terms, approximation, x=X, y=Y):
    """Return the `rfgp.GP` with the draws and hyperparameters of `kernel_of(terms, approximation, X=x, seed=3)`."""
    gp = rfgp.GP(terms, approximation=approximation, seed=3, standardize=False).condition(x, y)
    for path, value in {**values_of(kernel), "noise": NOISE, "mean": MEAN}.items():
        gp.hyperparameters[path] = value
    return gp


def trained_like(kernel, x=X, y=Y):
    model = Model(x, y, kernel).double()
    model.likelihood.noise = torch.tensor(NOISE, dtype=F64)
    model.mean_module.constant.data.fill_(MEAN)
    return model


def log_likelihood(model, x=X, y=Y):
    model.train()
    return len(y) * gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)(model(x), y)


def assert_matches_the_model(kernel, gp, x, y, new, new_of_gp):
    model = trained_like(kernel, x, y)
    evidence = log_likelihood(model, x, y)
    evidence.backward()
    assert all(raw.grad is not None for raw in kernel.parameters() if raw.requires_grad)
    model.eval()
    with torch.no_grad():
        found, expected = model(new), gp.predict(new_of_gp)
    assert evidence.item() == pytest.approx(gp.log_marginal_likelihood().item(), rel=0, abs=1e-7)
    torch.testing.assert_close(found.mean, expected.mean, rtol=0, atol=1e-7)
    torch.testing.assert_close(found.covariance_matrix, expected.covariance, rtol=0, atol=1e-7)


# --- covariances ---------------------------------------------------------------------------------


CASES = [
    ("auto", MIXED, None),
    (rfgp.Exact(), MIXED, None),
    (rfgp.RandomFeatures(4, coupling="iid"), NUMBERS, LowRankRootLinearOperator),
    (rfgp.RandomFeatures(40, coupling="iid"), NUMBERS, RootLinearOperator),
    (rfgp.InducingPoints(6, method="sor"), NUMBERS, LowRankRootLinearOperator),
    (rfgp.InducingPoints(6, method="fitc"), NUMBERS, LowRankRootAddedDiagLinearOperator),
    (rfgp.InducingPoints(6), MIXED, None),
    ({"trend": rfgp.InducingPoints(8, method="fitc")}, MIXED, None),
    ({"trend": rfgp.RandomFeatures(8, kind="laplace")}, MIXED, None),
]


@pytest.mark.filterwarnings("ignore::rfgp.JitterWarning")  # of rfgp.GP, for smooth terms without noise
@pytest.mark.parametrize(("approximation", "terms", "kind"), CASES)
def test_likelihood_and_predictions_match_the_model(approximation, terms, kind):
    kernel = moved(kernel_of(terms, approximation, X=X, seed=3))
    assert_matches_the_model(kernel, gp_of(kernel, terms, approximation), X, Y, Z, Z)
    torch.testing.assert_close(kernel(X, diag=True), kernel(X).to_dense().diagonal())
    assert kind is None or type(kernel(X).evaluate_kernel()) is kind


GRID = graphs.Graph.from_grid((5, 5))


@pytest.mark.parametrize(
    ("approximation", "kind"),
    [
        (rfgp.Exact(), None),
        (rfgp.RandomWalks(8), SparseRootLinearOperator),
        (rfgp.Chebyshev(4), SparseRootLinearOperator),
        (rfgp.TruncatedSpectrum(8), LowRankRootLinearOperator),
    ],
    ids=repr,
)
def test_nodes_match_the_model(approximation, kind):
    new, terms = torch.arange(25.0, dtype=F64)[:, None], k.Nodes(GRID, "diffusion")
    seen, y = new[:20], torch.sin(new[:20, 0])
    kernel = moved(kernel_of(terms, approximation, X=seen, seed=3))
    assert kind is None or type(kernel(seen).evaluate_kernel()) is kind
    gp = gp_of(kernel, terms, approximation, x=seen.long(), y=y)
    assert_matches_the_model(kernel, gp, seen, y, new, new.long())


def test_equal_values_are_not_the_same_row():
    kernel = kernel_of(NUMBERS, rfgp.InducingPoints(6, method="fitc"), X=X, seed=0)
    missing = kernel(X).to_dense() - kernel(X, X.clone()).to_dense()
    torch.testing.assert_close(missing, missing.diagonal().diag())
    assert missing.diagonal().max() > 1e-4


def test_plans_avoid_sparse_precisions():
    many = torch.arange(300, dtype=F64).repeat(2)[:, None]
    assert kernel_of(k.Group(0), X=many).approximations == {"group(0)": rfgp.Exact()}
    roads = k.Roads(graphs.RoadNetwork.from_lines([[(0.0, 0.0), (1.0, 0.0)], [(1.0, 0.0), (1.0, 2.0)]]))
    rows = torch.stack([torch.arange(2, dtype=F64).repeat(5), torch.linspace(0, 1, 10, dtype=F64)], dim=1)
    kernel = kernel_of(roads, X=rows)
    torch.testing.assert_close(kernel(rows).to_dense(), roads.matrix(rows, values=values_of(kernel)))


def test_the_kernel_of_a_model_keeps_its_hyperparameters():
    gp = rfgp.GP(MIXED, approximation=rfgp.Exact(), seed=0, start={"noise": 0.05}).condition(X, 10 + 3 * Y)
    kernel = kernel_of(gp.kernel, rfgp.Exact(), X=X)
    expected = {path: gp.hyperparameters[path].tolist() for path in kernel.hyperparameters}
    assert values_of(kernel) == {path: pytest.approx(value) for path, value in expected.items()}
    torch.testing.assert_close(kernel(X, Z).to_dense(), gp.kernel.matrix(X, Z, expected), rtol=0, atol=1e-8)


# --- gradients, priors and learned draws ---------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("approximation", THREE, ids=repr)
def test_gradients_match_differences(approximation):
    kernel = moved(kernel_of(MIXED, approximation, X=X, seed=0))
    parameters = {name: raw for name, raw in kernel.named_parameters() if raw.requires_grad}
    rows, level = X[:5, :2].clone().requires_grad_(), X[:5, 2:]

    def covariance(numbers, *raw):
        inputs, called = torch.cat([numbers, level], dim=1), dict(zip(parameters, raw, strict=True))
        with gpytorch.settings.lazily_evaluate_kernels(False):
            parts = [torch.func.functional_call(kernel, called, given) for given in ((inputs, X[5:9]), (inputs,))]
        return torch.cat([part.to_dense() for part in parts], dim=1)

    raw = tuple(raw.detach().requires_grad_() for raw in parameters.values())
    assert torch.autograd.gradcheck(covariance, (rows, *raw), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "approximation", [rfgp.RandomFeatures(8, learn_frequencies=True), rfgp.InducingPoints(6, learn_locations=True)]
)
def test_draws_are_learned(approximation):
    kernel = kernel_of(NUMBERS, {"trend": approximation}, X=X, seed=3)
    model = trained_like(kernel)
    before = log_likelihood(model)
    (path,) = [path for path in kernel.hyperparameters if path not in kernel.quantities]
    raw = getattr(kernel, kernel.raw_names[path])
    (slope,) = torch.autograd.grad(before, raw)
    raw.data += 0.02 * slope.sign()
    assert log_likelihood(model) > before + 0.02
    other = kernel_of(NUMBERS, {"trend": approximation}, X=X, seed=4)
    other.load_state_dict(kernel.state_dict())
    torch.testing.assert_close(other(X, Z).to_dense(), kernel(X, Z).to_dense())
    torch.testing.assert_close(kernel.with_approximation({})(X).to_dense(), kernel(X).to_dense())
    assert list(kernel.exact().hyperparameters) == kernel.quantities


def test_priors_take_part_and_fixed_values_stay():
    prior = gpytorch.priors.GammaPrior(3.0, 6.0)
    options = {"priors": {"trend.lengthscale": prior}, "fixed": "*.outputscale", "start": {"trend.lengthscale": 0.4}}
    kernel = kernel_of(NUMBERS, rfgp.Exact(), X=X, **options)
    torch.testing.assert_close(kernel.hyperparameters["lengthscale"].detach(), torch.full((2,), 0.4, dtype=F64))
    model = trained_like(kernel)
    without = model.likelihood(model(X)).log_prob(Y)
    torch.testing.assert_close(log_likelihood(model), without + prior.log_prob(torch.full((2,), 0.4)).sum())
    kernel.sample_from_prior("trend_lengthscale_prior")
    assert kernel.hyperparameters["lengthscale"][0] != 0.4
    assert [name for name, raw in kernel.named_parameters() if not raw.requires_grad] == ["raw_trend_outputscale"]


# --- batches, states and other approximations ----------------------------------------------------


@pytest.mark.parametrize("approximation", THREE, ids=repr)
def test_batches_of_kernels_and_of_inputs(approximation):
    kernel = kernel_of(MIXED, approximation, X=X, seed=3, batch_shape=torch.Size([2]))
    one = kernel_of(MIXED, approximation, X=X, seed=3)
    scales, inputs = torch.tensor([[0.3, 0.4], [0.5, 0.9]], dtype=F64), torch.stack([X[:6], Z[:6]])
    kernel.hyperparameters["trend.lengthscale"] = scales
    calls = [lambda f, x: f(x).to_dense(), lambda f, x: f(x, X).to_dense(), lambda f, x: f(x, diag=True)]
    found = [call(kernel, inputs.unsqueeze(1)) for call in calls]
    for place in range(2):
        one.hyperparameters["trend.lengthscale"] = scales[place]
        torch.testing.assert_close(kernel[place](inputs).to_dense(), one(inputs).to_dense())
        for number in range(2):
            for call, batch in zip(calls, found, strict=True):
                torch.testing.assert_close(batch[number, place], call(one, inputs[number]))


@pytest.mark.parametrize("approximation", THREE, ids=repr)
def test_a_batch_of_inputs_beside_one_set_of_rows(approximation):
    kernel = kernel_of(MIXED, approximation, X=X, seed=3)
    inputs = torch.stack([X[:6], X[6:12], Z[:6]]).requires_grad_()
    expected = torch.stack([kernel(one, X).to_dense() for one in inputs])
    (slope,) = torch.autograd.grad(expected.square().sum(), inputs)
    for rows in (X, X.repeat(3, 1, 1).requires_grad_()):
        found = kernel(inputs, rows).to_dense()
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(torch.autograd.grad(found.square().sum(), inputs)[0], slope)


@pytest.mark.parametrize("approximation", THREE, ids=repr)
def test_copies_and_saved_states_have_the_draws(approximation, tmp_path):
    kernel = moved(kernel_of(MIXED, approximation, X=X, seed=0)).with_approximation({})
    torch.save(kernel.state_dict(), tmp_path / "kernel.pt")
    loaded = kernel_of(MIXED, approximation, X=X, seed=1)
    loaded.load_state_dict(torch.load(tmp_path / "kernel.pt", weights_only=True))
    for other in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel)), loaded):
        torch.testing.assert_close(other(X, Z).to_dense(), kernel(X, Z).to_dense())
        other.hyperparameters["trend.lengthscale"] = 0.1
        assert values_of(other)["trend.lengthscale"] == pytest.approx([0.1, 0.1])
        assert values_of(kernel) != values_of(other)
        assert "trend.lengthscale" in repr(other.hyperparameters)


def test_other_approximations_keep_the_hyperparameters():
    kernel = moved(kernel_of(MIXED, DRAWN, X=X, seed=0))
    points = kernel.with_approximation({"trend": rfgp.InducingPoints(6)})
    assert points.approximations["trend"] == rfgp.InducingPoints(6)
    assert points.approximations["periodic(1)"] == DRAWN
    exact = kernel.exact()
    assert isinstance(exact, TermKernel)
    torch.testing.assert_close(exact(X).to_dense(), moved(kernel_of(MIXED, rfgp.Exact(), X=X))(X).to_dense())


# --- refusals ------------------------------------------------------------------------------------


def state():
    return kernel_of(NUMBERS, DRAWN, X=X, seed=0).state_dict()


def changed(kernel, **parts):
    """Return the state of a kernel with other parts."""
    content = json.loads(bytes(kernel.get_extra_state().tolist()))
    return torch.tensor(list(json.dumps({**content, **parts}).encode()), dtype=torch.uint8)


def numbers(approximation="auto", **options):
    return kernel_of(NUMBERS, approximation, **{"X": X, "seed": 0, **options})


RESIDUAL = rfgp.InducingPoints(5, residual=rfgp.Vecchia(5))
NORMAL = torch.distributions.Normal(0.0, 1.0)
INVALID = rfgp.InvalidArgumentError
BAD_CALLS = [
    (lambda: kernel_of(NUMBERS, {"trend": RESIDUAL}, X=X), INVALID, "neighbors"),
    (lambda: kernel_of(MIXED, {"group(2)": rfgp.SparsePrecision()}, X=X), INVALID, "sparse precision"),
    (lambda: kernel_of(NUMBERS, rfgp.InducingPoints(5, method="vfe"), X=X), INVALID, "bound"),
    (lambda: kernel_of(NUMBERS, "exact", X=X), INVALID, "approximation"),
    (lambda: numbers(start={"noise": 1.0}), INVALID, "noise"),
    (lambda: numbers(priors={"lengthscale": NORMAL}), INVALID, "GPyTorch prior"),
    (lambda: numbers(X=[[1.0], [2.0]]), INVALID, "X must be"),
    (lambda: numbers(X=X[:, :0]), INVALID, "one column"),
    (lambda: kernel_of(k.Group(0), X=X), rfgp.DataError, "levels"),
    (lambda: numbers()(X[:, :2]).to_dense(), INVALID, "3 columns"),
    (lambda: numbers()(X, last_dim_is_batch=True).to_dense(), INVALID, "last_dim_is_batch"),
    (lambda: setitem(numbers().hyperparameters, "trend.lengthscale", [1.0, 2.0, 3.0]), INVALID, "shape"),
    (lambda: numbers(DRAWN, X=X + 1).load_state_dict(state()), INVALID, "other rows"),
    (lambda: numbers(rfgp.RandomFeatures(7)).load_state_dict(state()), INVALID, "approximations"),
    (lambda: numbers().set_extra_state(torch.tensor([255], dtype=torch.uint8)), INVALID, "no state"),
    (lambda: numbers().set_extra_state(changed(numbers(), values=3)), INVALID, "no state"),
    (lambda: numbers().set_extra_state(changed(numbers(), values={"noise": 1.0})), INVALID, "no state"),
]


@pytest.mark.filterwarnings("ignore:The last_dim_is_batch argument")
@pytest.mark.parametrize(("call", "error", "word"), BAD_CALLS)
def test_bad_calls_are_named(call, error, word):
    refused(call, error, word)


def test_inputs_of_integers_have_covariances_of_numbers():
    kernel, whole = kernel_of(k.RBF(0), DRAWN, X=X[:, :1], seed=0), torch.tensor([[0], [1]])
    torch.testing.assert_close(kernel(whole).to_dense(), kernel(whole.double()).to_dense())
    torch.testing.assert_close(kernel.features(whole), kernel.features(whole.double()))
