import inspect
import math

import gpytorch
import mpmath
import numpy as np
import pytest
import torch
from checks import fails
from scipy import stats
from sklearn.gaussian_process import kernels

import rfgp
from rfgp import couplings, distances, special, spectra

SPECTRA = {
    "gaussian": spectra.Gaussian(),
    "matern 0.3": spectra.Matern(0.3),
    "matern 1/2": spectra.Matern(0.5),
    "matern 3/2": spectra.Matern(1.5),
    "matern 5/2": spectra.Matern(2.5),
    "matern 4.2": spectra.Matern(4.2),
    "rational quadratic 0.4": spectra.RationalQuadratic(0.4),
    "rational quadratic 3": spectra.RationalQuadratic(3.0),
    "product Laplace": spectra.ProductLaplace(),
    "product Cauchy": spectra.ProductCauchy(),
}
ISOTROPIC = {name: spectrum for name, spectrum in SPECTRA.items() if spectrum.is_isotropic}


def test_every_spectrum_is_registered():
    classes = {c for _, c in inspect.getmembers(spectra, inspect.isclass) if issubclass(c, spectra.Spectrum)}
    assert classes - {spectra.Spectrum} == {type(spectra.by_name(name)) for name in spectra.names()}
    assert classes - {spectra.Spectrum} == {type(spectrum) for spectrum in SPECTRA.values()}
    with pytest.raises(rfgp.InvalidArgumentError, match="got 'cosine'"):
        spectra.by_name("cosine")
    assert spectra.by_name("matern", nu=2.5).nu == 2.5
    with pytest.raises(rfgp.InvalidArgumentError, match="Spectrum 'matern'"):
        spectra.by_name("matern", alpha=2)


def theirs(name):
    """The same kernel of scikit-learn and of gpytorch, where they have it."""
    spectrum = SPECTRA[name]
    if isinstance(spectrum, spectra.Gaussian):
        return kernels.RBF(1.0), gpytorch.kernels.RBFKernel()
    if isinstance(spectrum, spectra.Matern):
        ours = gpytorch.kernels.MaternKernel(nu=spectrum.nu) if spectrum.nu in (0.5, 1.5, 2.5) else None
        return kernels.Matern(1.0, nu=spectrum.nu), ours
    if isinstance(spectrum, spectra.RationalQuadratic):
        kernel = gpytorch.kernels.RQKernel().double()
        kernel.alpha = spectrum.alpha
        return kernels.RationalQuadratic(1.0, alpha=spectrum.alpha), kernel
    return None, None


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("d", [1, 2, 3, 8])
def test_against_gpytorch_and_scikit_learn(name, d):
    x, z = (torch.randn(6, d, generator=rfgp.random.generator(i), dtype=torch.float64) for i in range(2))
    z[0] = x[0]
    ours = SPECTRA[name].kernel_between(x, z)
    assert ours[0, 0].item() == pytest.approx(1, abs=1e-12)
    sklearn_kernel, gpytorch_kernel = theirs(name)
    if sklearn_kernel is not None:
        np.testing.assert_allclose(ours, sklearn_kernel(x.numpy(), z.numpy()), rtol=1e-9, atol=1e-12)
    if gpytorch_kernel is not None:
        gpytorch_kernel = gpytorch_kernel.double()
        gpytorch_kernel.lengthscale = 1.0
        torch.testing.assert_close(ours, gpytorch_kernel(x, z).to_dense().detach(), rtol=1e-8, atol=1e-8)
    if not SPECTRA[name].is_isotropic:
        difference = np.abs(x.numpy()[:, None] - z.numpy())
        by_hand = np.exp(-difference.sum(2)) if "Laplace" in name else np.prod(1 / (1 + difference**2), axis=2)
        np.testing.assert_allclose(ours, by_hand, rtol=1e-12)


