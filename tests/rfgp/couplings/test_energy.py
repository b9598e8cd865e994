"""The energy coupling: minima of the energy by closed forms, products of kernels, and the store of directions."""

import itertools
import multiprocessing
import os
import threading
import warnings

import numpy as np
import pytest
import torch
from checks import assert_mean
from scipy import special, stats

import rfgp
from rfgp import couplings, spectra, theory
from rfgp.couplings import Energy
from rfgp.couplings.energy import solver

F64 = torch.float64
GAUSSIAN, MATERN, ROUGH = spectra.Gaussian(), spectra.Matern(1.5), spectra.Matern(0.5)


def energy(blocks, weights, table, sign=-1):
    """The second moment of the kernel estimate over rotations of each block: a sum over pairs of frequencies.

    `blocks` are arrays (n, d), and each row of `table` has a distance for each block, and a strength.
    """
    total = 0.0
    for *distances, strength in table:
        for s in (1, -1):
            pairs = 1.0
            for block, z in zip(blocks, distances, strict=True):
                squares = ((block[:, None] + s * block) ** 2).sum(2)
                pairs = pairs * special.hyp0f1(block.shape[1] / 2, sign * squares * z**2 / 4)
            total += strength * (weights @ pairs @ weights)
    return total


def moved(blocks, size, seed):
    """Frequencies of the same norms, whose directions moved by random steps."""
    rng, out = np.random.default_rng(seed), []
    for block in blocks:
        norms = np.linalg.norm(block, axis=1, keepdims=True)
        step = block + size * norms * rng.standard_normal(block.shape)
        out.append(step * norms / np.linalg.norm(step, axis=1, keepdims=True))
    return out


def assert_minimum(bound, blocks, *arguments):
    """The slopes nearly vanish, compared with those at random directions."""

    def slope(blocks):
        ends = [[energy(moved(blocks, size, seed), *arguments) for size in (1e-5, -1e-5)] for seed in range(40)]
        return np.square(np.diff(ends)).mean() ** 0.5

    assert slope(blocks) < bound * slope(moved(blocks, 1e9, 99))


class TestEnergy:
    @pytest.mark.parametrize(
        ("options", "m", "d"),
        [
            ({}, 14, 5),
            ({"features": "laplace"}, 20, 3),
            ({"distances": [[0.7, 1.0], [2.0, 3.0]]}, 12, 3),
            ({"features": "laplace", "distances": [[0.5, 1.0], [1.0, 0.2]]}, 20, 5),
            ({"proposal_histogram": [1.0, 2.0, 4.0, 1.0]}, 11, 3),
            ({"weighted": True}, 12, 3),
        ],
        ids=str,
    )
    def test_directions_are_a_minimum_of_the_energy(self, options, m, d):
        """Its slopes nearly vanish, by closed forms of averages over the sphere."""
        made = Energy(**options)
        solved, is_positive = made.solution(m, d), made.features == "laplace"
        n = m // 2 if is_positive else m
        u, heights = (np.arange(n) + 0.5) / n, np.array(made.proposal_histogram or [1.0])
        edges = np.r_[0, np.cumsum(heights / heights.sum())]
        bins = np.searchsorted(edges, u, side="right") - 1
        norms = solved.proposal_scale * stats.chi(d).ppf(np.interp(u, edges, np.linspace(0, 1, len(edges))))
        weights = heights.mean() / heights[bins] * stats.chi(d).pdf(norms) * solved.proposal_scale
        weights = weights / stats.chi(d).pdf(norms / solved.proposal_scale)
        if made.distances is None:  # the inverse variance of an independent frequency, or of a pair of cosh
            z = np.linspace(0.3, 3.0, 10)
            square = np.exp(-(z**2))
            table = np.stack([z, square / np.expm1(z**2) ** 2 if is_positive else 1 / (1 - square) ** 2], 1)
        else:
            table = np.array(made.distances)
            table[:, 1] *= np.exp(-(table[:, 0] ** 2)) if is_positive else 1.0
        blocks = [solved.unit().numpy() * norms[:, None]]
        assert_minimum(0.02, blocks, weights, table, 1 if is_positive else -1)
        assert (solved.proposal_scale == 1) is not made.weighted

    @pytest.mark.parametrize(
        ("d", "n", "z", "bound"),
        [(2, 64, 1.5, 0.02), (5, 80, 1.0, 0.03), pytest.param(8, 128, 1.5, 0.10, marks=pytest.mark.slow)],
    )
    def test_errors_fall_far_below_those_of_independent_frequencies(self, d, n, z, bound):
        plain, weighted = (
            theory.rotated_error(Energy(weighted=weighted).sample(n, d, seed=0), z) for weighted in (False, True)
        )
        assert plain < bound * theory.independent_variance(z, n)
        assert weighted < 0.6 * plain
        assert 1.02 < Energy(weighted=True).solution(n, d).proposal_scale < 1.6

    def test_up_to_d_directions_are_orthogonal(self):
        rows = Energy().sample(6, 8, seed=0).dense()
        gram = rows @ rows.T
        assert float((gram - gram.diagonal().diag()).abs().max()) < 1e-12

    @pytest.mark.slow
    def test_large_ensembles_start_from_blocks_and_say_so_once(self):
        with pytest.warns(rfgp.CouplingWarning, match="copies of one block"):
            found = Energy().solution(1301, 2)
        assert found.num_blocks > 1
        assert found.num_steps < 300
        draw = Energy().sample(1301, 2, seed=1)  # it does not warn again
        assert theory.rotated_error(draw, [1.0]) < 0.01 * theory.independent_variance([1.0], 1301)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            Energy().sample(64, 4, seed=0)
        assert not caught

    @pytest.mark.parametrize(("n", "d"), [(100, 3), (1301, 2), (4096, 10), (20_000, 50), (100_000, 200)])
    def test_quick_plans_bound_the_pairs_of_all_steps(self, n, d):
        (blocks, steps), cost = solver.plan(n, d, full=False), 1 + d / 50
        assert steps * n**2 * cost <= solver.QUICK_PAIRS
        assert (steps == 300) is (blocks == 1) is (300 * n**2 * cost <= solver.QUICK_PAIRS)
        assert blocks == 1 or 300 * (n / blocks) ** 2 * cost <= solver.BLOCK_PAIRS
        assert solver.plan(n, d, full=True) == (1, 300)

    def test_solving_reports_progress_and_takes_full_effort(self):
        steps = []
        made = Energy(distances=[[1.3, 1.0]]).solve(13, 3, progress=lambda done, total: steps.append((done, total)))
        assert steps == [(k + 1, len(steps)) for k in range(len(steps))]
        assert len(steps) == 300
        assert made.effort == "full"
        assert made.solution(13, 3).num_blocks == 1


