"""Kernels of terms in GPyTorch: covariances, marginal likelihoods and predictions are those of `rfgp.GP`."""

import copy
import pickle
import unittest

import gpytorch
import pytest
import torch
from gpytorch.models import exact_prediction_strategies as strategies
from gpytorch.test.base_kernel_test_case import BaseKernelTestCase
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
    """Rows of two numbers and a level."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.rand(n, 2, generator=generator, dtype=F64)
    return torch.cat([numbers, torch.randint(0, levels, (n, 1), generator=generator).double()], dim=1)


X = table(40, 0, 4)
Y = (
    torch.sin(6 * X[:, 0])
    + 0.3 * X[:, 2]
    + 0.1 * torch.randn(40, generator=torch.Generator().manual_seed(1), dtype=F64)
)
Z = torch.cat([X[:3], table(8, 2, 7)])  # rows of X, and new levels
MIXED = k.RBF((0, 1), name="trend") + k.Group(2) + k.Linear(1) * k.Matern(0) + k.Periodic(1, period=0.5)
NUMBERS = k.Matern((0, 1), nu=2.5, name="trend") + k.Linear(1)
APPROXIMATIONS = [
    "auto",
    rfgp.Exact(),
    rfgp.RandomFeatures(4),
    rfgp.RandomFeatures(40),
    rfgp.InducingPoints(6),
    rfgp.InducingPoints(6, method="sor"),
    {"trend": rfgp.InducingPoints(8, method="fitc")},
]
LAPLACE = {"trend": rfgp.RandomFeatures(8, kind="laplace")}


def moved(kernel):
    """Move the hyperparameters that are learned from their starting values."""
    for number, (path, value) in enumerate(kernel.hyperparameters.items()):
        if value.requires_grad:
            kernel.hyperparameters[path] = value.detach() * (1.1 + 0.1 * number)
    return kernel


def values_of(kernel):
    return {path: kernel.hyperparameters[path].detach().tolist() for path in kernel.quantities}


def gp_of(kernel, terms, approximation, x=X, y=Y, seed=3):
    """`rfgp.GP` with the draws of `kernel_of(terms, approximation, X=x, seed=seed)`, then its hyperparameters."""
    gp = rfgp.GP(terms, approximation=approximation, seed=seed, standardize=False).condition(x, y)
    for path, value in {**values_of(kernel), "noise": NOISE, "mean": MEAN}.items():
        gp.hyperparameters[path] = value
    return gp


def trained_like(kernel, x=X, y=Y):
    model = Model(x, y, kernel).double()
    model.likelihood.noise = torch.tensor(NOISE, dtype=F64)
    model.mean_module.constant.data.fill_(MEAN)
    return model


def log_likelihood(model, x, y):
    model.train()
    return len(y) * gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)(model(x), y)


# --- covariances ---------------------------------------------------------------------------------


def test_exact_terms_match_the_kernel_matrix():
    terms = k.RBF((0, 1), name="trend") + k.Group(2) + k.Linear(1, origin=0.2) + 2.0 * k.Periodic(0, period=0.3)
    kernel = moved(kernel_of(terms, rfgp.Exact(), X=X))
    expected = terms.matrix(X, values=values_of(kernel))
    torch.testing.assert_close(kernel(X).to_dense(), expected, rtol=0, atol=1e-8)
    torch.testing.assert_close(kernel(X, Z).to_dense(), terms.matrix(X, Z, values_of(kernel)), rtol=0, atol=1e-8)
    torch.testing.assert_close(kernel(X, diag=True), expected.diagonal(), rtol=0, atol=1e-8)


@pytest.mark.filterwarnings("ignore::rfgp.errors.JitterWarning")  # of rfgp.GP, for smooth terms without noise
@pytest.mark.parametrize("terms", [MIXED, NUMBERS], ids=["mixed", "numbers"])
@pytest.mark.parametrize("approximation", [*APPROXIMATIONS, LAPLACE], ids=repr)
def test_covariance_and_predictions_match_the_model(terms, approximation):
    if approximation is LAPLACE and terms is NUMBERS:
        terms = k.RBF((0, 1), name="trend") + k.Linear(1)
    kernel = moved(kernel_of(terms, approximation, X=X, seed=3))
    gp = gp_of(kernel, terms, approximation)
    assert gp.state.spec.approximations.keys() == kernel.approximations.keys()
    prior = gp.state.spec.prior(gp.state.hyperparameters)
    rows, new = (gp.state.spec.inputs.read(x)[0] for x in (X, Z))
    model = trained_like(kernel)
    evidence = log_likelihood(model, X, Y)
    model.eval()
    has_chain = rfgp.SparsePrecision() in gp.spec.approximations.values()
    close = {"rtol": 0, "atol": 1e-7 if has_chain else 1e-8}  # a chain is solved by its precision in the model
    with torch.no_grad():
        torch.testing.assert_close(kernel(X).to_dense(), prior.kernel(rows, rows), **close)
        torch.testing.assert_close(kernel(X, Z).to_dense(), prior.kernel(rows, new), **close)
        torch.testing.assert_close(kernel(X, diag=True), prior.diagonal(rows), **close)
        found, expected = model(Z), gp.predict(Z)
    torch.testing.assert_close(evidence.item(), gp.log_marginal_likelihood().item(), **close)
    torch.testing.assert_close(found.mean, expected.mean, **close)
    torch.testing.assert_close(found.covariance_matrix, expected.covariance, **close)


@pytest.mark.parametrize(
    ("approximation", "kind"),
    [
        (rfgp.RandomFeatures(4), LowRankRootLinearOperator),
        (rfgp.RandomFeatures(40), RootLinearOperator),
        (rfgp.InducingPoints(6, method="sor"), LowRankRootLinearOperator),
        (rfgp.InducingPoints(6, method="fitc"), LowRankRootAddedDiagLinearOperator),
    ],
    ids=repr,
)
def test_weights_give_a_low_rank(approximation, kind):
    assert type(kernel_of(NUMBERS, approximation, X=X, seed=0)(X).evaluate_kernel()) is kind


def test_products_of_features_have_their_strategy():
    known = getattr(strategies, "LinearPredictionStrategy", strategies.DefaultPredictionStrategy)
    model = trained_like(kernel_of(NUMBERS, rfgp.RandomFeatures(8), X=X, seed=0)).eval()
    model(Z)
    assert type(model.prediction_strategy) is known


def test_equal_values_are_not_the_same_row():
    kernel = kernel_of(NUMBERS, rfgp.InducingPoints(6, method="fitc"), X=X, seed=0)
    same, equal = kernel(X).to_dense(), kernel(X, X.clone()).to_dense()
    missing = same - equal
    torch.testing.assert_close(missing, missing.diagonal().diag())
    assert missing.diagonal().max() > 1e-4


def test_a_kernel_without_columns():
    kernel = kernel_of(2.0 * k.Constant(), X=X)
    torch.testing.assert_close(kernel(X[:3], Z).to_dense(), torch.full((3, len(Z)), 2.0, dtype=F64))


def test_levels_without_gradients_join_numbers_with():
    terms = k.Group(2) * k.Matern((0, 1)) + k.Categorical(2)
    kernel = kernel_of(terms, rfgp.Exact(), X=X)
    new = Z.clone().requires_grad_()
    kernel(new, X).to_dense().sum().backward()
    assert (new.grad[:, :2] != 0).any()
    assert (new.grad[:, 2] == 0).all()


def test_the_kernel_of_a_model_keeps_its_hyperparameters():
    terms = k.Matern((0, 1), name="trend") + k.Group(2) + k.Periodic(1, period=0.5) * k.Matern(0)
    gp = rfgp.GP(terms, approximation=rfgp.Exact(), seed=0, start={"noise": 0.05}).condition(X, 10 + 3 * Y)
    kernel = kernel_of(gp.kernel, rfgp.Exact(), X=X)
    expected = {path: gp.hyperparameters[path].tolist() for path in kernel.hyperparameters}
    assert values_of(kernel) == {path: pytest.approx(value) for path, value in expected.items()}
    torch.testing.assert_close(kernel(X, Z).to_dense(), gp.kernel.matrix(X, Z, expected), rtol=0, atol=1e-8)


# --- gradients and training ----------------------------------------------------------------------


@pytest.mark.parametrize("approximation", [rfgp.Exact(), rfgp.RandomFeatures(6), rfgp.InducingPoints(5)], ids=repr)
def test_gradients_match_finite_differences(approximation):
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


@pytest.mark.parametrize("approximation", [rfgp.Exact(), rfgp.RandomFeatures(16), rfgp.InducingPoints(10)], ids=repr)
def test_training_improves_the_likelihood(approximation):
    kernel = kernel_of(MIXED, approximation, X=X, seed=0)
    model = trained_like(kernel)
    before, start = log_likelihood(model, X, Y).item(), values_of(kernel)
    losses = descend(lambda: -log_likelihood(model, X, Y), model.parameters(), 30)
    assert -losses[-1] > before + 2
    after = values_of(kernel)
    assert after["periodic(1).period"] == start["periodic(1).period"]  # learn_period=False
    assert all(after[path] != value for path, value in start.items() if path != "periodic(1).period")


@pytest.mark.parametrize(
    ("approximation", "shape"),
    [(rfgp.RandomFeatures(8, learn_frequencies=True), 8), (rfgp.InducingPoints(6, learn_locations=True), 6)],
    ids=repr,
)
def test_draws_are_learned(approximation, shape):
    kernel = kernel_of(NUMBERS, {"trend": approximation}, X=X, seed=3)
    gp = gp_of(kernel, NUMBERS, {"trend": approximation})
    model = trained_like(kernel)
    before = log_likelihood(model, X, Y)
    torch.testing.assert_close(before.item(), gp.log_marginal_likelihood().item(), rtol=0, atol=1e-8)
    (path,) = [path for path in kernel.hyperparameters if path not in kernel.quantities]
    assert shape in kernel.hyperparameters[path].shape
    losses = descend(lambda: -log_likelihood(model, X, Y), [getattr(kernel, kernel.raw_names[path])], 20, 0.02)
    assert -losses[-1] > before.item() + 0.1
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
    torch.testing.assert_close(log_likelihood(model, X, Y), without + prior.log_prob(torch.full((2,), 0.4)).sum())
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


# --- batches -------------------------------------------------------------------------------------


@pytest.mark.parametrize("approximation", [rfgp.Exact(), rfgp.RandomFeatures(6), rfgp.InducingPoints(6)], ids=repr)
def test_batches_of_kernels_and_of_inputs(approximation):
    kernel = kernel_of(MIXED, approximation, X=X, seed=3, batch_shape=torch.Size([2]))
    one = kernel_of(MIXED, approximation, X=X, seed=3)
    scales = torch.tensor([[0.3, 0.4], [0.5, 0.9]], dtype=F64)
    kernel.hyperparameters["trend.lengthscale"] = scales
    inputs = torch.stack([X[:6], X[6:12], Z[:6]])
    found, cross = kernel(inputs.unsqueeze(1)).to_dense(), kernel(inputs.unsqueeze(1), X).to_dense()
    variances = kernel(inputs.unsqueeze(1), diag=True)
    assert found.shape == (3, 2, 6, 6)
    for place in range(2):
        one.hyperparameters["trend.lengthscale"] = scales[place]
        torch.testing.assert_close(kernel[place](inputs).to_dense(), one(inputs).to_dense())
        for number in range(3):
            torch.testing.assert_close(found[number, place], one(inputs[number]).to_dense())
            torch.testing.assert_close(cross[number, place], one(inputs[number], X).to_dense())
            torch.testing.assert_close(variances[number, place], one(inputs[number], diag=True))


@pytest.mark.parametrize("approximation", [rfgp.Exact(), rfgp.RandomFeatures(6), rfgp.InducingPoints(6)], ids=repr)
def test_a_batch_and_one_set_of_rows(approximation):
    kernel = kernel_of(MIXED, approximation, X=X, seed=3)
    inputs = torch.stack([X[:6], X[6:12], Z[:6]]).requires_grad_()
    expected = torch.stack([kernel(one, X).to_dense() for one in inputs])
    (slope,) = torch.autograd.grad(expected.square().sum(), inputs)
    for rows in (X, X.expand(3, -1, -1), X.repeat(3, 1, 1), X.repeat(3, 1, 1).requires_grad_()):
        found = kernel(inputs, rows).to_dense()
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(torch.autograd.grad(found.square().sum(), inputs)[0], slope)
    own = kernel(X).to_dense()
    for rows in (X.expand(3, -1, -1), X.repeat(3, 1, 1)):
        torch.testing.assert_close(kernel(rows).to_dense(), own.expand(3, -1, -1))


class _Contract(BaseKernelTestCase):
    approximation = rfgp.Exact()

    def create_kernel_no_ard(self, batch_shape=None, active_dims=None):
        rows = torch.randn(
            30, 2 if active_dims is None else len(active_dims), generator=torch.Generator().manual_seed(0)
        )
        kernel = kernel_of(k.RBF(ard=False) + k.Linear(0), self.approximation, X=rows, seed=0, batch_shape=batch_shape)
        if active_dims is not None:
            kernel.active_dims = torch.as_tensor(active_dims)
        return kernel

    def create_data_no_batch(self):
        return torch.randn(50, 2, generator=torch.Generator().manual_seed(1))

    def create_data_single_batch(self):
        return torch.randn(2, 3, 2, generator=torch.Generator().manual_seed(1))

    def create_data_double_batch(self):
        return torch.randn(3, 2, 50, 2, generator=torch.Generator().manual_seed(1))

    @unittest.skip("The columns of terms take the place of active_dims.")
    def test_active_dims_list(self):
        pass

    test_active_dims_range = test_active_dims_list


class TestExactContract(_Contract, unittest.TestCase):
    pass


class TestFeatureContract(_Contract, unittest.TestCase):
    approximation = rfgp.RandomFeatures(8)


class TestPointContract(_Contract, unittest.TestCase):
    approximation = rfgp.InducingPoints(8, method="sor")


# --- states --------------------------------------------------------------------------------------


@pytest.mark.parametrize("approximation", [rfgp.Exact(), rfgp.RandomFeatures(6), rfgp.InducingPoints(6)], ids=repr)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda kernel: pickle.loads(pickle.dumps(kernel))])
def test_copies_have_the_draws(approximation, copied):
    kernel = moved(kernel_of(MIXED, approximation, X=X))
    other = copied(kernel)
    torch.testing.assert_close(other(X, Z).to_dense(), kernel(X, Z).to_dense())
    other.hyperparameters["trend.lengthscale"] = 0.1
    assert values_of(kernel) != values_of(other)


@pytest.mark.parametrize("approximation", [rfgp.Exact(), rfgp.RandomFeatures(6), rfgp.InducingPoints(6)], ids=repr)
def test_a_state_dict_repeats_the_draws(approximation, tmp_path):
    kernel = moved(kernel_of(MIXED, approximation, X=X, seed=0)).with_approximation({})
    torch.save(kernel.state_dict(), tmp_path / "kernel.pt")
    other = kernel_of(MIXED, approximation, X=X, seed=1)
    other.load_state_dict(torch.load(tmp_path / "kernel.pt", weights_only=True))
    torch.testing.assert_close(other(X, Z).to_dense(), kernel(X, Z).to_dense())


def test_other_states_are_refused():
    state = kernel_of(NUMBERS, rfgp.RandomFeatures(6), X=X, seed=0).state_dict()
    for other, word in [
        (kernel_of(NUMBERS, rfgp.RandomFeatures(6), X=X + 1, seed=0), "other rows"),
        (kernel_of(NUMBERS, rfgp.RandomFeatures(7), X=X, seed=0), "has the approximations"),
    ]:
        with pytest.raises(rfgp.InvalidArgumentError, match=word):
            other.load_state_dict(state)
    for wrong in (None, torch.tensor([255], dtype=torch.uint8), torch.frombuffer(bytearray(b"[1]"), dtype=torch.uint8)):
        with pytest.raises(rfgp.InvalidArgumentError, match="no state"):
            other.set_extra_state(wrong)


def test_other_approximations_keep_the_hyperparameters():
    kernel = moved(kernel_of(MIXED, rfgp.RandomFeatures(6), X=X, seed=0))
    points = kernel.with_approximation({"trend": rfgp.InducingPoints(6)})
    assert points.approximations["trend"] == rfgp.InducingPoints(6)
    assert points.approximations["periodic(1)"] == rfgp.RandomFeatures(6)
    exact = kernel.exact()
    assert isinstance(exact, TermKernel)
    expected = moved(kernel_of(MIXED, rfgp.Exact(), X=X))
    torch.testing.assert_close(exact(X).to_dense(), expected(X).to_dense())
    with pytest.raises(rfgp.InvalidArgumentError, match="neighbo"):
        kernel.with_approximation({"trend": rfgp.Vecchia(5)})


@pytest.mark.parametrize("approximation", [rfgp.Exact(), rfgp.RandomFeatures(6), rfgp.InducingPoints(6)], ids=repr)
def test_single_precision(approximation):
    kernel = kernel_of(MIXED, approximation, X=X.float(), seed=0)
    assert all(raw.dtype == torch.float32 for raw in kernel.parameters())
    found = kernel(X.float(), Z.float()).to_dense()
    assert found.dtype == kernel(X.float(), diag=True).dtype == torch.float32
    expected = kernel_of(MIXED, approximation, X=X, seed=0)(X, Z).to_dense()
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-4)
    torch.testing.assert_close(kernel.double()(X, Z).to_dense(), expected, rtol=0, atol=1e-4)


# --- nodes and fields ----------------------------------------------------------------------------

GRID = graphs.Graph.from_grid((5, 5))
NODES = torch.arange(20, dtype=F64).unsqueeze(1)


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
    y = torch.sin(NODES[:, 0])
    terms = k.Nodes(GRID, "diffusion")
    kernel = moved(kernel_of(terms, approximation, X=NODES, seed=3))
    assert kind is None or type(kernel(NODES).evaluate_kernel()) is kind
    gp = gp_of(kernel, terms, approximation, x=NODES.long(), y=y)
    model = trained_like(kernel, NODES, y)
    evidence = log_likelihood(model, NODES, y)
    evidence.backward()
    assert all(raw.grad is not None for raw in kernel.parameters())
    new = torch.arange(25, dtype=F64).unsqueeze(1)
    model.eval()
    with torch.no_grad():
        found, expected = model(new), gp.predict(new.long())
    torch.testing.assert_close(evidence.item(), gp.log_marginal_likelihood().item(), rtol=0, atol=1e-7)
    torch.testing.assert_close(found.mean, expected.mean, rtol=0, atol=1e-7)
    torch.testing.assert_close(found.variance, expected.variance, rtol=0, atol=1e-7)


def test_plans_avoid_sparse_precisions():
    lines = [[(0.0, 0.0), (1.0, 0.0)], [(1.0, 0.0), (1.0, 2.0)]]
    roads = k.Roads(graphs.RoadNetwork.from_lines(lines))
    many = torch.arange(300, dtype=F64).repeat(2).unsqueeze(1)
    kernel = kernel_of(k.Group(0), X=many)
    assert kernel.approximations == {"group(0)": rfgp.Exact()}
    assert kernel(many).evaluate_kernel().root.shape == (600, 300)
    rows = torch.stack([torch.arange(2, dtype=F64).repeat(5), torch.linspace(0, 1, 10, dtype=F64)], dim=1)
    kernel = kernel_of(roads, X=rows)
    torch.testing.assert_close(kernel(rows).to_dense(), roads.matrix(rows, values=values_of(kernel)))


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("terms", "approximation", "word"),
    [
        (NUMBERS, rfgp.Vecchia(5), "neighbors"),
        (NUMBERS, {"trend": rfgp.Vecchia(5)}, "neighbors"),
        (NUMBERS, {"trend": rfgp.InducingPoints(5, residual=rfgp.Vecchia(5))}, "neighbors"),
        (MIXED, {"group(2)": rfgp.SparsePrecision()}, "sparse precision"),
        (NUMBERS, rfgp.InducingPoints(5, method="vfe"), "bound"),
        (NUMBERS, {"season": rfgp.Exact()}, "no term 'season'"),
        (NUMBERS, "exact", "approximation must be"),
        ("rbf", "auto", "kernel must be"),
    ],
)
def test_approximations_without_covariance_are_refused(terms, approximation, word):
    with pytest.raises(rfgp.InvalidArgumentError, match=word):
        kernel_of(terms, approximation, X=X)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"start": {"noise": 1.0}}, "got 'noise'"),
        ({"start": {"lengthscale": 1e9}}, "between"),
        ({"start": {"lengthscale": -1.0}}, "positive"),
        ({"priors": {"lengthscale": torch.distributions.Normal(0.0, 1.0)}}, "GPyTorch prior"),
        ({"priors": {"season": gpytorch.priors.NormalPrior(0.0, 1.0)}}, "season"),
        ({"fixed": "season"}, "season"),
        ({"X": [[1.0], [2.0]]}, "X must be"),
        ({"X": X[:1]}, "two rows"),
        ({"X": X[:, :0]}, "one column"),
    ],
)
def test_wrong_options_are_refused(options, word):
    with pytest.raises(rfgp.InvalidArgumentError, match=word):
        kernel_of(NUMBERS, **{"X": X, **options})


@pytest.mark.filterwarnings("ignore:The last_dim_is_batch argument")
def test_wrong_columns_are_refused():
    for terms, word in [(k.RBF(7), "no column 7"), (k.RBF("t"), "no column 't'"), (k.Group(0), "levels")]:
        with pytest.raises(rfgp.DataError, match=word):
            kernel_of(terms, X=X)
    kernel = kernel_of(NUMBERS, X=X)
    with pytest.raises(rfgp.InvalidArgumentError, match="3 columns"):
        kernel(X[:, :2]).to_dense()
    with pytest.raises(rfgp.InvalidArgumentError, match="last_dim_is_batch"):
        kernel(X, last_dim_is_batch=True).to_dense()
    with pytest.raises(rfgp.InvalidArgumentError, match="shape"):
        kernel.hyperparameters["trend.lengthscale"] = [1.0, 2.0, 3.0]
    with pytest.raises(rfgp.InvalidArgumentError, match="product"):
        kernel.features(X)
