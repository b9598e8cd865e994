"""The ranking of columns in a search under sparse priors."""

import numpy as np
import pytest
import torch

from rfgp.fitting.sparse import Effects, ranked_columns
from rfgp.priors import SparseLengthscales


@pytest.mark.parametrize("function", [lambda x: x, lambda x: x**2, lambda x: x**3 - 3 * x], ids=["1", "2", "3"])
def test_polynomial_effects_of_a_column_rank_first(function):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 60)) * 10.0 ** rng.integers(-3, 4, 60) + rng.normal(size=60)
    z = (x[:, 7] - x[:, 7].mean()) / x[:, 7].std()
    errors = function(z) - function(z).mean() + 0.5 * rng.normal(size=80)
    effects = [Effects("rbf.lengthscale", tuple(range(60)), SparseLengthscales())]
    assert ranked_columns(torch.from_numpy(x), torch.from_numpy(errors)[:, None], effects)[0] == 7


def test_only_columns_of_the_prior_are_ranked():
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(40, 6)))
    effects = [Effects("a", (4, 2), SparseLengthscales()), Effects("b", (2,), SparseLengthscales())]
    assert sorted(ranked_columns(x, x[:, :1], effects)) == [2, 4]
