"""Kernels of terms in GPyTorch: covariances, marginal likelihoods and predictions are those of `rfgp.GP`."""

import copy
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
from training import descend

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
    close = {"rtol": 0, "atol": 1e-7}
    with torch.no_grad():
        found, expected = model(new), gp.predict(new_of_gp)
    torch.testing.assert_close(evidence.item(), gp.log_marginal_likelihood().item(), **close)
    torch.testing.assert_close(found.mean, expected.mean, **close)
    torch.testing.assert_close(found.covariance_matrix, expected.covariance, **close)


# --- covariances ---------------------------------------------------------------------------------


def test_exact_terms_match_the_kernel_matrix():
    terms = k.RBF((0, 1), name="trend") + k.Group(2) + k.Linear(1, origin=0.2) + 2.0 * k.Periodic(0, period=0.3)
    kernel = moved(kernel_of(terms, rfgp.Exact(), X=X))
    expected = terms.matrix(X, values=values_of(kernel))
    torch.testing.assert_close(kernel(X).to_dense(), expected, rtol=0, atol=1e-8)
    torch.testing.assert_close(kernel(X, Z).to_dense(), terms.matrix(X, Z, values_of(kernel)), rtol=0, atol=1e-8)
    torch.testing.assert_close(kernel(X, diag=True), expected.diagonal(), rtol=0, atol=1e-8)


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
    pytest.param(rfgp.RandomFeatures(40), MIXED, None, marks=pytest.mark.slow),
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
    seen, new, terms = torch.arange(20)[:, None], torch.arange(25)[:, None], k.Nodes(GRID, "diffusion")
    kernel = moved(kernel_of(terms, approximation, X=seen.double(), seed=3))
    assert kind is None or type(kernel(seen.double()).evaluate_kernel()) is kind
    y = torch.sin(seen[:, 0].double())
    gp = gp_of(kernel, terms, approximation, x=seen, y=y)
    assert_matches_the_model(kernel, gp, seen.double(), y, new.double(), new)


def test_equal_values_are_not_the_same_row():
    kernel = kernel_of(NUMBERS, rfgp.InducingPoints(6, method="fitc"), X=X, seed=0)
    missing = kernel(X).to_dense() - kernel(X, X.clone()).to_dense()
    torch.testing.assert_close(missing, missing.diagonal().diag())
    assert missing.diagonal().max() > 1e-4


def test_plans_avoid_sparse_precisions():
    many = torch.arange(300, dtype=F64).repeat(2)[:, None]
    kernel = kernel_of(k.Group(0), X=many)
    assert kernel.approximations == {"group(0)": rfgp.Exact()}
    assert kernel(many).evaluate_kernel().root.shape == (600, 300)
    roads = k.Roads(graphs.RoadNetwork.from_lines([[(0.0, 0.0), (1.0, 0.0)], [(1.0, 0.0), (1.0, 2.0)]]))
    rows = torch.stack([torch.arange(2, dtype=F64).repeat(5), torch.linspace(0, 1, 10, dtype=F64)], dim=1)
    kernel = kernel_of(roads, X=rows)
    torch.testing.assert_close(kernel(rows).to_dense(), roads.matrix(rows, values=values_of(kernel)))


def test_the_kernel_of_a_model_keeps_its_hyperparameters():
    terms = k.Matern((0, 1), name="trend") + k.Group(2) + k.Periodic(1, period=0.5) * k.Matern(0)
    gp = rfgp.GP(terms, approximation=rfgp.Exact(), seed=0, start={"noise": 0.05}).condition(X, 10 + 3 * Y)
    kernel = kernel_of(gp.kernel, rfgp.Exact(), X=X)
    expected = {path: gp.hyperparameters[path].tolist() for path in kernel.hyperparameters}
    assert values_of(kernel) == {path: pytest.approx(value) for path, value in expected.items()}
    torch.testing.assert_close(kernel(X, Z).to_dense(), gp.kernel.matrix(X, Z, expected), rtol=0, atol=1e-8)


