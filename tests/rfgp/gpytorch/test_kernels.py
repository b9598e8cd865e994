"""The random-feature kernel: GPyTorch's own contract, its strategies, and the exact kernel beside it."""

import copy
import pickle
import unittest
import warnings
from typing import ClassVar

import gpytorch
import pytest
import torch
from gpytorch.models import exact_prediction_strategies as strategies
from gpytorch.test.base_kernel_test_case import BaseKernelTestCase
from gpytorch_models import Model
from linear_operator.operators import LowRankRootLinearOperator, RootLinearOperator
from training import descend

import rfgp
from rfgp.gpytorch import RandomFeatureKernel, SpectrumKernel
from rfgp.gpytorch.kernels import encode

X = torch.randn(20, 3, generator=rfgp.random.generator(0))
Z = torch.randn(6, 3, generator=rfgp.random.generator(1))


@pytest.mark.parametrize("m", [4, 64])  # fewer and more features than points
@pytest.mark.parametrize("ard", [None, 3])
def test_matrices_are_those_of_the_features(m, ard):
    kernel = RandomFeatureKernel(m, seed=0, ard_num_dims=ard)
    kernel.lengthscale = 1.7
    phi_x, phi_z = (kernel.feature_map(a / 1.7) if kernel.feature_map else kernel.features(a) for a in (X, Z))
    torch.testing.assert_close(kernel(X).to_dense(), phi_x @ phi_x.T)
    torch.testing.assert_close(kernel(X, Z).to_dense(), phi_x @ phi_z.T)
    torch.testing.assert_close(kernel(X, diag=True), phi_x.square().sum(1))
    assert kernel.lengthscale.shape == (1, ard or 1)


def test_batches_and_active_dims():
    batch = torch.stack([X, X + 1])
    kernel = RandomFeatureKernel(8, seed=0, batch_shape=torch.Size([2]))
    kernel.lengthscale = torch.tensor([1.0, 2.0]).reshape(2, 1, 1)
    matrix = kernel(batch).to_dense()
    assert matrix.shape == (2, 20, 20)
    torch.testing.assert_close(matrix[1], kernel[1](batch[1]).to_dense())
    first = RandomFeatureKernel(8, seed=0, active_dims=(0, 2))
    torch.testing.assert_close(first(X).to_dense(), RandomFeatureKernel(8, seed=0)(X[:, [0, 2]]).to_dense())


def test_the_draw_is_a_sub_module_and_repeats():
    kernel = RandomFeatureKernel(8, num_dims=3, seed=5, coupling="orthogonal")
    assert isinstance(kernel.feature_map, rfgp.features.Fourier)
    other = RandomFeatureKernel(8, seed=5, coupling="orthogonal")
    torch.testing.assert_close(kernel(X).to_dense(), other(X).to_dense())
    with pytest.raises(rfgp.InvalidArgumentError, match="coupling must be"):
        RandomFeatureKernel(8, coupling="sorf")


def test_a_state_dict_repeats_the_draw():
    one, other = RandomFeatureKernel(8, seed=0), RandomFeatureKernel(8, num_dims=3, seed=1)
    expected = one(X).to_dense()
    other.load_state_dict(one.state_dict())
    torch.testing.assert_close(other(X).to_dense(), expected)
    with pytest.raises(rfgp.InvalidArgumentError, match="8 frequencies, not 9"):
        RandomFeatureKernel(9).load_state_dict(one.state_dict())


def test_an_exact_gp_trains_and_predicts():
    x = torch.linspace(0, 1, 60).unsqueeze(1)
    y = torch.sin(8 * x[:, 0])
    model = Model(x, y, gpytorch.kernels.ScaleKernel(RandomFeatureKernel(50, seed=0)))
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    losses = descend(lambda: -objective(model(x), y), model.parameters(), 60)
    assert losses[-1] < losses[0] - 0.5
    model.eval()
    with torch.no_grad():
        assert (model(x).mean - y).square().mean().sqrt() < 0.1


# --- GPyTorch's own contract ---------------------------------------------------------------------


class _Contract(BaseKernelTestCase):
    options: ClassVar[dict] = {}

    def create_kernel_no_ard(self, **kwargs):
        return RandomFeatureKernel(8, seed=0, **self.options, **kwargs)

    def create_kernel_ard(self, num_dims, **kwargs):
        return RandomFeatureKernel(8, seed=0, ard_num_dims=num_dims, **self.options, **kwargs)


