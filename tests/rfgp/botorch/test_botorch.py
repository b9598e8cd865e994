"""Random-feature processes in BoTorch: posteriors, fantasies, pathwise samples, and optimisation to a stated regret."""

import pytest

pytest.importorskip("botorch", reason="the extra rfgp[botorch] is not installed")

import gpytorch
import torch
from botorch.acquisition.logei import qLogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from botorch.sampling.normal import SobolQMCNormalSampler
from botorch.sampling.pathwise import draw_kernel_feature_paths, draw_matheron_paths
from botorch.sampling.pathwise.features.generators import gen_kernel_features
from botorch.test_functions import Branin
from botorch.utils.sampling import draw_sobol_samples, optimize_posterior_samples
from gpytorch.mlls import ExactMarginalLogLikelihood

import rfgp
from rfgp.botorch import KernelFeatures, RandomFeatureGP
from rfgp.gpytorch import RandomFeatureKernel

SAMPLES = 4000
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")


def table(n=20, d=2, seed=0, outputs=1):
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, d, generator=generator, dtype=torch.float64)
    columns = [torch.sin((4 + k) * X[:, 0]) + X[:, 1] for k in range(outputs)]
    return X, torch.stack(columns, dim=1)


def points(n=5, d=2):
    return torch.rand(n, d, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


@pytest.mark.parametrize("m", [6, 64])  # fewer and more features than data
def test_the_posterior_is_that_of_the_dense_formulas(m):
    X, Y = table()
    model = RandomFeatureGP(X, Y, num_frequencies=m, seed=0)
    model.likelihood.noise = 0.01
    new, kernel = points(), model.covar_module
    y = (Y - Y.mean()) / Y.std()
    matrix = kernel(X).to_dense() + 0.01 * torch.eye(20).double()
    cross = kernel(new, X).to_dense()
    mean = cross @ torch.linalg.solve(matrix, y) * Y.std() + Y.mean()
    variance = (kernel(new).to_dense() - cross @ torch.linalg.solve(matrix, cross.mT)).diagonal() * Y.var()
    with torch.no_grad():
        posterior = model.posterior(new)
        torch.testing.assert_close(posterior.mean, mean, rtol=0, atol=1e-7)
        torch.testing.assert_close(posterior.variance[:, 0], variance, rtol=0, atol=1e-7)


def test_fantasies_are_posteriors_given_more_data():
    X, Y = table()
    model = RandomFeatureGP(X, Y, num_frequencies=6, seed=0, outcome_transform=None)
    model.likelihood.noise = 0.01
    model.posterior(points())
    fantasy = model.fantasize(points(2), sampler=SobolQMCNormalSampler(torch.Size([3]), seed=0))
    values = fantasy.train_targets[..., -2:]
    assert fantasy.posterior(points(4)).mean.shape == (3, 4, 1)
    for k in range(3):
        more = torch.cat([Y[:, 0], values[k]])[:, None]
        again = RandomFeatureGP(torch.cat([X, points(2)]), more, num_frequencies=6, seed=0, outcome_transform=None)
        again.load_state_dict(model.state_dict())
        expected = again.posterior(points(4)).mean
        torch.testing.assert_close(fantasy.posterior(points(4)).mean[k], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("scaled", [False, True])
def test_pathwise_priors_are_the_kernel_itself(scaled):
    """Their features are the kernel's own, and 4,000 of them have its covariance."""
    kernel = RandomFeatureKernel(8, seed=0, active_dims=(1, 0), ard_num_dims=2).double()
    kernel.lengthscale = torch.tensor([0.3, 0.8], dtype=torch.float64)
    whole = gpytorch.kernels.ScaleKernel(kernel).double() if scaled else kernel
    if scaled:
        whole.outputscale = 2.5
    X, Y = table()
    model = SingleTaskGP(X, Y, covar_module=whole, outcome_transform=None)
    features = gen_kernel_features(whole, num_inputs=2, num_outputs=512)
    assert isinstance(features, KernelFeatures)
    phi, new = features(points()), points()
    torch.testing.assert_close(phi @ phi.mT, whole(new).to_dense())  # no second approximation
    generator = torch.Generator().manual_seed(0)
    paths = draw_kernel_feature_paths(
        model,
        sample_shape=torch.Size([SAMPLES]),
        num_features=512,
        weight_generator=lambda shape: torch.randn(shape, generator=generator, dtype=torch.float64),
    )
    with torch.no_grad():
        values = paths(new) - model.mean_module(new)
        products = values[:, :, None] * values[:, None, :]
        z = (products.mean(0) - whole(new).to_dense()) / (products.std(0) / SAMPLES**0.5)
    # 30 entries; a skewness of 2.8 / sqrt(4000) at most makes tails of 4e-11 eight times as heavy: 2e-8 in all
    assert z.abs().max() < 6.5


@pytest.mark.parametrize("m", [6, 64])
def test_matheron_paths_have_the_posterior_distribution(m):
    X, Y = table()
    model = RandomFeatureGP(X, Y, num_frequencies=m, seed=0)
    model.likelihood.noise = 0.01
    torch.manual_seed(0)
    with torch.no_grad():
        values = draw_matheron_paths(model, torch.Size([SAMPLES]))(points()).squeeze(-1)
        posterior = model.posterior(points())
    deviation = posterior.variance.sqrt()[:, 0]
    z = (values.mean(0) - posterior.mean[:, 0]) / deviation * SAMPLES**0.5
    assert z.abs().max() < 6  # normal: ten entries, 2e-8
    ratio = values.var(0) / posterior.variance[:, 0]
    assert (ratio - 1).abs().max() < 6 * (2 / SAMPLES) ** 0.5  # chi-square of 4,000 degrees


def test_fitting_and_several_outputs():
    X, Y = table(30, outputs=2)
    model = RandomFeatureGP(X, Y, num_frequencies=32, seed=0)
    before = model.covar_module.lengthscale.detach().clone()
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    assert not torch.allclose(before, model.covar_module.lengthscale)
    with torch.no_grad():
        assert (model.posterior(X).mean - Y).square().mean().sqrt() < 0.05
    assert model.covar_module.lengthscale.shape == (2, 1, 2)


def test_outputs_can_be_taken_apart():
    X, Y = table(12, outputs=2)
    model = RandomFeatureGP(X, Y, num_frequencies=6, seed=0)
    model.covar_module.lengthscale = torch.tensor([[[0.3, 0.5]], [[1.0, 2.0]]], dtype=torch.float64)
    with torch.no_grad():
        for output in range(2):
            found = model.subset_output([output]).posterior(points()).mean
            torch.testing.assert_close(found[:, 0], model.posterior(points()).mean[:, output])


def test_it_makes_its_own_kernel():
    with pytest.raises(rfgp.InvalidArgumentError, match="makes its own kernel"):
        RandomFeatureGP(*table(), covar_module=gpytorch.kernels.RBFKernel())


def test_known_noise_lists_and_transforms():
    X, Y = table()
    one = RandomFeatureGP(10 * X, Y, torch.full_like(Y, 0.01), seed=0, input_transform=Normalize(2))
    both = ModelListGP(one, RandomFeatureGP(X, Y, seed=1, spectrum="matern"))
    assert both.posterior(points()).mean.shape == (5, 2)


def test_unknown_names_are_named():
    with pytest.raises(rfgp.InvalidArgumentError, match="coupling must be"):
        RandomFeatureGP(*table(), coupling="magic")


@pytest.mark.parametrize("acquisition", ["qLogEI", "Thompson"])
@pytest.mark.slow
def test_branin_is_optimized(acquisition):
    """From 6 first points and 20 more; 20 random ones end below .1 in 3.5 % of 200 tries, with a median of 1.9."""
    torch.manual_seed(0)
    problem = Branin(negate=True)
    low, high = (bound.double() for bound in problem.bounds)
    unit = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    X = draw_sobol_samples(unit, n=6, q=1, seed=0).squeeze(1)
    Y = problem(low + (high - low) * X)[:, None]
    for _ in range(20):
        model = RandomFeatureGP(X, Y, seed=0, num_frequencies=128)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        if acquisition == "qLogEI":
            improvement = qLogExpectedImprovement(model, best_f=Y.max())
            x, _ = optimize_acqf(improvement, bounds=unit, q=1, num_restarts=4, raw_samples=128)
        else:
            path = draw_matheron_paths(model, torch.Size([1]))
            x, _ = optimize_posterior_samples(path, bounds=unit, raw_samples=256, num_restarts=2)
        x = x.detach().reshape(1, -1)  # older releases return it with its graph
        X, Y = torch.cat([X, x]), torch.cat([Y, problem(low + (high - low) * x)[:, None]])
    assert problem.optimal_value - Y.max().item() < 0.1


@pytest.mark.parametrize("X", [torch.tensor(1.0), torch.ones(3), torch.ones(3, 0), [[1.0]]])
def test_data_that_are_no_matrix_are_named(X):
    with pytest.raises(rfgp.InvalidArgumentError, match=r"train_X must be a tensor \(n, columns\)"):
        RandomFeatureGP(X, torch.ones(3, 1))
