"""Distributions of walk lengths, and their second moments."""

import numpy as np
import pytest
from checks import assert_mean
from walking import GRAPHS, KERNEL, check_unbiased, draws, sample_walks

import graphs
from graphs import kernels


def test_infinite_second_moment_warns():
    kernel = kernels.RegularizedLaplacian(2, np.sqrt(10))
    g = GRAPHS["star"]
    limit = graphs.max_p_halt(g, kernel)
    assert limit == pytest.approx(1 - (10 / 11) ** 2)
    with pytest.warns(graphs.InfiniteVarianceWarning, match="p_halt below 0.174"):
        sample_walks(g, p_halt=0.3, seed=0).features(kernel)
    with pytest.warns(graphs.LargeVarianceWarning, match="relative variance of"):
        sample_walks(g, p_halt=0.17, num_walkers=2, seed=0).features(kernel)
    sample_walks(g, p_halt=0.05, seed=0).features(kernel)  # a warning would be an error here
    assert graphs.max_p_halt(g, kernels.Diffusion(9.0)) == 1.0


def test_relative_variance_matches_total_weight():
    kernel, halting = kernels.Diffusion(5.0), graphs.couplings.HaltingDistribution(0.1)
    f = kernel.modulation(600)
    lengths = halting.quantile(np.random.default_rng(0).uniform(size=400_000))
    totals = np.cumsum(f / halting.survival(600))[lengths]
    assert_mean(totals, 1.0)
    assert_mean((totals - 1) ** 2, graphs.relative_variance(kernel, 0.1))
    long = graphs.relative_variance(kernels.Diffusion(20.0), 0.1)
    assert long > 1e4
    with pytest.warns(graphs.LargeVarianceWarning, match="smaller p_halt"):
        sample_walks(GRAPHS["star"], seed=0).features(kernels.Diffusion(20.0))


def second_moment_ratio(g, kernel, p_halt, length):
    """E of the squared feature of one walker cut at `length`, relative to the cut at length / 2."""
    f = kernel.modulation(length)
    growth = 1 / (1 - p_halt)
    terms = f**2 * growth ** np.arange(length + 1)
    return terms.sum() / terms[: length // 2].sum()


def test_second_moment_diverges_at_max_p_halt():
    g, kernel = GRAPHS["star"], kernels.RegularizedLaplacian(2, np.sqrt(10))
    limit = graphs.max_p_halt(g, kernel)
    assert second_moment_ratio(g, kernel, limit - 0.02, 1500) == pytest.approx(1)
    assert second_moment_ratio(g, kernel, limit + 0.02, 1500) > 1e3


class TestHalting:
    def test_auto_takes_the_largest_p_halt(self):
        g, kernel = GRAPHS["star"], kernels.RegularizedLaplacian(2, 3.0)
        chosen = graphs.choose_p_halt(g, kernel, 16)
        assert 1e-3 < chosen <= graphs.max_p_halt(g, kernel) / 2
        assert graphs.relative_variance(kernel, chosen) <= 1.6
        if chosen < graphs.max_p_halt(g, kernel) / 2 - 1e-3:
            assert graphs.relative_variance(kernel, 1.01 * chosen) > 1.6
        assert graphs.choose_p_halt(g, kernels.Diffusion(0.1)) == 0.5
        drawn = sample_walks(g, p_halt="auto", kernel=kernel, seed=0)
        assert drawn.settings.halting.p_halt == chosen
        long = kernels.Diffusion(12.0)
        assert graphs.choose_p_halt(g, long, 64, exact_hops=40) > 2 * graphs.choose_p_halt(g, long, 64)
        with pytest.raises(graphs.InvalidArgumentError, match="halting probability"):
            graphs.choose_p_halt(g, kernels.Diffusion(100.0), 2)
        with pytest.raises(graphs.InvalidArgumentError, match="halting probability"):
            graphs.choose_p_halt(g, kernels.InverseCosine())

    @pytest.mark.parametrize("kernel", [KERNEL, kernels.Diffusion(4.0), kernels.Matern(1.5, 2.0)], ids=str)
    def test_optimal_survival_lowers_the_variance(self, kernel):
        geometric = graphs.couplings.HaltingDistribution(0.2)
        survival = graphs.optimal_survival(kernel, geometric.mean())
        made = graphs.couplings.HaltingDistribution(survival)
        assert made.mean() == pytest.approx(4.0, rel=1e-6)
        best = graphs.relative_variance(kernel, made)
        assert best < 0.95 * graphs.relative_variance(kernel, geometric)
        rng = np.random.default_rng(0)
        for _ in range(200):  # no other law of that mean length is better
            other = np.minimum.accumulate(np.clip(survival * np.exp(0.3 * rng.standard_normal(len(survival))), 0, 1))
            other[0] = 1.0
            shift = np.clip(other[1:] * 4.0 / other[1:].sum(), 0, 1)
            if abs(shift.sum() - 4.0) < 1e-9:
                other[1:] = shift
                assert graphs.relative_variance(kernel, other) > best - 1e-6

    def test_optimal_survival_is_unbiased(self):
        g = GRAPHS["star"]
        check_unbiased(g, draws(g, p_halt=graphs.optimal_survival(KERNEL, 3.0)))

    def test_bad_arguments_are_refused(self):
        with pytest.raises(graphs.InvalidArgumentError, match="mean_length must lie between"):
            graphs.optimal_survival(KERNEL, 0.0)
        with pytest.raises(graphs.InvalidArgumentError, match="non-negative"):
            graphs.optimal_survival(kernels.InverseCosine())


class TestExtremes:
    def test_kernels_of_zero_total_weight(self):
        drawn, kernel = sample_walks(GRAPHS["path"], seed=0), kernels.Modulated((1.0, -1.0))
        assert np.isfinite(drawn.features(kernel).data).all()
        with pytest.warns(graphs.LargeVarianceWarning, match="variance of inf"):
            drawn.features(kernels.Diffusion(600.0))
        with pytest.raises(graphs.InvalidArgumentError, match="exact_hops"):
            graphs.relative_variance(kernel, 0.1, -3)

    def test_short_walks_of_a_slow_series_do_not_warn(self):
        halting = [1, 0.9, 0.8, 0.7]
        assert np.isfinite(graphs.relative_variance(kernels.InverseCosine(), halting))
        sample_walks(GRAPHS["path"], p_halt=halting, num_walkers=64, seed=0).features(kernels.InverseCosine())