class TestFourier(_Contract, unittest.TestCase):
    pass


class TestMatern(_Contract, unittest.TestCase):
    options: ClassVar[dict] = {"spectrum": rfgp.spectra.Matern(1.5), "coupling": "orthogonal"}


class TestStructured(_Contract, unittest.TestCase):
    options: ClassVar[dict] = {"coupling": "structured"}


class TestLaplace(_Contract, unittest.TestCase):
    options: ClassVar[dict] = {"features": "laplace"}

    def create_data_no_batch(self):
        return 0.2 * super().create_data_no_batch()  # positive features want points near the origin

    def create_data_single_batch(self):
        return 0.2 * super().create_data_single_batch()

    def create_data_double_batch(self):
        return 0.2 * super().create_data_double_batch()


class TestExact(BaseKernelTestCase, unittest.TestCase):
    def create_kernel_no_ard(self, **kwargs):
        return SpectrumKernel("product-cauchy", **kwargs)

    def create_kernel_ard(self, num_dims, **kwargs):
        return SpectrumKernel(rfgp.spectra.Matern(1.0), ard_num_dims=num_dims, **kwargs)


# --- the exact kernel ----------------------------------------------------------------------------

SPECTRA = [
    rfgp.spectra.Gaussian(),
    *(rfgp.spectra.Matern(nu) for nu in (0.5, 1.5, 2.5, 0.8)),
    rfgp.spectra.RationalQuadratic(0.7),
    rfgp.spectra.ProductLaplace(),
    rfgp.spectra.ProductCauchy(),
]


@pytest.mark.parametrize("spectrum", SPECTRA, ids=repr)
def test_exact_is_the_kernel_of_the_spectrum(spectrum):
    kernel = RandomFeatureKernel(4, spectrum, coupling="iid", seed=0, ard_num_dims=3, active_dims=(0, 2, 1)).double()
    kernel.lengthscale = torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64)
    exact = kernel.exact()
    x, z = (a.double()[:, [0, 2, 1]] / kernel.lengthscale.detach() for a in (X, Z))
    torch.testing.assert_close(exact(X.double(), Z.double()).to_dense(), spectrum.kernel_between(x, z))
    exact.lengthscale = 1.0
    assert kernel.lengthscale[0, 0].item() == pytest.approx(0.5)  # nothing is shared


@pytest.mark.parametrize("spectrum", SPECTRA, ids=repr)
def test_features_estimate_it(spectrum):
    """The mean of many draws lies within five standard errors of the exact kernel, 15 entries for each spectrum."""
    estimates = torch.stack([RandomFeatureKernel(8, spectrum, "iid", seed=s)(X[:6]).to_dense() for s in range(400)])
    exact = RandomFeatureKernel(8, spectrum, "iid", seed=0).exact()(X[:6]).to_dense()
    upper = torch.triu_indices(6, 6, 1)
    mean, error = estimates.mean(0), estimates.std(0) / 20
    z = ((mean - exact) / error)[upper[0], upper[1]]
    assert z.abs().max() < 6  # two-sided, 120 entries in all: a false-alarm rate of 3e-7


def test_exact_keeps_prior_constraint_and_batch():
    prior = gpytorch.priors.GammaPrior(3.0, 6.0)
    kernel = RandomFeatureKernel(
        8,
        seed=0,
        batch_shape=torch.Size([2]),
        lengthscale_prior=prior,
        lengthscale_constraint=gpytorch.constraints.Interval(0.1, 9.0),
    )
    kernel.lengthscale = torch.tensor([1.0, 2.0]).reshape(2, 1, 1)
    exact = kernel.exact()
    assert exact.batch_shape == torch.Size([2])
    torch.testing.assert_close(exact.lengthscale, kernel.lengthscale)
    assert isinstance(exact.lengthscale_prior, gpytorch.priors.GammaPrior)
    assert exact.raw_lengthscale_constraint.upper_bound == 9


# --- draws ---------------------------------------------------------------------------------------


LAW = {"feature_kind": "'fourier'", "coupling": "Energy()", "spectrum": "Gaussian()"}


