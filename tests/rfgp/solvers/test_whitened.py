"""Neighbours that are observations beside other terms: with all predecessors the exact process, by dense algebra."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sums import F64, Dense, data, points, prior_of, terms_of, theta

import rfgp
from rfgp.blocks import Residual, VecchiaBlock
from rfgp.local.neighbors import used
from rfgp.solvers.bordered import BorderedSystem
from rfgp.solvers.whitened import BlockedInference, WhitenedPosterior, WhitenedSolver, blocked, is_large
from rfgp.solvers.whitened import whitened as inference_of
from rfgp.solvers.whitened.whitening import Whitener

SUMS = {
    "alone": ("neighbors",),
    "two weights": ("neighbors", "fourier", "linear"),
    "fitc": ("neighbors", "fitc"),
    "kernel": ("neighbors", "kernel"),
    "residual": ("residual",),
    "groups": ("neighbors", "groups"),
    "chain and groups": ("neighbors", "fourier", "chain", "groups"),
    "moving chain": ("neighbors", "linear", "moving"),
}


def solvers(names, rows, p=None, **options):
    """Return the solver and its dense twin."""
    p = p or theta()
    terms = terms_of(p, names, **options)
    return WhitenedSolver.of(prior_of(terms), rows, p["mean"], p["noise"]), Dense(terms, rows, p), p


def rows_for(names, **options):
    """Return rows; without copies if a kernel has a weight for each."""
    return data(copies="kernel" not in names, **options)


def close(a, b, atol=1e-8):
    return torch.allclose(a, b, rtol=1e-8, atol=atol)


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("names", SUMS.values(), ids=SUMS)
def test_likelihood_and_gradient_match_dense(names, uneven):
    rows = replace(rows_for(names, uneven=uneven), signs=torch.tensor([1.0, -0.5], dtype=F64))
    if uneven:
        rows = replace(rows, signs=None)  # repetitions count once an output
    found, twin, p = solvers(names, rows)
    ours, exact = found.log_marginal_likelihood(), twin.log_density()
    assert ours.item() == pytest.approx(exact.item(), abs=1e-8)
    slopes, expected = (torch.autograd.grad(v, [*p.values()], allow_unused=True) for v in (ours, exact))
    for name, a, b in zip(p, slopes, expected, strict=True):
        assert (a is None) == (b is None), name
        assert a is None or torch.allclose(a, b, rtol=1e-7, atol=1e-7), name


@pytest.mark.parametrize("names", SUMS.values(), ids=SUMS)
def test_rows_match_dense(names):
    """Leave-one-out, coefficients, fitted values, their variances, the determinant; and at other targets and noise."""
    rows = rows_for(names)
    found, twin, p = solvers(names, rows)
    other = replace(rows, targets=rows.targets.flip(0), fixed_noise=0.3 * rows.fixed_noise.flip(0), weight=None)
    for solver, exact in ((found, twin), (found.at(other, p["mean"], p["noise"]), Dense(twin.terms, other, p))):
        with torch.no_grad():
            for a, b in zip(solver.leave_one_out(), exact.leave_one_out(), strict=True):
                assert close(a, b)
            assert close(solver.coefficients, exact.coefficients(), 1e-7)
            assert close(solver.fitted, exact.latent()[0])
            assert close(solver.latent_variances, exact.latent()[1])
            assert solver.log_determinant.item() == pytest.approx(exact.log_determinant().item(), abs=1e-8)


@pytest.mark.parametrize("names", SUMS.values(), ids=SUMS)
def test_predictions_match_dense(names):
    found, twin, _ = solvers(names, rows_for(names))
    new = points()
    posterior = found.posterior()
    restored = WhitenedPosterior(posterior.prior, **posterior.tensors())
    with torch.no_grad():
        for one in (posterior, restored):
            projected = one.project(new)
            assert close(one.mean(projected), twin.mean_at(new))
            assert close(one.variance(new, projected), twin.covariance_at(new).diagonal())
            assert close(one.covariance(new, projected), twin.covariance_at(new))
    with pytest.raises(rfgp.InvalidArgumentError, match="no functions to draw"):
        posterior.sample_functions(2, torch.Generator())


@pytest.mark.parametrize("names", SUMS.values(), ids=SUMS)
def test_terms_match_dense(names):
    found, twin, _ = solvers(names, rows_for(names))
    posterior, new, total = found.posterior(), points(), 0
    known = [term.name for term in twin.terms]
    with torch.no_grad():
        for first in known:
            own = posterior.of([first])
            projected = own.project(new)
            assert close(own.mean(projected), twin.mean_at(new, [first]))
            assert close(own.variance(new, projected), twin.covariance_at(new, [first], [first]).diagonal())
            total = total + own.mean(projected)
            for second in (known, [first], *([name] for name in known)):
                cross = posterior.cross_covariance(new, [first], second)
                assert close(cross, twin.covariance_at(new, [first], second))
        assert close(total, posterior.mean(posterior.project(new)))
    with pytest.raises(rfgp.InvalidArgumentError, match="no term"):
        posterior.of(["other"])


@pytest.mark.parametrize("names", [SUMS["two weights"], SUMS["chain and groups"]])
def test_few_neighbors_come_close(names):
    rows, new = data(300), points(100)
    errors = []
    with torch.no_grad():
        for count in (3, 10, 30):
            found, twin, _ = solvers(names, rows, k=count)
            posterior = found.posterior()
            projected = posterior.project(new)
            errors.append(float((posterior.mean(projected) - twin.mean_at(new)).square().mean().sqrt()))
            covariance = posterior.covariance(new, projected)
            assert float(torch.linalg.eigvalsh(covariance)[0]) > -1e-12
            assert torch.allclose(covariance.diagonal(), posterior.variance(new, projected), rtol=1e-10)
    assert errors[0] > 1.3 * errors[1] > 1.5 * errors[2], errors


def test_parts_of_rows_add_up():
    """Rows given their neighbours, half of them each time."""
    p, rows = theta(), data(60)
    prior = prior_of(terms_of(p, ("neighbors",), k=6))
    block, rest = prior.neighbors, (p["mean"], p["noise"])
    ordered = rows.take(block.order(60))
    whole = WhitenedSolver(prior, ordered, *rest, block.predecessors(ordered.inputs)).log_marginal_likelihood()
    parts = []
    for some in (np.arange(0, 60, 2), np.arange(1, 60, 2)):
        pattern, columns = used(block.predecessors(ordered.inputs, torch.from_numpy(some)))
        near = ordered.take(torch.from_numpy(columns))
        parts.append(WhitenedSolver(prior, near, *rest, pattern).log_marginal_likelihood())
    assert sum(parts).item() == pytest.approx(whole.item(), abs=1e-9)


@pytest.mark.parametrize("names", [SUMS["two weights"], SUMS["fitc"], SUMS["residual"]])
def test_blocks_of_rows_match_one_block(names, monkeypatch):
    monkeypatch.setattr(blocked, "MOST_FEATURES", 0)
    monkeypatch.setattr(blocked, "BLOCK_FEATURES", 200)
    p, rows, new = {name: value.detach() for name, value in theta().items()}, data(300), points()
    prior = prior_of(terms_of(p, names, k=7))
    one, many = (of(prior, rows, p["mean"], p["noise"]) for of in (WhitenedSolver.of, inference_of))
    assert isinstance(many, BlockedInference)
    assert many.log_marginal_likelihood().item() == pytest.approx(one.log_marginal_likelihood().item(), abs=1e-8)
    for a, b in zip(many.leave_one_out(), one.leave_one_out(), strict=True):
        assert torch.equal(a, b)
    ours, other = many.posterior(), one.posterior()
    for a, b in zip(ours.moments(new, ours.project(new)), other.moments(new, other.project(new)), strict=True):
        assert close(a, b, 1e-11)


def test_features_are_kept_where_they_are_needed(monkeypatch):
    monkeypatch.setattr(blocked, "MOST_FEATURES", 0)
    p = theta()
    fixed = {name: value.detach() for name, value in p.items()}
    assert is_large(prior_of(terms_of(fixed, SUMS["two weights"])), 10)
    assert not is_large(prior_of(terms_of(fixed, SUMS["alone"])), 10**9)
    assert not is_large(prior_of(terms_of(fixed, SUMS["groups"])), 10**9)
    assert not is_large(prior_of(terms_of(p, SUMS["two weights"])), 10**9)


def test_bounds_are_refused():
    p = theta()
    prior = prior_of(terms_of(p, ("neighbors", "fitc")))
    bounding = replace(prior.weights[0], residual=Residual(False, lambda *given: None))
    with pytest.raises(rfgp.InvalidArgumentError, match="fitc"):
        WhitenedSolver.of(replace(prior, weights=(bounding,)), data(), p["mean"], p["noise"])


def test_shared_reads_need_entries_between_them():
    """Rows that share neighbours read pairs of levels, which a group's own precision has no entries for."""
    found, _, _ = solvers(SUMS["groups"], data())
    system = found.system
    narrow = BorderedSystem(system.latents, system.reads, system.border, system.noise, system.residual)
    assert len(system.pattern.csr.indices) > len(narrow.pattern.csr.indices)