@pytest.mark.parametrize("nu", [0.1, 0.3, 0.5, 0.7, 1.0, 1.3, 1.5, 2.0, 2.5, 2.6, 5.5, 10.3, 12.5, 50.0, 100.0])
def test_the_matern_function_against_mpmath(nu):
    t = np.concatenate([[0, 1e-300, 1e-12, 1e-6], np.geomspace(1e-4, 60, 25)])
    with mpmath.workdps(40):
        factor = mpmath.mpf(2) ** (1 - mpmath.mpf(nu)) / mpmath.gamma(nu)
        value = [1.0 if x == 0 else float(factor * mpmath.mpf(x) ** nu * mpmath.besselk(nu, x)) for x in t]
        slope = [0.0 if x == 0 else float(-factor * mpmath.mpf(x) ** nu * mpmath.besselk(nu - 1, x)) for x in t]
    point = torch.tensor(t, requires_grad=True)
    ours = special.matern(point, nu)
    np.testing.assert_allclose(ours.detach(), value, rtol=1e-12, atol=1e-13)
    (gradient,) = torch.autograd.grad(ours.sum(), point)
    away = t > 1e-5
    np.testing.assert_allclose(gradient[away], np.array(slope)[away], rtol=1e-9, atol=1e-13)


def transform(name, d, r, draws):
    """E cos(omega . v) for |v| = r, from the radial distribution alone: an average of the mean over a sphere."""
    from scipy import special as sp

    t = np.outer(r, draws)
    if d == 1:
        return np.cos(t).mean(1)
    order = d / 2 - 1
    return (sp.gamma(d / 2) * (2 / np.maximum(t, 1e-12)) ** order * sp.jv(order, np.maximum(t, 1e-12))).mean(1)


@pytest.mark.parametrize("name", ISOTROPIC)
@pytest.mark.parametrize("d", [1, 3, 8])
@pytest.mark.slow
def test_the_radial_distribution_is_the_transform_of_the_kernel(name, d):
    """Deterministic: the radial quantiles at the midpoints of many strata, no sampling error to speak of."""
    spectrum, n = ISOTROPIC[name], 400_000 if d == 1 else 40_000
    r = np.array([0.2, 0.5, 1.0, 2.0, 4.0])
    norms = spectrum.radial_quantile(torch.as_tensor((np.arange(n) + 0.5) / n), d).numpy()
    np.testing.assert_allclose(transform(name, d, r, norms), spectrum.kernel(torch.as_tensor(r)), atol=2e-4)


def test_spectra_are_equal_by_value():
    assert spectra.Matern(1.5) == spectra.Matern(1.5) != spectra.Matern(2.5)
    assert spectra.Gaussian() != spectra.ProductLaplace()
    assert len({spectra.Matern(1.5), spectra.Matern(1.5), spectra.Gaussian(), spectra.Gaussian()}) == 2


def test_planted_another_radial_distribution_is_found(monkeypatch):
    original = spectra.Matern.radial_quantile
    monkeypatch.setattr(
        spectra.Matern, "radial_quantile", lambda self, u, d: original(spectra.Matern(self.nu + 0.1), u, d)
    )
    assert fails(test_the_radial_distribution_is_the_transform_of_the_kernel, "matern 3/2", 3)


@pytest.mark.parametrize("name", ISOTROPIC)
@pytest.mark.parametrize("d", [1, 2, 5, 64])
def test_density_and_quantile_are_those_of_one_distribution(name, d):
    spectrum = ISOTROPIC[name]
    u = torch.as_tensor(np.concatenate([[1e-9, 1e-4], np.linspace(0.01, 0.99, 41), [1 - 1e-4, 1 - 1e-9]]))
    r = spectrum.radial_quantile(u, d)
    assert torch.isfinite(r).all()
    assert (torch.diff(r) > 0).all()
    step = 1e-4 * torch.minimum(u, 1 - u)[1:-1]
    up, down = (spectrum.radial_quantile(u[1:-1] + sign * step, d) for sign in (1, -1))
    density = spectrum.radial_log_density(r[1:-1], d).exp()
    np.testing.assert_allclose(2 * step / (up - down), density, rtol=5e-3 if "rational" in name else 1e-3)


