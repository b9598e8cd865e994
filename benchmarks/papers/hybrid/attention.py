"""The angular hybrid in attention with one and with both signs of its positive part, at equal numbers of features."""

import numpy as np
import torch

from benchmarks.protocol import mean_error, ratio_of_means
from benchmarks.record import Result, Scale, Value
from rfgp import random
from rfgp.attention import random_feature_attention
from rfgp.attention.draws import HeadFrequencies, draw_heads, estimator
from rfgp.couplings import by_name

POSITIONS, WIDTH, DRAWS = 64, 16, 100
DEVIATIONS, FEATURES = (0.25, 0.5, 1.0), (256, 1024, 4096)
NAMES = ("hybrid", "hybrid-one-sign")


def _drawn(count: int, draws: int, seed: int) -> HeadFrequencies:
    return draw_heads(by_name("orthogonal"), draws, count, WIDTH, key=(seed, random.Role.FREQUENCIES))


@torch.no_grad()
def squared_errors(name: str, deviation: float, num_features: int, draws: int) -> np.ndarray:  # (draws,)
    """Return squared errors of rows of weights, means over rows; each draw is a head."""
    rng = random.numpy_generator(0, random.Role.DATA)
    query, key = (deviation * torch.as_tensor(rng.standard_normal((1, POSITIONS, WIDTH))) for _ in range(2))
    exact = (query @ key.mT / WIDTH**0.5).softmax(-1)
    kind = estimator(name)
    omega = _drawn(kind.num_frequencies(num_features), draws, 1)
    pair = kind.make(omega, _drawn(kind.num_others, draws, 2))
    ones = torch.eye(POSITIONS, dtype=torch.float64)
    found = random_feature_attention(
        query.expand(draws, -1, -1), key.expand(draws, -1, -1), ones.expand(draws, -1, -1), pair
    )
    return np.asarray((found - exact).square().sum(-1).mean(-1))


def both_signs(scale: Scale) -> Result:
    """Return errors with both signs over those with one."""
    values = []
    for deviation in DEVIATIONS:
        for count in FEATURES:
            both, one = (squared_errors(name, deviation, count, scale(DRAWS)) for name in NAMES)
            name = f"deviation {deviation:g}, {count} features"
            values.append(Value(f"{name}: both signs over one", *ratio_of_means(both, one)))
            values.append(Value(f"{name}: error with both signs", *mean_error(both)))
    return Result(
        "Attention by the angular hybrid, both signs of its positive part against one",
        f"Squared errors of rows of softmax weights, {POSITIONS} normal queries and keys in {WIDTH} dimensions, scores "
        "over 4, eight signs, orthogonal frequencies, 36 features for each with both signs and 27 with one. The paper "
        "has both signs and prints no such comparison.",
        values,
    )
