"""Frequencies and weights for given rows, against brute force, quadrature and the definition of a bias."""

import numpy as np
import pytest
import torch

import rfgp
from rfgp import couplings, features, spectra, theory
from rfgp.couplings import adapted

F64 = torch.float64


def rows(n=60, d=3, seed=0):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.standard_normal((n, d)) * [1.0, 0.4, 0.1][:d] + rng.integers(0, 2, (n, 1)))


def errors(omega, weights, x, spectrum):
    estimate = sum(a * torch.cos((x[:, None] - x[None]) @ w) for a, w in zip(weights, omega, strict=True))
    return (estimate - spectrum.kernel_between(x, x)).square().mean()


@pytest.mark.parametrize("spectrum", [spectra.Gaussian(), spectra.Matern(1.5)], ids=["gaussian", "matern"])
def test_weights_are_those_of_least_squares(spectrum):
    """No step to another point of the simplex makes the mean square over all pairs smaller."""
    x, omega = rows(), couplings.IID().sample(20, 3, seed=0).dense()
    weights = adapted.fitted_weights(omega, x, spectrum)
    assert float(weights.min()) >= 0
    assert float(weights.sum()) == pytest.approx(1, abs=1e-12)
    free = weights.clone().requires_grad_()
    (slope,) = torch.autograd.grad(errors(omega, free, x, spectrum), [free])
    used = weights > 0
    level = float(slope[used].mean())
    scale = float((1 / 20 - weights).abs() @ (slope - level).abs()) + float(errors(omega, weights, x, spectrum))
    assert float((slope[used] - level).abs().max()) < 1e-5 * max(scale, float(slope.abs().max()))
    assert float((slope - level).min()) > -1e-5 * float(slope.abs().max())
    equal = torch.full((20,), 1 / 20, dtype=F64)
    assert errors(omega, weights, x, spectrum) < 0.5 * errors(omega, equal, x, spectrum)


def test_the_closed_form_is_the_mean_over_normal_differences():
    """By Gauss-Hermite quadrature in two dimensions, and its gradient by differences."""
    spread = torch.tensor([[1.3, 0.4], [0.4, 0.5]], dtype=F64)
    omega, weights = torch.tensor([[0.3, 1.2], [-1.0, 0.4], [2.0, 0.1]], dtype=F64), torch.tensor([0.5, 0.2, 0.3])
    nodes, share = np.polynomial.hermite_e.hermegauss(60)
    z = torch.from_numpy(np.stack(np.meshgrid(nodes, nodes), -1).reshape(-1, 2)) @ torch.linalg.cholesky(spread).mT
    share = torch.from_numpy(np.outer(share, share).reshape(-1) / (2 * np.pi))
    total = 0.0
    for t in adapted.SCALES:
        d = np.sqrt(t) * z
        cosines, kernel = torch.cos(d @ omega.mT), torch.exp(-0.5 * d.square().sum(1))
        squares = (cosines @ weights.double() - kernel).square()
        # the variance of one cosine of a frequency with the spectral law: E cos^2 = (1 + E k(2 d)) / 2, less E k^2
        one = 0.5 + 0.5 * share @ torch.exp(-2 * d.square().sum(1)) - share @ kernel.square()
        total += float(share @ squares / one)
    found = adapted.normal_error(omega, weights.double(), spread)
    assert found.item() == pytest.approx(total / len(adapted.SCALES), rel=1e-8)


def test_moves_lower_the_closed_form_unless_rows_coincide():
    x, base = rows(), couplings.Energy(weighted=True).sample(24, 3, seed=0)
    spread = 2 * torch.cov(x.mT)
    moved = adapted.optimized_frequencies(base.dense(), base.weights / 24, x)
    before = adapted.normal_error(base.dense(), base.weights / base.weights.sum(), spread)
    weights = adapted.fitted_weights(moved, x, spectra.Gaussian())
    assert adapted.normal_error(moved, weights, spread) < 0.8 * before
    assert torch.equal(adapted.optimized_frequencies(base.dense(), base.weights / 24, x[:1].expand(5, 3)), base.dense())
    for near in (x * 1e-4, x * 1e-9, x * 1e200):
        assert bool(couplings.DataAdapted(near).sample(8, 3, seed=0).dense().isfinite().all())
    one = couplings.DataAdapted(x[:1]).sample(8, 3, seed=0)
    assert float(one.weights.sum()) == pytest.approx(8)