def _transposed(patch):
    patch.setattr(Whitener, "times", lambda self, dense: self.back(dense))


def _sign(patch):
    own = Whitener.log_determinant.fget
    patch.setattr(Whitener, "log_determinant", property(lambda self: -own(self)))


def _unshared(patch):
    """The noise of a row without its share for repetitions."""
    patch.setattr(rfgp.rows.Block, "noise_diag", rfgp.rows.Block.observation_noise)


def _without_residual(patch):
    """FITC's residual is left out of the noise."""
    patch.setattr("rfgp.solvers.whitened.solver.completed", lambda weights, rows, noise, phi: (rows, noise * 0, 0.0))


def _conditionals(of):
    def plant(patch):
        own = VecchiaBlock.conditionals
        patch.setattr(VecchiaBlock, "conditionals", lambda *given: of(*own(*given)))

    return plant


def _in_reads(patch):
    """The gradient in the whitened reads is dropped."""
    own = BorderedSystem.in_reads
    patch.setattr(BorderedSystem, "in_reads", lambda self: 0 * own(self))


def _rows_of_features(patch):
    """The features of a residual at rows are scaled."""
    own = VecchiaBlock.inverse_factor
    patch.setattr(
        VecchiaBlock, "inverse_factor", lambda self, x, noise, near, phi: own(self, x, noise, near, 0.99 * phi)
    )


