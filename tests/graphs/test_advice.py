"""Features measured, and recommended; and fractional powers as sums of poles."""

import itertools

import networkx as nx
import numpy as np
import pytest

import graphs
from graphs import Graph, kernels, precisions

KERNEL = kernels.Diffusion(2.5)
RANDOM = Graph.from_networkx(nx.gnm_random_graph(60, 130, seed=0))
GRID = Graph.from_grid((20, 20))


@pytest.mark.slow
def test_best_features_depend_on_graph_and_kernel():
    """Where few hops do, where the kernel lives on few eigenvectors, and where neighborhoods explode."""
    hubs = Graph.from_networkx(nx.barabasi_albert_graph(3000, 2, seed=0))
    for graph, kernel, budget, best in (
        (Graph.from_grid((30, 30)), kernels.Diffusion(2.0), 64, "chebyshev"),
        (Graph.from_grid((30, 30)), kernels.Diffusion(15.0), 64, "spectrum"),
        (hubs, kernels.RegularizedLaplacian(1.5, 2.0), 200, "walks"),
    ):
        advice = graphs.advise(graph, kernel, budget)
        errors = [candidate.error for candidate in advice.candidates]
        assert (advice.best.features, errors) == (best, sorted(errors))
        assert advice.best.nonzeros <= budget
        assert advice.best.error == min(c.error for c in advice.candidates if c.nonzeros <= budget)
        assert best in advice.reason
        assert str(advice).count("\n") == len(advice.candidates)


@pytest.mark.slow
def test_measured_errors_are_those_of_the_features():
    advice, K = graphs.advise(RANDOM, KERNEL, 40, num_nodes=60), KERNEL.exact(RANDOM)
    makers = {
        "taylor": graphs.taylor_features,
        "chebyshev": graphs.chebyshev_features,
        "spectrum": graphs.spectral_features,
    }
    deterministic = [candidate for candidate in advice.candidates if candidate.features in makers]
    assert len(deterministic) == 3
    for candidate in deterministic:
        phi = makers[candidate.features](RANDOM, **candidate.options).features(KERNEL)
        error = np.linalg.norm((phi @ phi.T).toarray() - K) / np.linalg.norm(K)
        assert candidate.error == pytest.approx(error, rel=0.4)
    none = graphs.advise(RANDOM, kernels.InverseCosine()).candidates  # without a second moment
    assert all(candidate.features != "walks" for candidate in none)


@pytest.mark.slow
def test_small_precisions_are_preferred():
    advice = graphs.advise(GRID, kernels.Matern(2, 2.0), 20)
    assert (advice.best.features, advice.best.error) == ("precision", 0.0)
    factor = kernels.Matern(2, 2.0).precision(GRID).analysis
    assert advice.best.nonzeros == factor.num_nonzeros / 400
    assert {candidate.features for candidate in advice.candidates} > {"precision", "chebyshev"}
    kernel = kernels.Matern(1.5, 4.0)
    best, shift = graphs.advise(GRID, kernel, 20).best, 3 / 16
    field = precisions.RationalField(GRID, 1.5, best.options["degree"])
    assert (best.features, best.error) == ("rational", pytest.approx(field.error(shift)))
    assert best.error <= 1e-3 < precisions.RationalField(GRID, 1.5, best.options["degree"] - 1).error(shift)
    assert best.nonzeros == pytest.approx(field.analysis.num_nonzeros / 400, rel=0.3)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"max_nonzeros": 0}, "max_nonzeros"),
        ({"num_nodes": 0}, "num_nodes"),
        ({"seed": -1}, "seed"),
        ({"p_halt": [1, 0.5]}, "probability"),
        ({"p_halt": 1.5}, "halt"),
    ],
)
def test_bad_arguments_are_refused(options, word):
    with pytest.raises(graphs.InvalidArgumentError, match=word):
        graphs.advise(RANDOM, KERNEL, **options)


# --- fractional powers ---------------------------------------------------------------------------


@pytest.mark.parametrize("power", [0.5, *(pytest.param(power, marks=pytest.mark.slow) for power in (0.01, 0.9))])
def test_errors_of_fractions_fall_with_their_number(power):
    """x^-power as a sum of poles, on the spectrum of a path from 0 to 2: R = 1 + 2 / shift."""
    path = Graph.from_grid((60,))
    eigenvalues, vectors = np.linalg.eigh(np.eye(60) - path.shift_operator.toarray())
    ones = vectors.T @ np.ones(60)
    for shift in (2.0, 2e-4, 4e-8):
        errors = []
        for terms in (1, 2, 4, 8):
            field = precisions.RationalField(path, power, terms)
            errors.append(field.error(shift))
            x, weights = np.array([shift]), np.random.default_rng(0).standard_normal(len(field.pattern.indices))
            step = 1e-4 * shift
            ends = [weights @ field.entries(x + h) for h in (step, -step)]
            scale = np.abs(weights) @ np.abs(field.entries(x)) / shift
            assert field.pull_back(x, weights)[0] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-6 * scale)
            if shift > 1e-6:
                read = field.projector(np.arange(60))
                found = read @ field.factor_at(x).solve(read.T @ np.ones(60))
                seen = np.abs(ones) > 1e-3
                ratios = (vectors.T @ found * (np.maximum(eigenvalues, 0) + shift) ** power)[seen] / ones[seen]
                assert np.abs(ratios - 1).max() < 1.01 * errors[-1] + 1e-6
        assert errors[-1] < 5e-3
        assert all(b < 0.8 * a for a, b in itertools.pairwise(errors) if a > 1e-5)
    assert precisions.RationalField(path, power, 4).error(2e-3) < 2e-3
