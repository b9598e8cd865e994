"""Rows for the plots of the orthogonal paper: digits of scikit-learn and five tables, as its data are not available.

Columns are standardized, except those of the digits, which are divided by 16. They are padded by zeros to a power of
two, as in the paper. The lengthscale is the mean distance of the 50th nearest neighbor for 1,000 random rows.
"""

import functools

import numpy as np
import torch
from sklearn.datasets import load_digits

from rfgp import datasets, lengthscales, random
from rfgp.couplings.structured import next_power_of_two

NAMES = ("digits", "banknote", "wifi", "cmc", "nursery", "chess")
ABSENT = "letter, forest, usps, cifar, mnist and gisette, the paper's data, are not at hand"


@functools.cache
def rows(name: str) -> tuple[torch.Tensor, np.ndarray, float]:
    """Return the inputs (n, d), d a power of two, the classes (n,), and the lengthscale."""
    if name == "digits":
        table = load_digits()
        X, y = table.data / 16, table.target
    else:
        table = datasets.load(name)
        X, y = np.asarray(table.X, float), np.asarray(table.y)
        X = (X - X.mean(0)) / X.std(0)
    x = torch.as_tensor(X)
    x = torch.nn.functional.pad(x, (0, next_power_of_two(x.shape[1]) - x.shape[1]))
    return x, y, lengthscales.neighbor_distance(x)


def sampled(name: str, count: int, sigma: float = 1.0) -> torch.Tensor:
    """Return some rows drawn without replacement, divided by sigma times the lengthscale."""
    x, _, scale = rows(name)
    order = random.numpy_generator(0, random.Role.DATA).permutation(len(x))[:count]
    return x[order] / (sigma * scale)