def test_the_rational_quadratic_radial_is_a_mixture():
    """Against its own definition by simulation, at a p-value that chance undercuts once in a million runs."""
    rng = np.random.default_rng(0)
    for alpha in (0.1, 1.0, 20.0):
        for d in (1, 8):
            mixed = np.sqrt(rng.gamma(alpha, 1 / alpha, 20_000) * rng.chisquare(d, 20_000))
            ours = special.rational_quadratic_quantile(rng.random(20_000), d, alpha)
            assert stats.ks_2samp(ours, mixed).pvalue > 1e-7


@pytest.mark.parametrize("name", ISOTROPIC)
def test_extreme_uniforms_have_finite_norms(name):
    u = torch.tensor([2.0**-53, 1 - 2.0**-53], dtype=torch.float64)
    for d in (1, 8, 100):
        assert torch.isfinite(ISOTROPIC[name].radial_quantile(u, d)).all()


@pytest.mark.parametrize("name", SPECTRA)
def test_gradients_at_coincident_and_other_points(name):
    x = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    SPECTRA[name].kernel_between(x, x).sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(x))
    a, b = (torch.randn(3, 2, generator=rfgp.random.generator(i), dtype=torch.float64) for i in range(2))
    assert torch.autograd.gradcheck(SPECTRA[name].kernel_between, (a.requires_grad_(), b.requires_grad_()))


@pytest.mark.parametrize("name", ["product Laplace", "product Cauchy"])
def test_products_have_no_radial_distribution(name):
    spectrum, r = SPECTRA[name], torch.ones(2)
    for call in (
        spectrum.kernel,
        lambda r: spectrum.radial_quantile(r, 2),
        lambda r: spectrum.radial_log_density(r, 2),
    ):
        with pytest.raises(rfgp.InvalidArgumentError, match="has no"):
            call(r)
    with pytest.raises(rfgp.InvalidArgumentError, match="must be isotropic"):
        couplings.by_name("orthogonal").sample(2, 2, spectrum=spectrum, generator=rfgp.random.generator(0))
    with pytest.raises(rfgp.InvalidArgumentError, match="depend on each other"):
        spectra.Matern().coordinate_quantile(r)


@pytest.mark.parametrize(
    "make",
    [
        lambda: spectra.Matern(0),
        lambda: spectra.Matern(-1.5),
        lambda: spectra.Matern(float("nan")),
        lambda: spectra.Matern(True),
        lambda: spectra.Matern("3/2"),
        lambda: spectra.Matern(1000),
        lambda: spectra.RationalQuadratic(0),
        lambda: spectra.RationalQuadratic(1.001e4),
        lambda: spectra.RationalQuadratic(0.0199),
    ],
)
def test_bad_shape_parameters_are_named(make):
    with pytest.raises(rfgp.InvalidArgumentError, match=r"nu|alpha"):
        make()


def test_distances_far_from_the_origin():
    x = torch.tensor([[0.0], [1e-3]], dtype=torch.float64)
    far = distances.squared_distance(x + 1e6, x + 1e6)
    torch.testing.assert_close(
        far, torch.tensor([[0.0, 1e-6], [1e-6, 0.0]], dtype=torch.float64), rtol=1e-3, atol=1e-12
    )
    further = distances.squared_distance(
        torch.tensor([[1e200], [-1.0], [3e200]], dtype=torch.float64),
        torch.tensor([[1e200], [2.0]], dtype=torch.float64),
    )
    assert further.tolist() == [[0, math.inf], [math.inf, 9], [math.inf, math.inf]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("nu", [0.5, 1.5, 2.2, 2.5, 7.3, 12.5])
def test_a_matern_kernel_is_zero_very_far_away(nu, dtype):
    r = torch.tensor([1e3, 1e10, 1e30, math.inf], dtype=dtype)
    assert float(spectra.Matern(nu).kernel(r).max()) < 1e-290


def test_independent_coordinates_have_no_such_shortcut():
    assert not spectra.ProductCauchy().has_slope
    with pytest.raises(rfgp.InvalidArgumentError, match="no kernel of the distance"):
        spectra.ProductCauchy().gram_and_slope(torch.zeros(2, 2))
