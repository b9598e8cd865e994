"""Spectra: kernels of scikit-learn and mpmath, and distributions of frequencies that give them."""

import inspect

import mpmath
import numpy as np
import pytest
import torch
from scipy import special
from sklearn.gaussian_process import kernels as theirs

from rfgp import spectra

F64 = torch.float64
GAUSSIAN, MATERN, ROUGH = spectra.Gaussian(), spectra.Matern(1.5), spectra.Matern(0.5)

SPECTRA = {
    "gaussian": (GAUSSIAN, theirs.RBF()),
    "matern 0.3": (spectra.Matern(0.3), theirs.Matern(nu=0.3)),
    "matern 1/2": (ROUGH, theirs.Matern(nu=0.5)),
    "matern 3/2": (MATERN, theirs.Matern(nu=1.5)),
    "matern 5/2": (spectra.Matern(2.5), theirs.Matern(nu=2.5)),
    "matern 4.2": (spectra.Matern(4.2), theirs.Matern(nu=4.2)),
    "rational quadratic 0.4": (spectra.RationalQuadratic(0.4), theirs.RationalQuadratic(alpha=0.4)),
    "rational quadratic 3": (spectra.RationalQuadratic(3.0), theirs.RationalQuadratic(alpha=3.0)),
    "product Laplace": (spectra.ProductLaplace(), lambda x, z: np.exp(-np.abs(x[:, None] - z).sum(2))),
    "product Cauchy": (spectra.ProductCauchy(), lambda x, z: np.prod(1 / (1 + (x[:, None] - z) ** 2), axis=2)),
}
ISOTROPIC = {name: spectrum for name, (spectrum, _) in SPECTRA.items() if spectrum.is_isotropic}