def test_names_and_numbers_are_checked():
    for options, words in [
        ({"num_frequencies": 0}, "positive integer"),
        ({"num_frequencies": 2.0}, "positive integer"),
        ({"features": "cosine"}, "features must be one of"),
        ({"features": "laplace", "spectrum": "matern"}, "Gaussian spectrum"),
        ({"num_dims": 2, "ard_num_dims": 3}, "num_dims is 2"),
    ]:
        with pytest.raises(rfgp.InvalidArgumentError, match=words):
            RandomFeatureKernel(**options)


def test_another_number_of_columns_is_refused():
    kernel = RandomFeatureKernel(4, num_dims=3, seed=0)
    with pytest.raises(rfgp.InvalidArgumentError, match="3 columns"):
        kernel(X[:, :2]).to_dense()


def test_another_kind_of_features_is_refused_on_load():
    state = RandomFeatureKernel(4, num_dims=3, seed=0).state_dict()
    with pytest.raises(rfgp.InvalidArgumentError, match="feature_kind 'fourier', not 'laplace'"):
        RandomFeatureKernel(4, features="laplace").load_state_dict(state)


@pytest.mark.parametrize(
    "state",
    [
        {"seed": 0},
        None,
        torch.tensor([255, 254], dtype=torch.uint8),
        torch.frombuffer(bytearray(b"[1, 2]"), dtype=torch.uint8),
        encode({"seed": 0}),
        encode({"seed": "0", "num_dims": 3, "num_frequencies": 4, **LAW}),
        encode({"seed": 0, "num_dims": 3.5, "num_frequencies": 4, **LAW}),
    ],
)
def test_invalid_states_are_refused(state):
    with pytest.raises(rfgp.InvalidArgumentError, match="no state"):
        RandomFeatureKernel(4).set_extra_state(state)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda kernel: pickle.loads(pickle.dumps(kernel))])
def test_copies_have_the_draw(copied):
    kernel = RandomFeatureKernel(8, seed=3)
    before = kernel(X).to_dense()
    torch.testing.assert_close(copied(kernel)(X).to_dense(), before)
    torch.testing.assert_close(copied(RandomFeatureKernel(8, seed=3))(X).to_dense(), before)


def test_the_state_has_one_length():
    kernel = RandomFeatureKernel(4, seed=0)
    before = kernel.get_extra_state()
    kernel(X)
    kernel(X).to_dense()
    assert kernel.get_extra_state().shape == before.shape
    assert not torch.equal(kernel.get_extra_state(), before)


def test_a_saved_model_has_the_draw(tmp_path):
    one = gpytorch.kernels.ScaleKernel(RandomFeatureKernel(8, seed=0, coupling="pairwise"))
    expected = one(X).to_dense()
    torch.save(one.state_dict(), tmp_path / "kernel.pt")
    other = gpytorch.kernels.ScaleKernel(RandomFeatureKernel(8, coupling="pairwise"))
    other.load_state_dict(torch.load(tmp_path / "kernel.pt", weights_only=True))
    torch.testing.assert_close(other(X).to_dense(), expected)