TWO, WIDE, LINES = [(GAUSSIAN, 2), (MATERN, 1)], [(GAUSSIAN, 3), (ROUGH, 2)], [(MATERN, 1), (ROUGH, 1)]
MIXED = [(MATERN, 1), (GAUSSIAN, 2), (ROUGH, 1), (GAUSSIAN, 1)]


def product_kernel(factors, x):
    blocks = np.split(x, np.cumsum([d for _, d in factors])[:-1], axis=1)
    each = [s.kernel(torch.from_numpy(np.linalg.norm(b, axis=1))) for (s, _), b in zip(factors, blocks, strict=True)]
    return np.prod(np.array(each), axis=0)


def product_draws(made, factors, m, repeats, seed=7):
    generator = torch.Generator().manual_seed(seed)
    drawn = [made.sample_product(m, factors, generator=generator) for _ in range(repeats)]
    return torch.stack([f.dense() for f in drawn]).numpy(), torch.stack([f.weights for f in drawn]).numpy()


def product_table(measures, grid):
    """Return distances of each factor, and the inverse variances of one frequency there, as weights."""
    z = np.array([z for z in itertools.product(grid, repeat=len(measures)) if any(z)])
    single, double = (product_kernel([(measure, 1) for measure in measures], c * z) for c in (1, 2))
    strengths = 1 / ((1 + double) / 2 - single**2)
    return np.column_stack([z, strengths / strengths.sum()])


