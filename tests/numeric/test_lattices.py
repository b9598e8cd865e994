"""Lattices of frequencies: their features against periodic sums of kernels, and their plans."""

import numpy as np
import pytest
import torch

from rfgp import lattices, spectra

PRODUCTS = {
    "gaussian": lattices.SpectralProduct((spectra.Gaussian(),), ((0,),), ("a.",)),
    "matern 5/2": lattices.SpectralProduct((spectra.Matern(2.5),), ((0,),), ("a.",)),
    "rational quadratic": lattices.SpectralProduct((spectra.RationalQuadratic(3.0),), ((0,),), ("a.",)),
    "gaussian in two columns": lattices.SpectralProduct((spectra.Gaussian(),), ((0, 1),), ("a.",)),
    "product": lattices.SpectralProduct((spectra.Gaussian(), spectra.Matern(4.5)), ((1,), (0, 2)), ("a.", "b.")),
}
VALUES = {"a.lengthscale": torch.tensor([0.3], dtype=torch.float64), "b.lengthscale": torch.tensor([0.6, 0.5]).double()}
IMAGES = 4
"""The number of periods on each side in the sum of images."""


def design_of(name, level=1e-9, tolerance=1e-3):
    product = PRODUCTS[name]
    d = product.num_columns
    box = np.zeros(d), np.linspace(1.0, 1.4, d)
    values = {f"{prefix}lengthscale": VALUES[f"{prefix}lengthscale"] for prefix in product.prefixes}
    plan = lattices.plan_lattice(product, values, tuple(range(d)), box, level, tolerance, 20_000)
    return lattices.design.LatticeDesign(plan.modes, product, tuple(values)), tuple(values.values()), plan


def points(d, count=6):
    return torch.as_tensor(np.random.default_rng(1).uniform(0, 1, (count, d)))


def periodic_kernel(design, parameters, x):
    """Return the sum of the kernel over all images in the neighboring periods."""
    periods, d = 1 / design.lattice.spacing, design.lattice.num_columns
    total = torch.zeros(len(x), len(x), dtype=torch.float64)
    for shift in np.ndindex(*(2 * IMAGES + 1,) * d):
        offset = torch.as_tensor((np.array(shift) - IMAGES) * periods)
        total += design.kernel(x, x + offset, *parameters)
    return total


@pytest.mark.parametrize("name", PRODUCTS)
def test_features_match_the_periodic_kernel(name):
    """Up to the variance of missing modes."""
    design, parameters, _ = design_of(name)
    x = points(design.lattice.num_columns)
    phi, missing = design.features(x, *parameters), float(design.residual_variance(*parameters))
    np.testing.assert_allclose(phi @ phi.mT, periodic_kernel(design, parameters, x), atol=missing + 2e-6)
    kept = float(phi[0].square().sum())
    np.testing.assert_allclose(missing, float(periodic_kernel(design, parameters, x[:1])) - kept, atol=1e-5)
    assert missing < 1e-4
    np.testing.assert_allclose(design.total(x, *parameters), kept + missing, atol=1e-5)


@pytest.mark.parametrize("name", PRODUCTS)
def test_gradient_of_scale_matches_differences(name):
    design, parameters, _ = design_of(name, level=1e-4)
    leaves = [one.clone().requires_grad_() for one in parameters]
    assert torch.autograd.gradcheck(lambda *values: design.scale(*values).square(), leaves, atol=1e-6)


@pytest.mark.parametrize("name", PRODUCTS)
def test_plan_keeps_exactly_the_modes_above_the_level(name):
    design, parameters, plan = design_of(name, level=1e-3)
    widths = design.lattice.half_widths
    values = dict(zip(design.names, parameters, strict=True))
    indices = np.stack(np.meshgrid(*(np.arange(-w, w + 1) for w in widths), indexing="ij"), -1).reshape(-1, len(widths))
    logs = design.product.log_prob(torch.as_tensor(indices * design.lattice.spacing), values)
    variances = logs.exp().numpy() * np.prod(design.lattice.spacing)
    is_zero = (indices == 0).all(1)
    assert plan.num_wanted == 2 * int(((variances > 1e-3) & ~is_zero).sum()) // 2 + 1
    kept = {tuple(j) for j in plan.modes.indices} | {tuple(-j) for j in plan.modes.indices}
    assert kept == {tuple(j) for j in indices[(variances > 1e-3) & ~is_zero]}


def test_plan_keeps_the_largest_modes_if_they_are_too_many():
    few, all_ = (
        lattices.plan_lattice(PRODUCTS["product"], VALUES, (0, 1, 2), (np.zeros(3), np.ones(3)), 1e-6, 1e-3, most)
        for most in (101, 20_000)
    )
    assert few.num_wanted == all_.num_wanted > 101 == few.modes.num_features
    assert few.residual_variance > all_.residual_variance


@pytest.mark.parametrize("factor", [0.85, 1.0, 1.2])
def test_lattice_serves_nearby_lengthscales(factor):
    design, parameters, _ = design_of("gaussian", level=1e-5)
    near = {design.names[0]: factor * parameters[0]}
    assert lattices.design.supports(design.product, near, design.lattice, 1e-5, 1e-3)
    far = {design.names[0]: 2.5 * factor * parameters[0]}
    assert not lattices.design.supports(design.product, far, design.lattice, 1e-5, 1e-3)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_transforms_match_sums_of_exponentials(d):
    rng = np.random.default_rng(d)
    angles, shape = rng.uniform(-3, 3, (20, d)), (5, 3, 7)[:d]
    strengths = rng.normal(size=20) + 1j * rng.normal(size=20)
    integers = np.stack(np.meshgrid(*(np.arange(n) - n // 2 for n in shape), indexing="ij"), -1)
    waves = np.exp(1j * np.tensordot(integers, angles, axes=(-1, 1)))
    np.testing.assert_allclose(
        lattices.design.sums_at_frequencies(angles, strengths, shape), waves @ strengths, atol=1e-10
    )
    coefficients = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    expected = np.tensordot(coefficients, waves, axes=(list(range(d)), list(range(d))))
    np.testing.assert_allclose(lattices.design.series_at_points(angles, coefficients), expected, atol=1e-10)
    assert not lattices.design.sums_at_frequencies(angles[:0], strengths[:0], shape).any()
    assert lattices.design.series_at_points(angles[:0], coefficients).shape == (0,)