class TestSpectra:
    def test_each_spectrum_has_a_case(self):
        classes = {c for _, c in inspect.getmembers(spectra, inspect.isclass) if issubclass(c, spectra.Spectrum)}
        cases = [spectrum for spectrum, _ in SPECTRA.values()]
        assert classes - {spectra.Spectrum} == {type(spectrum) for spectrum in cases}
        assert {type(spectra.by_name(name)) for name in spectra.names()} == {type(spectrum) for spectrum in cases}
        assert all(type(spectra.by_name(spectra.name_of(spectrum))) is type(spectrum) for spectrum in cases)
        assert len({spectra.Matern(1.5), spectra.Matern(1.5), spectra.Matern(2.5)}) == 2

    @pytest.mark.parametrize("name", SPECTRA)
    @pytest.mark.parametrize("d", [1, 3])
    def test_kernels_are_those_of_scikit_learn(self, name, d):
        x, z = np.random.default_rng(d).standard_normal((2, 6, d))
        z[0] = x[0]
        spectrum, other = SPECTRA[name]
        ours = spectrum.kernel_between(torch.from_numpy(x), torch.from_numpy(z))
        np.testing.assert_allclose(ours, other(x, z), rtol=1e-9, atol=1e-12)

    @pytest.mark.parametrize("nu", [0.1, 0.7, 1.0, 1.5, 2.5, 5.5, 12.5, pytest.param(100.0, marks=pytest.mark.slow)])
    def test_matern_kernels_and_slopes_are_those_of_mpmath(self, nu):
        t = np.concatenate([[1e-300, 1e-12, 1e-6], np.geomspace(1e-4, 60, 12)])
        with mpmath.workdps(40):
            factor = mpmath.mpf(2) ** (1 - mpmath.mpf(nu)) / mpmath.gamma(nu)
            value, slope = (
                [float(factor * mpmath.mpf(x) ** nu * mpmath.besselk(order, x)) for x in t] for order in (nu, nu - 1)
            )
        point = torch.tensor(t / np.sqrt(2 * nu), requires_grad=True)
        ours = spectra.Matern(nu).kernel(point)
        np.testing.assert_allclose(ours.detach(), value, rtol=1e-11, atol=1e-13)
        (gradient,) = torch.autograd.grad(ours.sum(), point)
        away = t > 1e-5
        np.testing.assert_allclose(-gradient[away] / np.sqrt(2 * nu), np.array(slope)[away], rtol=1e-9, atol=1e-13)

    @pytest.mark.parametrize("name", ISOTROPIC)
    @pytest.mark.parametrize("d", [1, 3, 8])
    def test_radial_quantiles_give_the_kernel(self, name, d):
        """The mean over midpoints of strata of the average over a sphere; there is no sampling error."""
        n, r = 40_000 if d == 1 else 8000, np.array([0.2, 0.5, 1.0, 2.0, 4.0])
        norms = ISOTROPIC[name].radial_quantile((torch.arange(n, dtype=F64) + 0.5) / n, d).numpy()
        t = np.maximum(np.outer(r, norms), 1e-12)
        order = d / 2 - 1
        sphere = np.cos(t) if d == 1 else special.gamma(d / 2) * (2 / t) ** order * special.jv(order, t)
        np.testing.assert_allclose(sphere.mean(1), ISOTROPIC[name].kernel(torch.from_numpy(r)), atol=1e-3)

    @pytest.mark.parametrize("name", ISOTROPIC)
    @pytest.mark.parametrize("d", [1, 5, 64])
    def test_density_and_quantile_are_those_of_one_distribution(self, name, d):
        spectrum, small = ISOTROPIC[name], np.array([2.0**-53, 1e-9, 1e-4])
        u = torch.from_numpy(np.r_[small, np.linspace(0.01, 0.99, 15), 1 - small[::-1]])
        r = spectrum.radial_quantile(u, d)
        assert torch.isfinite(r).all()
        assert (torch.diff(r) > 0).all()
        middle = u[2:-2]
        step = 1e-4 * torch.minimum(middle, 1 - middle)
        up, down = (spectrum.radial_quantile(middle + sign * step, d) for sign in (1, -1))
        np.testing.assert_allclose(2 * step / (up - down), spectrum.radial_log_density(r[2:-2], d).exp(), rtol=5e-3)

    @pytest.mark.parametrize("name", [name for name in ISOTROPIC if name != "rational quadratic 0.4"])
    def test_density_of_frequencies_has_the_radial_density(self, name):
        d, spectrum = 3, ISOTROPIC[name]
        omega = torch.from_numpy(np.random.default_rng(0).standard_normal((4, d)))
        norms = omega.norm(dim=1)
        area = np.log(2 * np.pi ** (d / 2) / special.gamma(d / 2)) + (d - 1) * norms.log()
        torch.testing.assert_close(spectrum.log_prob(omega), spectrum.radial_log_density(norms, d) - area)

    @pytest.mark.parametrize("name", SPECTRA)
    def test_gradients_are_finite_everywhere(self, name):
        spectrum, x = SPECTRA[name][0], torch.zeros(2, 3, dtype=F64, requires_grad=True)
        assert not torch.autograd.grad(spectrum.kernel_between(x, x).sum(), x)[0].any()
        a, b = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 3, 2)))
        assert torch.autograd.gradcheck(spectrum.kernel_between, (a.requires_grad_(), b.requires_grad_()))

    @pytest.mark.parametrize("name", ISOTROPIC)
    def test_gram_and_slope_are_the_kernel_and_its_derivative(self, name):
        spectrum, z = ISOTROPIC[name], torch.from_numpy(np.random.default_rng(0).standard_normal((5, 2)))
        square, away = torch.cdist(z, z).square(), ~torch.eye(5, dtype=torch.bool)
        kernel, slope = spectrum.gram_and_slope(z)
        up, down = (spectrum.kernel((square[away] + step).sqrt()) for step in (1e-5, -1e-5))
        torch.testing.assert_close(kernel, spectrum.kernel(square.sqrt()), rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(slope[away], (up - down) / 2e-5, rtol=1e-6, atol=1e-6)
        assert bool(torch.isfinite(slope).all())
        if name in ("matern 3/2", "matern 5/2", "matern 4.2", "rational quadratic 3", "gaussian"):
            assert spectrum.slope_variance == pytest.approx(-2 * float(slope[0, 0]))

    def test_distances_far_from_the_origin_keep_their_digits(self):
        x = torch.tensor([[0.0], [1e-3]], dtype=F64)
        far = ROUGH.kernel_between(x + 1e6, x + 1e6)
        torch.testing.assert_close(far, ROUGH.kernel_between(x, x), rtol=0, atol=1e-6)
        huge = torch.tensor([[1e200], [-1.0], [3e200]], dtype=F64)
        assert ROUGH.kernel_between(huge, huge).tolist() == torch.eye(3).tolist()