class TestProducts:
    """Frequencies of products of kernels on different columns."""

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("made", "factors", "m"),
        [
            (Energy(), WIDE, 3),
            (Energy(), MIXED, 2),
            (Energy(weighted=True), TWO, 3),
            (couplings.Sobol(), MIXED, 3),
        ],
        ids=str,
    )
    def test_rows_have_the_distribution_of_the_product(self, made, factors, m):
        """The first row, half of the rows and all of them estimate the product; sines have mean 0."""
        x = np.random.default_rng(1).uniform(-1.5, 1.5, (5, sum(d for _, d in factors)))
        omega, weights = product_draws(made, factors, m, 1000)
        angles, w = omega @ x.T, weights[:, :, None]
        for part in (slice(0, 1), slice(0, (m + 1) // 2), slice(None)):
            assert_mean((w * np.cos(angles))[:, part].mean(1), product_kernel(factors, x))
            assert_mean((w * np.sin(angles))[:, part].mean(1), np.zeros(5))

    def test_norms_of_each_factor_are_stratified(self):
        m = 7
        omega = Energy().sample_product(m, WIDE, seed=0).dense()
        edges = torch.arange(1, m, dtype=F64) / m
        for (measure, d), block in zip(WIDE, omega.split([3, 2], dim=1), strict=True):
            norms, bounds = block.norm(dim=1).sort().values, measure.radial_quantile(edges, d)
            assert (norms[:-1] <= bounds * (1 + 1e-9)).all()
            assert (norms[1:] >= bounds * (1 - 1e-9)).all()

    def test_directions_are_a_minimum_of_the_energy(self):
        measures = (GAUSSIAN, MATERN)
        drawn = Energy(effort="full").sample_product(10, [(measure, 3) for measure in measures], seed=0)
        blocks, table = np.split(drawn.dense().numpy(), 2, axis=1), product_table(measures, (0.0, 0.6, 1.2, 2.0, 3.0))
        assert_minimum(0.05, blocks, np.ones(10), table)

    @pytest.mark.slow
    def test_no_flipped_sign_lowers_the_energy_of_single_columns(self):
        measures = (MATERN, ROUGH, MATERN)
        drawn = Energy(weighted=True).sample_product(9, [(measure, 1) for measure in measures], seed=0)
        omega, weights, table = drawn.dense().numpy(), drawn.weights.numpy(), product_table(measures, (0.0, 0.9, 2.0))
        least = energy(np.split(omega, 3, axis=1), weights, table)
        for i, a in itertools.product(range(9), (1, 2)):
            flipped = omega.copy()
            flipped[i, a] *= -1
            assert energy(np.split(flipped, 3, axis=1), weights, table) >= least - 1e-12 * abs(least)

    @pytest.mark.parametrize("factors", [WIDE, LINES, MIXED], ids=str)
    def test_a_seed_gives_one_draw(self, factors):
        first, again, other = (Energy().sample_product(33, factors, seed=s).dense() for s in (0, 0, 1))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)

    def test_gaussian_factors_are_one_ensemble(self):
        joint = Energy().sample_product(16, [(GAUSSIAN, 1), (GAUSSIAN, 2)], seed=0)
        assert torch.equal(joint.dense(), Energy().sample(16, 3, seed=0).dense())

    def test_options_change_the_draw(self):
        quick, *others = (
            Energy(**options).sample_product(16, TWO, seed=0).dense()
            for options in ({}, {"effort": "full"}, {"distances": [[1.0, 1.0]]})
        )
        assert not any(torch.equal(quick, other) for other in others)


class TestStore:
    """Solved directions are kept until the process ends, and common sizes come with the package."""

    @pytest.fixture(autouse=True)
    def memory(self, monkeypatch):
        monkeypatch.setattr(solver, "memory", {})

    def test_solutions_are_kept(self):
        first = Energy().solution(20, 3).directions
        assert Energy().solution(20, 3).directions is first
        solver.memory.clear()
        np.testing.assert_array_equal(Energy().solution(20, 3).directions, first)

    @pytest.mark.slow
    def test_each_option_has_a_solution_of_its_own(self):
        variants = [
            *((Energy(), *sizes, GAUSSIAN) for sizes in ((12, 3), (13, 3), (12, 4))),
            *((Energy(), 12, 3, spectra.Matern(nu)) for nu in (1.5, 2.5)),
            (Energy(weighted=True), 12, 3, GAUSSIAN),
            (Energy(proposal_scale=1.2), 12, 3, GAUSSIAN),
            (Energy("laplace"), 24, 3, GAUSSIAN),
            (Energy(proposal_histogram=[1.0, 2.0]), 12, 3, GAUSSIAN),
            (Energy(distances=[[1.0, 1.0]]), 12, 3, GAUSSIAN),
        ]
        for made, m, d, spectrum in variants:
            made.solution(m, d, spectrum=spectrum)
        assert len(solver.memory) == len(variants)

    def test_common_sizes_come_with_the_package(self, monkeypatch):
        monkeypatch.setattr(solver, "solve", None)
        for m, d in [(256, 2), (256, 20), (512, 2), (512, 11), (512, 20)]:
            assert Energy().solution(m, d).directions.shape == (m, d)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
    def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent(self):
        with solver.lock:
            context = multiprocessing.get_context("fork")
            queue = context.Queue()
            worker = context.Process(target=lambda: queue.put(Energy().sample(4, 3, seed=0).shape))
            held = threading.Thread(target=worker.start)
            held.start()
            held.join()
            try:
                assert queue.get(timeout=60) == (4, 3)
            finally:
                worker.kill()