# --- gradients, priors and learned draws ---------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("approximation", THREE, ids=repr)
def test_gradients_match_differences(approximation):
    kernel = moved(kernel_of(MIXED, approximation, X=X, seed=0))
    names = [name for name, raw in kernel.named_parameters() if raw.requires_grad]
    rows, level = X[:5, :2].clone().requires_grad_(), X[:5, 2:]

    def covariance(numbers, *raw):
        inputs = torch.cat([numbers, level], dim=1)
        called = dict(zip(names, raw, strict=True))
        with gpytorch.settings.lazily_evaluate_kernels(False):
            both = torch.func.functional_call(kernel, called, (inputs, X[5:9])).to_dense()
            own = torch.func.functional_call(kernel, called, (inputs,)).to_dense()
        return torch.cat([both, own], dim=1)

    raw = tuple(getattr(kernel, name).detach().requires_grad_() for name in names)
    assert torch.autograd.gradcheck(covariance, (rows, *raw), atol=1e-5)


@pytest.mark.parametrize(
    ("approximation", "shape"),
    [(rfgp.RandomFeatures(8, learn_frequencies=True), 8), (rfgp.InducingPoints(6, learn_locations=True), 6)],
    ids=repr,
)
@pytest.mark.slow
def test_draws_are_learned(approximation, shape):
    kernel = kernel_of(NUMBERS, {"trend": approximation}, X=X, seed=3)
    gp, model = gp_of(kernel, NUMBERS, {"trend": approximation}), trained_like(kernel)
    before = log_likelihood(model)
    torch.testing.assert_close(before.item(), gp.log_marginal_likelihood().item(), rtol=0, atol=1e-8)
    (path,) = [path for path in kernel.hyperparameters if path not in kernel.quantities]
    assert shape in kernel.hyperparameters[path].shape
    losses = descend(lambda: -log_likelihood(model), [getattr(kernel, kernel.raw_names[path])], 8, 0.02)
    assert -losses[-1] > before.item() + 0.02
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


def test_hyperparameters_are_set_by_path():
    kernel = kernel_of(NUMBERS, X=X)
    kernel.hyperparameters["trend.lengthscale"] = [0.2, 0.4]
    assert values_of(kernel)["trend.lengthscale"] == pytest.approx([0.2, 0.4])
    assert list(kernel.hyperparameters) == list(kernel.raw_names)
    assert [*kernel.hyperparameters()] == [*kernel.parameters()]
    assert "trend.lengthscale" in repr(kernel.hyperparameters)


# --- batches, states and other approximations ----------------------------------------------------


@pytest.mark.parametrize("approximation", THREE, ids=repr)
def test_batches_of_kernels_and_of_inputs(approximation):
    kernel = kernel_of(MIXED, approximation, X=X, seed=3, batch_shape=torch.Size([2]))
    one = kernel_of(MIXED, approximation, X=X, seed=3)
    scales = torch.tensor([[0.3, 0.4], [0.5, 0.9]], dtype=F64)
    kernel.hyperparameters["trend.lengthscale"] = scales
    inputs = torch.stack([X[:6], Z[:6]])
    found, cross = kernel(inputs.unsqueeze(1)).to_dense(), kernel(inputs.unsqueeze(1), X).to_dense()
    variances = kernel(inputs.unsqueeze(1), diag=True)
    for place in range(2):
        one.hyperparameters["trend.lengthscale"] = scales[place]
        torch.testing.assert_close(kernel[place](inputs).to_dense(), one(inputs).to_dense())
        for number in range(2):
            torch.testing.assert_close(found[number, place], one(inputs[number]).to_dense())
            torch.testing.assert_close(cross[number, place], one(inputs[number], X).to_dense())
            torch.testing.assert_close(variances[number, place], one(inputs[number], diag=True))


@pytest.mark.parametrize("approximation", THREE, ids=repr)
def test_a_batch_of_inputs_beside_one_set_of_rows(approximation):
    kernel = kernel_of(MIXED, approximation, X=X, seed=3)
    inputs = torch.stack([X[:6], X[6:12], Z[:6]]).requires_grad_()
    expected = torch.stack([kernel(one, X).to_dense() for one in inputs])
    (slope,) = torch.autograd.grad(expected.square().sum(), inputs)
    for rows in (X, X.expand(3, -1, -1), X.repeat(3, 1, 1).requires_grad_()):
        found = kernel(inputs, rows).to_dense()
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(torch.autograd.grad(found.square().sum(), inputs)[0], slope)
    torch.testing.assert_close(kernel(X.repeat(3, 1, 1)).to_dense(), kernel(X).to_dense().expand(3, -1, -1))


