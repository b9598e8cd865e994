"""The random-feature kernel against dense formulas, the exact kernel of a spectrum, and states of both."""

import gpytorch
import pytest
import torch
from gpytorch.models import exact_prediction_strategies as strategies
from gpytorch_models import Model
from linear_operator.operators import LowRankRootLinearOperator, RootLinearOperator
from refusals import refused

import rfgp
from rfgp.gpytorch import RandomFeatureKernel

F64 = torch.float64


def uniform(n, seed):
    return torch.rand(n, 3, generator=torch.Generator().manual_seed(seed), dtype=F64)


X, NEW = uniform(20, 2), uniform(6, 5)
Y = torch.sin(4 * X[:, 0]) + X[:, 1] + 0.1 * torch.randn(20, generator=torch.Generator().manual_seed(3), dtype=F64)


def drawn(m=8, **options):
    return RandomFeatureKernel(m, seed=0, **options).double()


@pytest.mark.parametrize(
    ("m", "ard", "kind"), [(4, 3, LowRankRootLinearOperator), (64, None, RootLinearOperator)]
)  # fewer and more features than points
def test_matrices_are_products_of_the_features(m, ard, kind):
    kernel = drawn(m, ard_num_dims=ard, num_dims=3)
    kernel.lengthscale = 1.7
    phi, other = kernel.feature_map(X / 1.7), kernel.feature_map(NEW / 1.7)
    torch.testing.assert_close(kernel(X).to_dense(), phi @ phi.T)
    torch.testing.assert_close(kernel(X, NEW).to_dense(), phi @ other.T)
    torch.testing.assert_close(kernel(X, diag=True), phi.square().sum(1))
    torch.testing.assert_close(kernel.features(X), phi)
    assert kernel.lengthscale.shape == (1, ard or 1)
    assert isinstance(kernel.feature_map, rfgp.features.Fourier)
    assert type(kernel(X).evaluate_kernel()) is kind


SPECTRA = [
    rfgp.spectra.Gaussian(),
    *(rfgp.spectra.Matern(nu) for nu in (0.5, 1.5, 2.5, 0.8)),
    rfgp.spectra.RationalQuadratic(0.7),
    rfgp.spectra.ProductLaplace(),
    rfgp.spectra.ProductCauchy(),
]


@pytest.mark.parametrize("spectrum", SPECTRA, ids=repr)
def test_the_exact_kernel_is_that_of_the_spectrum(spectrum):
    kernel = drawn(4, spectrum=spectrum, coupling="iid", ard_num_dims=3, active_dims=(0, 2, 1))
    kernel.lengthscale = torch.tensor([0.5, 1.0, 3.0], dtype=F64)
    exact = kernel.exact()
    x, z = (a[:, [0, 2, 1]] / kernel.lengthscale.detach() for a in (X, NEW))
    torch.testing.assert_close(exact(X, NEW).to_dense(), spectrum.kernel_between(x, z))
    exact.lengthscale = 1.0
    assert kernel.lengthscale[0, 0].item() == pytest.approx(0.5)  # nothing is shared


def test_the_exact_kernel_keeps_prior_constraint_and_batch():
    options = {
        "lengthscale_prior": gpytorch.priors.GammaPrior(3.0, 6.0),
        "lengthscale_constraint": gpytorch.constraints.Interval(0.1, 9.0),
    }
    kernel = drawn(batch_shape=torch.Size([2]), **options)
    kernel.lengthscale = torch.tensor([1.0, 2.0]).reshape(2, 1, 1)
    exact = kernel.exact()
    assert exact.batch_shape == torch.Size([2])
    torch.testing.assert_close(exact.lengthscale, kernel.lengthscale)
    assert isinstance(exact.lengthscale_prior, gpytorch.priors.GammaPrior)
    assert exact.raw_lengthscale_constraint.upper_bound == 9


# --- in models -----------------------------------------------------------------------------------


