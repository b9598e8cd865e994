import numpy as np
import pytest
from scipy import stats

import graphs
from graphs import random

MASK = 2**64 - 1


def splitmix64(state):
    """The published generator's next output, in Python integers."""
    state = (state + 0x9E3779B97F4A7C15) & MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
    return state ^ (state >> 31)


def test_mix_is_splitmix64():
    states = [0, 1, 2**63, MASK, 1234567]
    mixed = random.mix(np.array(states, dtype=np.uint64))
    assert mixed.tolist() == [splitmix64(s) for s in states]
    assert splitmix64(0) == 0xE220A8397B1DCDAF  # the generator's known first output


def test_uniforms_are_uniform_and_inside_the_unit_interval():
    keys = random.derive(random.stream(7, random.Role.LENGTHS), np.arange(1000))
    u = random.uniforms(keys[:, None], np.arange(100)[None, :])
    assert u.min() > 0
    assert u.max() < 1
    assert stats.kstest(u.ravel(), "uniform").pvalue > 1e-9
    neighbors = np.corrcoef(u[:, 0], u[:, 1])[0, 1], np.corrcoef(u[:-1, 0], u[1:, 0])[0, 1]
    assert max(map(abs, neighbors)) < 6 / np.sqrt(1000)


def test_extreme_bits_stay_inside():
    ends = random.to_unit(np.array([0, MASK], dtype=np.uint64))
    assert ends[0] > 0
    assert ends[1] < 1


def test_roles_and_seeds_give_different_streams():
    keys = {int(random.stream(seed, role)[0]) for seed in range(50) for role in random.Role}
    assert len(keys) == 50 * len(random.Role)


@pytest.mark.parametrize("seed", [-1, 2**63, 1.0, True, "0"])
def test_seeds_out_of_range_are_refused(seed):
    with pytest.raises(graphs.InvalidArgumentError, match="seed must be an integer"):
        random.resolve_seed(seed)


def test_system_seeds_differ():
    assert random.resolve_seed(None) != random.resolve_seed(None)