FAULTS = {
    "whitener transposed": (_transposed, "two weights"),
    "sign of log|V|": (_sign, "alone"),
    "share of repeated rows": (_unshared, "two weights"),
    "residual noise": (_without_residual, "fitc"),
    "weights of neighbours": (_conditionals(lambda weights, left: (1.0001 * weights, left)), "alone"),
    "variance left": (_conditionals(lambda weights, left: (weights, 1.0001 * left)), "alone"),
    "gradient in reads": (_in_reads, "groups"),
    "features of a residual": (_rows_of_features, "residual"),
}


@pytest.mark.parametrize(("plant", "names"), FAULTS.values(), ids=FAULTS)
def test_planted_errors_are_seen(plant, names, monkeypatch):
    def is_right():
        rows, new = data(), points()
        found, twin, p = solvers(SUMS[names], rows)
        free = [p[name] for name in p if name.startswith("neighbors") or (names == "residual" and "inducing" in name)]
        ours, exact = found.log_marginal_likelihood(), twin.log_density()
        pairs = zip(*(torch.autograd.grad(v, free, allow_unused=True) for v in (ours, exact)), strict=True)
        slopes = all(torch.allclose(a, b, rtol=1e-6) for a, b in pairs if a is not None)
        posterior = found.posterior()
        projected = posterior.project(new)
        variances = close(posterior.variance(new, projected), twin.covariance_at(new).diagonal().detach())
        means = close(posterior.mean(projected), twin.mean_at(new).detach())
        return slopes and variances and means and abs(ours.item() - exact.item()) < 1e-8

    assert is_right()
    plant(monkeypatch)
    assert not is_right()