def model_of(kernel):
    model = Model(X, Y, gpytorch.kernels.ScaleKernel(kernel)).double()
    model.likelihood.noise, model.covar_module.outputscale = 0.05, 1.7
    return model, 1.7 * kernel(X).to_dense() + 0.05 * torch.eye(20, dtype=F64)


KERNELS = {
    "few features": (lambda: drawn(8, ard_num_dims=3), False),
    "few features, fast": (lambda: drawn(8), True),
    "many features": (lambda: drawn(64), False),
    "many features, fast": (lambda: drawn(64, ard_num_dims=3), True),
    "a sum": (lambda: drawn(8) + gpytorch.kernels.MaternKernel(nu=2.5), False),
    "a product": (lambda: drawn(8) * gpytorch.kernels.MaternKernel(nu=2.5), False),
}


@pytest.mark.parametrize("name", KERNELS)
def test_predictions_match_the_dense_formulas(name):
    make, is_fast = KERNELS[name]
    kernel = make()
    model, matrix = model_of(kernel)
    model.eval()
    with torch.no_grad(), gpytorch.settings.fast_pred_var(is_fast):
        found, cross = model(NEW), 1.7 * kernel(NEW, X).to_dense()
        covariance = 1.7 * kernel(NEW).to_dense() - cross @ torch.linalg.solve(matrix, cross.mT)
        torch.testing.assert_close(found.mean, cross @ torch.linalg.solve(matrix, Y), rtol=0, atol=1e-7)
        torch.testing.assert_close(found.covariance_matrix, covariance, rtol=0, atol=1e-7)
    if "features" in name:
        linear = getattr(strategies, "LinearPredictionStrategy", strategies.DefaultPredictionStrategy)
        assert type(model.prediction_strategy) is linear


@pytest.mark.parametrize("both", [False, True])
def test_gradients_where_the_inputs_are_equal(both):
    """Each of two tensors with the same values has the gradient of its own place."""
    kernel, x, z = drawn(), X[:5].clone().requires_grad_(), X[:5].clone().requires_grad_(both)
    products = kernel.features(x) @ kernel.features(z).mT
    (expected,) = torch.autograd.grad(products[0].sum(), x)
    torch.testing.assert_close(torch.autograd.grad(kernel(x, z).to_dense()[0].sum(), x)[0], expected)


# --- draws and states ----------------------------------------------------------------------------


@pytest.mark.parametrize("num_dims", [None, 3])
def test_a_saved_state_has_the_draw(tmp_path, num_dims):
    one = gpytorch.kernels.ScaleKernel(drawn())
    expected = one(X).to_dense()
    torch.save(one.state_dict(), tmp_path / "kernel.pt")
    other = gpytorch.kernels.ScaleKernel(RandomFeatureKernel(8, num_dims=num_dims, seed=1).double())
    other.load_state_dict(torch.load(tmp_path / "kernel.pt", weights_only=True))
    torch.testing.assert_close(other(X).to_dense(), expected)


def state_of(text):
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)


BAD_CALLS = [
    (lambda: RandomFeatureKernel(8, coupling="sorf"), "coupling"),
    (lambda: RandomFeatureKernel(8, features="cosine"), "features"),
    (lambda: RandomFeatureKernel(8, features="laplace", spectrum="matern"), "Gaussian"),
    (lambda: RandomFeatureKernel(8, num_dims=2, ard_num_dims=3), "num_dims"),
    (lambda: drawn(num_dims=3)(X[:, :2]).to_dense(), "3 columns"),
    (lambda: RandomFeatureKernel(9).load_state_dict(drawn().state_dict()), "num_frequencies, 8"),
    (lambda: RandomFeatureKernel(8, features="laplace").load_state_dict(drawn().state_dict()), "laplace"),
    *(
        (lambda state=state: RandomFeatureKernel(4).set_extra_state(state), "no state")
        for state in (None, state_of(b"\xff\xfe"), state_of(b'{"seed": 0}'))
    ),
]


@pytest.mark.parametrize(("call", "word"), BAD_CALLS)
def test_bad_calls_are_named(call, word):
    refused(call, rfgp.InvalidArgumentError, word)
