"""Joint distributions of lengths."""

import numpy as np
import pytest
from checks import assert_mean, fails

import graphs
from graphs import couplings, random
from graphs.couplings import HaltingDistribution

SURVIVAL = np.array([1.0, 0.9, 0.9, 0.3, 0.05])
COUPLINGS = {
    "iid": couplings.IID(),
    "antithetic": couplings.Antithetic(),
    "sigma": couplings.Sigma(np.array([4, 2, 0, 3, 1])),
    "systematic": couplings.Systematic(),
    "learned": couplings.Tuples(np.array([[0, 2, 1, 3], [3, 0, 2, 1], [1, 1, 3, 0], [2, 3, 0, 2]])),
}


def draw(coupling, halting, count=20_000, walkers=4, seed=3):
    keys = random.derive(random.stream(seed, random.Role.LENGTHS), np.arange(count))[:, None]
    return coupling.draw(keys, walkers, halting)


def reached(lengths, depth=8):
    """Return 1[length >= l] for each walker, (count, walkers, depth)."""
    return lengths[:, :, None] >= np.arange(1, depth + 1)


def check_law(lengths, halting):
    expected = halting.survival(8)[1:]
    often = (expected == 0) | (expected * len(lengths) > 1000)  # rarer events are not normal
    assert_mean(reached(lengths)[:, :, often], expected[often])


def test_all_couplings_are_tested():
    assert set(COUPLINGS) == set(couplings.LENGTHS)
    assert {type(c) for c in COUPLINGS.values()} == set(couplings.LENGTHS.values())


@pytest.mark.parametrize("p_halt", [0.1, 0.5, 0.8, SURVIVAL], ids=str)
@pytest.mark.parametrize("name", COUPLINGS)
def test_each_length_has_the_halting_distribution(name, p_halt):
    halting = HaltingDistribution(p_halt)
    check_law(draw(COUPLINGS[name], halting), halting)


@pytest.mark.parametrize("name", COUPLINGS)
def test_planted_wrong_halting_distribution_is_found(name):
    assert fails(check_law, draw(COUPLINGS[name], HaltingDistribution(0.11)), HaltingDistribution(0.1))


def test_only_iid_walkers_are_independent():
    halting = HaltingDistribution(0.3)

    def pair(lengths):
        return reached(lengths, 4)[:, 0] * reached(lengths, 4)[:, 1]

    assert_mean(pair(draw(COUPLINGS["iid"], halting)), halting.survival(4)[1:] ** 2)
    for name in set(COUPLINGS) - {"iid"}:
        assert fails(assert_mean, pair(draw(COUPLINGS[name], halting)), halting.survival(4)[1:] ** 2)


def test_start_nodes_are_independent():
    lengths = reached(draw(COUPLINGS["systematic"], HaltingDistribution(0.3)), 4)[:, 0]
    assert_mean(lengths[0::2] * lengths[1::2], HaltingDistribution(0.3).survival(4)[1:] ** 2)


def test_antithetic_partners_never_halt_together():
    for p_halt in (0.1, 0.5):
        lengths = draw(COUPLINGS["antithetic"], HaltingDistribution(p_halt))
        assert (lengths[:, 0] != lengths[:, 1]).all()
    same = draw(COUPLINGS["antithetic"], HaltingDistribution(0.8))
    assert (same[:, 0] == same[:, 1]).any()


def test_systematic_lengths_fill_every_quantile():
    halting = HaltingDistribution(0.2)
    lengths = np.sort(draw(COUPLINGS["systematic"], halting, walkers=16), axis=1)
    edges = halting.quantile(np.clip(np.arange(17) / 16, 1e-12, 1 - 1e-12))
    assert (lengths >= edges[:-1]).all()
    assert (lengths <= edges[1:]).all()


def test_sigma_pairs_follow_the_permutation():
    permutation = np.random.default_rng(0).permutation(20)
    uniforms = []

    class Recorder(HaltingDistribution):
        def quantile(self, u):
            uniforms.append(u)
            return super().quantile(u)

    draw(couplings.Sigma(permutation), Recorder(0.1), count=500)
    bins = np.floor(uniforms[0] * 20).astype(int)
    np.testing.assert_array_equal(bins[:, 1::2], permutation[bins[:, 0::2]])


@pytest.mark.parametrize("name", ["antithetic", "sigma"])
def test_pairs_need_an_even_number(name):
    with pytest.raises(graphs.InvalidArgumentError, match="must be even, got 3"):
        draw(COUPLINGS[name], HaltingDistribution(0.1), walkers=3)


@pytest.mark.parametrize("p_halt", [0.0, 1.0, -0.1, np.nan, [0.9, 0.5], [1.0, 0.5, 0.6], [1.0, 0.0], []])
def test_invalid_halting_is_refused(p_halt):
    with pytest.raises(graphs.InvalidArgumentError, match=r"halt must|survival array"):
        HaltingDistribution(p_halt)


def test_quantile_survival_averages_to_one():
    for p_halt in (0.1, SURVIVAL):
        share = couplings.quantile_survival(HaltingDistribution(p_halt), 7, 400)
        expected = HaltingDistribution(p_halt).survival(400) > 0
        np.testing.assert_allclose(share.mean(0), expected, atol=1e-9)
