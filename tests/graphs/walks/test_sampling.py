"""What a user asks of walks, checked."""

import numpy as np
import pytest
from walking import GRAPHS, sample_walks

import graphs


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_walkers": 0}, "num_walkers must be a positive integer"),
        ({"num_walkers": 2.0}, "num_walkers must be a positive integer"),
        ({"num_walkers": 3, "lengths": "sigma"}, "must be even"),
        ({"num_walkers": 3, "lengths": "antithetic"}, "must be even"),
        ({"p_halt": 0.0}, "p_halt must"),
        ({"p_halt": 1.5}, "p_halt must"),
        ({"p_halt": 1}, "p_halt must"),
        ({"lengths": "geometric"}, "lengths must be one of 'iid'"),
        ({"step_coupling": "repulsive"}, "step_coupling must be one of"),
        ({"transitions": "lazy"}, "transitions must be one of"),
        ({"exact_hops": -1}, "exact_hops must be an integer from 0 to"),
        ({"exact_hops": True}, "exact_hops must be an integer from 0 to"),
        ({"exact_hops": "all"}, "exact_hops must be an integer from 0 to"),
        ({"exact_hops": 2**40}, "exact_hops must be an integer from 0 to"),
        ({"exact_hops": np.zeros(3)}, "exact_hops must be an integer from 0 to"),
        ({"num_threads": -1}, "num_threads must be a positive integer"),
        ({"max_memory": float("nan")}, "max_memory must be a positive number"),
        ({"max_memory": "1"}, "max_memory must be a positive number"),
        ({"lengths": ["iid"]}, "lengths must be one of"),
        ({"kernel": "diffusion"}, "GraphKernel"),
        ({"lengths": "sigma", "num_quantiles": 10**6}, "num_quantiles must be an integer from 1 to"),
        ({"max_nonzeros": 0}, "max_nonzeros must be"),
        ({"seed": -1}, "seed must be"),
        ({"p_halt": 1e-9}, "steps per node"),
        ({"p_halt": "0.1x"}, "p_halt must"),
        ({"num_walkers": 10**9}, "steps per node"),
        ({"lengths": "sigma", "permutation": [0, 0]}, "permutation"),
        ({"lengths": "sigma", "num_quantiles": 1}, "an integer from 2 to 10000"),
    ],
)
def test_bad_arguments_are_refused(options, message):
    with pytest.raises(graphs.InvalidArgumentError, match=message):
        sample_walks(GRAPHS["star"], **{"seed": 0, **options})


def test_repelling_walkers_need_uniform_moves():
    with pytest.raises(graphs.InvalidArgumentError, match=r"repelling.*uniform moves"):
        sample_walks(GRAPHS["weighted"], step_coupling="repelling", seed=0)