@pytest.mark.parametrize("approximation", THREE, ids=repr)
def test_copies_and_saved_states_have_the_draws(approximation, tmp_path):
    kernel = moved(kernel_of(MIXED, approximation, X=X, seed=0)).with_approximation({})
    torch.save(kernel.state_dict(), tmp_path / "kernel.pt")
    loaded = kernel_of(MIXED, approximation, X=X, seed=1)
    loaded.load_state_dict(torch.load(tmp_path / "kernel.pt", weights_only=True))
    for other in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel)), loaded):
        torch.testing.assert_close(other(X, Z).to_dense(), kernel(X, Z).to_dense())
        other.hyperparameters["trend.lengthscale"] = 0.1
        assert values_of(kernel) != values_of(other)


@pytest.mark.parametrize("approximation", THREE, ids=repr)
def test_single_precision_is_close_to_double(approximation):
    kernel = kernel_of(MIXED, approximation, X=X.float(), seed=0)
    assert all(raw.dtype == torch.float32 for raw in kernel.parameters())
    found = kernel(X.float(), Z.float()).to_dense()
    assert found.dtype == kernel(X.float(), diag=True).dtype == torch.float32
    expected = kernel_of(MIXED, approximation, X=X, seed=0)(X, Z).to_dense()
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-4)
    torch.testing.assert_close(kernel.double()(X, Z).to_dense(), expected, rtol=0, atol=1e-4)


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


def numbers(approximation="auto", **options):
    return kernel_of(NUMBERS, approximation, **{"X": X, "seed": 0, **options})


RESIDUAL = rfgp.InducingPoints(5, residual=rfgp.Vecchia(5))
NORMAL = torch.distributions.Normal(0.0, 1.0)
BAD_CALLS = [
    (lambda: kernel_of(NUMBERS, rfgp.Vecchia(5), X=X), "neighbors"),
    (lambda: kernel_of(NUMBERS, {"trend": RESIDUAL}, X=X), "neighbors"),
    (lambda: numbers().with_approximation({"trend": rfgp.Vecchia(5)}), "neighbors"),
    (lambda: kernel_of(MIXED, {"group(2)": rfgp.SparsePrecision()}, X=X), "sparse precision"),
    (lambda: kernel_of(NUMBERS, rfgp.InducingPoints(5, method="vfe"), X=X), "bound"),
    (lambda: kernel_of(NUMBERS, {"season": rfgp.Exact()}, X=X), "season"),
    (lambda: kernel_of(NUMBERS, "exact", X=X), "approximation"),
    (lambda: kernel_of("rbf", X=X), "kernel"),
    (lambda: numbers(start={"noise": 1.0}), "noise"),
    (lambda: numbers(start={"lengthscale": 1e9}), "between"),
    (lambda: numbers(start={"lengthscale": -1.0}), "positive"),
    (lambda: numbers(priors={"lengthscale": NORMAL}), "GPyTorch prior"),
    (lambda: numbers(fixed="season"), "season"),
    (lambda: numbers(X=[[1.0], [2.0]]), "X must be"),
    (lambda: numbers(X=X[:1]), "two rows"),
    (lambda: numbers(X=X[:, :0]), "one column"),
    (lambda: kernel_of(k.RBF(7), X=X), "no column 7"),
    (lambda: kernel_of(k.RBF("t"), X=X), "no column 't'"),
    (lambda: kernel_of(k.Group(0), X=X), "levels"),
    (lambda: numbers()(X[:, :2]).to_dense(), "3 columns"),
    (lambda: numbers()(X, last_dim_is_batch=True).to_dense(), "last_dim_is_batch"),
    (lambda: setitem(numbers().hyperparameters, "trend.lengthscale", [1.0, 2.0, 3.0]), "shape"),
    (lambda: numbers().features(X), "product"),
    (lambda: numbers(DRAWN, X=X + 1).load_state_dict(state()), "other rows"),
    (lambda: numbers(rfgp.RandomFeatures(7)).load_state_dict(state()), "approximations"),
    (lambda: numbers().set_extra_state(torch.tensor([255], dtype=torch.uint8)), "no state"),
]


@pytest.mark.filterwarnings("ignore:The last_dim_is_batch argument")
@pytest.mark.parametrize(("call", "word"), BAD_CALLS)
def test_bad_calls_are_named(call, word):
    with pytest.raises((rfgp.InvalidArgumentError, rfgp.DataError), match=word):
        call()