@pytest.mark.slow
def test_it_is_nearer_to_the_kernel_on_other_rows_too():
    """Root mean square error over the pairs of rows that it has not seen, of the same law."""
    x, z = rows(400), rows(400, seed=1)
    plain = theory.pairs_error(couplings.Energy(weighted=True), z, 24, num_draws=8)
    weighted = theory.pairs_error(couplings.DataAdapted(x, optimize_frequencies=False), z, 24, num_draws=8)
    found = theory.pairs_error(couplings.DataAdapted(x), z, 24, num_draws=8)
    assert found.error < weighted.error < 0.8 * plain.error


@pytest.mark.slow
def test_a_bias_is_found_where_there_is_one_and_only_there():
    """Six standard errors of the squared bias; that of shrunken frequencies is known."""

    class Shrunken(couplings.IID):
        def _frequencies(self, m, d, spectrum, generator):
            return 0.8 * super()._frequencies(m, d, spectrum, generator)

    x = rows(40)
    none = theory.pairs_error("orthogonal", x, 64, num_draws=64)
    assert none.bias**2 < 6 * none.bias_error
    i, j = np.triu_indices(40, 1)
    kernel = spectra.Gaussian().kernel
    apart = (x[i] - x[j]).norm(dim=1)
    known = float((kernel(0.8 * apart) - kernel(apart)).square().mean())
    some = theory.pairs_error(Shrunken(), x, 64, num_draws=300)
    assert abs(some.bias**2 - known) < 6 * some.bias_error < 0.3 * known
    assert some.error > some.bias
    fitted = theory.pairs_error(couplings.DataAdapted(x), x, 16, num_draws=40)
    assert fitted.bias**2 > 6 * fitted.bias_error
    plain = theory.pairs_error(couplings.Energy(weighted=True), x, 16, num_draws=40)
    assert fitted.error < 0.5 * plain.error


def test_it_is_drawn_for_models_and_refused_where_it_is_not_for(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((80, 3)), rng.standard_normal(80)
    coupling = couplings.DataAdapted(X / 2)
    gp = rfgp.SparseSpectrumGP(num_frequencies=8, coupling=coupling, seed=0).condition(X, y)
    gp.save(tmp_path / "m")
    again = rfgp.load(tmp_path / "m")
    assert np.array_equal(again.predict(X).mean, gp.predict(X).mean)
    assert again.terms["rbf"].approximation.coupling.rows == coupling.rows
    assert repr(coupling) == "DataAdapted(rows=...)"
    many = couplings.DataAdapted(np.arange(2000.0)[:, None])
    assert len(many.rows) == adapted.MAX_ROWS
    assert many.rows[-1] == [1999.0]
    with pytest.raises(rfgp.InvalidArgumentError, match="fourier"):
        rfgp.SparseSpectrumGP(coupling=coupling, kind="laplace")
    with pytest.raises(rfgp.InvalidArgumentError, match="3 columns of the rows"):
        coupling.sample(4, 2, seed=0)
    with pytest.raises(rfgp.InvalidArgumentError, match="Use pairs_error"):
        theory.kernel_error(coupling, [1.0], 8, 3)
    with pytest.raises(rfgp.InvalidArgumentError, match="must be isotropic"):
        coupling.sample(4, 3, spectrum=spectra.ProductLaplace(), seed=0)
    with pytest.raises(rfgp.InvalidArgumentError, match="finite rows"):
        couplings.DataAdapted(np.full((3, 2), np.nan))
    for given in ({"num_draws": 2}, {"x": np.zeros((5000, 1))}):
        with pytest.raises(rfgp.InvalidArgumentError, match="at most 4,096 rows"):
            theory.pairs_error("iid", **{"x": X, "num_frequencies": 4, **given})


@pytest.mark.parametrize("fault", ["products", "kernel", "sines"])
def test_planted_errors_are_seen(fault, monkeypatch):
    x, omega, spectrum = rows(), couplings.IID().sample(6, 3, seed=0).dense(), spectra.Gaussian()
    best = errors(omega, adapted.fitted_weights(omega, x, spectrum), x, spectrum)
    if fault == "products":
        monkeypatch.setattr(adapted, "nnls", lambda left, right, **more: (np.abs(left.sum(0)), 0.0))
        wrong = adapted.fitted_weights(omega, x, spectrum)
    elif fault == "kernel":
        wrong = adapted.fitted_weights(omega, x, spectra.Matern(0.5))
    else:
        wrong = adapted.fitted_weights(omega, features.Fourier(omega)(x)[:, :3], spectrum)
    assert errors(omega, wrong, x, spectrum) > 1.001 * best