def test_columns_as_a_batch():
    kernel = RandomFeatureKernel(8, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        found = kernel(X, last_dim_is_batch=True).to_dense()
    for column in range(3):
        torch.testing.assert_close(found[column], kernel(X[:, [column]]).to_dense())


# --- in models -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "kind"), [(4, LowRankRootLinearOperator), (64, RootLinearOperator)])
def test_roots(m, kind):
    found = RandomFeatureKernel(m, seed=0)(X).evaluate_kernel()
    assert type(found) is kind


def trained(kernel, n=60, dtype=torch.float64):
    generator = torch.Generator().manual_seed(2)
    x = torch.rand(n, 3, generator=generator, dtype=dtype)
    y = torch.sin(4 * x[:, 0]) + x[:, 1] + 0.1 * torch.randn(n, generator=generator, dtype=dtype)
    model = Model(x, y, gpytorch.kernels.ScaleKernel(kernel)).to(dtype)
    model.likelihood.noise = 0.05
    model.covar_module.outputscale = 1.7
    return model, x, y


def dense_prediction(model, kernel, x, y, new):
    """The textbook formulas on dense matrices, at the model's hyperparameters."""
    scale = model.covar_module.outputscale
    cross, prior = scale * kernel(new, x).to_dense(), scale * kernel(new).to_dense()
    matrix = scale * kernel(x).to_dense() + model.likelihood.noise * torch.eye(len(x), dtype=x.dtype)
    mean = model.mean_module.constant + cross @ torch.linalg.solve(matrix, y - model.mean_module.constant)
    return mean, prior - cross @ torch.linalg.solve(matrix, cross.mT)


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("m", [8, 64])
def test_predictions_are_those_of_the_dense_formulas(m, fast):
    kernel = RandomFeatureKernel(m, seed=0, ard_num_dims=3)
    model, x, y = trained(kernel)
    new = torch.rand(9, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    mean, covariance = dense_prediction(model, kernel, x, y, new)
    model.eval()
    with torch.no_grad(), gpytorch.settings.fast_pred_var(fast):
        found = model(new)
        torch.testing.assert_close(found.mean, mean, rtol=0, atol=1e-8)
        torch.testing.assert_close(found.covariance_matrix, covariance, rtol=0, atol=1e-8)
    known = getattr(strategies, "LinearPredictionStrategy", strategies.DefaultPredictionStrategy)
    assert type(model.prediction_strategy) is known


@pytest.mark.parametrize("combine", ["sum", "product"])
def test_sums_and_products_with_other_kernels(combine):
    ours, other = RandomFeatureKernel(8, seed=0), gpytorch.kernels.MaternKernel(nu=2.5)
    both = ours + other if combine == "sum" else ours * other
    model, x, y = trained(both)
    new = torch.rand(4, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    mean, covariance = dense_prediction(model, both, x, y, new)
    expected = [k(x).to_dense() for k in (ours, other)]
    torch.testing.assert_close(both(x).to_dense(), sum(expected) if combine == "sum" else expected[0] * expected[1])
    model.eval()
    with torch.no_grad():
        found = model(new)
        torch.testing.assert_close(found.mean, mean, rtol=0, atol=1e-6)
        torch.testing.assert_close(found.covariance_matrix, covariance, rtol=0, atol=1e-6)


def test_a_prior_takes_part():
    kernel = RandomFeatureKernel(8, seed=0, lengthscale_prior=gpytorch.priors.GammaPrior(3.0, 6.0))
    model, x, y = trained(kernel)
    with_prior = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)(model(x), y)
    log_prob = kernel.lengthscale_prior.log_prob(kernel.lengthscale).sum()
    without = model.likelihood(model(x)).log_prob(y)
    torch.testing.assert_close(with_prior, (without + log_prob) / len(y))


def test_a_batch_of_models():
    kernel = RandomFeatureKernel(8, seed=0, batch_shape=torch.Size([2]))
    kernel.lengthscale = torch.tensor([0.5, 2.0]).reshape(2, 1, 1)
    one, x, _ = trained(kernel)
    batch = one.covar_module
    separate = [RandomFeatureKernel(8, seed=0).double() for _ in range(2)]
    for each, scale in zip(separate, (0.5, 2.0), strict=True):
        each.lengthscale = scale
    found = batch(x).to_dense()
    for place, each in enumerate(separate):
        torch.testing.assert_close(found[place], 1.7 * each(x).to_dense())


@pytest.mark.parametrize("both", [False, True])
def test_gradients_where_the_inputs_are_equal(both):
    """Each of two tensors with the same values has the gradient of its own place."""
    kernel = RandomFeatureKernel(8, seed=0).double()
    z = X[:5].double().requires_grad_(both)
    weights = torch.randn(5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def product(x, z):
        return (kernel(x, z).to_dense() * weights).sum()

    x = X[:5].double().requires_grad_()
    phi = kernel.features(z).detach()
    (expected,) = torch.autograd.grad(((kernel.features(x) @ phi.mT) * weights).sum(), x)
    found = torch.autograd.grad(product(x, z), x)[0]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("m", [8, 64])
def test_fantasies(m):
    kernel = RandomFeatureKernel(m, seed=0)
    model, x, y = trained(kernel)
    new, seen = (torch.rand(k, 3, generator=torch.Generator().manual_seed(k), dtype=torch.float64) for k in (4, 2))
    values = torch.tensor([0.3, -0.2], dtype=torch.float64)
    mean, _ = dense_prediction(model, kernel, torch.cat([x, seen]), torch.cat([y, values]), new)
    model.eval()
    with torch.no_grad():
        model(new)
        torch.testing.assert_close(model.get_fantasy_model(seen, values)(new).mean, mean, rtol=0, atol=1e-7)
