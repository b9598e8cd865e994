"""Draws of frequencies for several heads, and the kinds of features."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from rfgp import random
from rfgp.couplings import Coupling, Frequencies
from rfgp.errors import InvalidArgumentError
from rfgp.features import softmax
from rfgp.features.softmax import FeaturePair
from rfgp.messages import check_count, counted


class HeadFrequencies(Frequencies):
    """A draw for each of H heads, for inputs (..., H, n, d).

    Args:
        matrix: (H, m, d).
        weights: (H, m).
        antithetic: Whether the rows come in pairs omega, -omega.

    Examples:
        >>> draw = HeadFrequencies(torch.ones(2, 4, 3), torch.ones(2, 4))
        >>> draw.project(torch.zeros(2, 5, 3)).shape
        torch.Size([2, 5, 4])
    """

    def __init__(
        self,
        matrix: Tensor,  # (H, m, d)
        weights: Tensor,  # (H, m)
        antithetic: bool = False,
    ) -> None:
        self._matrix, self._weights, self._antithetic = matrix, weights, antithetic

    @property
    def weights(self) -> Tensor:
        """The weights, (H, 1, m) for features (..., H, n, m)."""
        return self._weights[:, None, :]

    @property
    def shape(self) -> tuple[int, int]:
        """(m, d)."""
        return self._matrix.shape[1], self._matrix.shape[2]

    def dense(self) -> Tensor:
        """Return the matrices (H, m, d)."""
        return self._matrix

    def _paired(self) -> "HeadFrequencies":
        pairs = torch.stack([self._matrix, -self._matrix], dim=2).flatten(1, 2)
        return HeadFrequencies(pairs, self._weights.repeat_interleave(2, dim=-1), antithetic=True)

    def check_inputs(
        self,
        x: Tensor,  # (..., H, n, d)
    ) -> None:
        """Refuse inputs that cannot be projected.

        Args:
            x: The inputs, (..., H, n, d).

        Raises:
            InvalidArgumentError: If x has another number of heads, or for the reasons of `Frequencies.check_inputs`.
        """
        super().check_inputs(x)
        heads = len(self._matrix)
        if heads > 1 and (x.ndim < 3 or x.shape[-3] != heads):
            raise InvalidArgumentError(
                f"Inputs must be (..., {heads}, n, d), for {counted(heads, 'head')}, got {tuple(x.shape)}."
            )


def draw_heads(
    coupling: Coupling,
    num_heads: int,
    num_frequencies: int,
    num_dims: int,
    *,
    key: tuple[int, ...],
) -> HeadFrequencies:
    """Return independent draws for the heads, from the child streams (*key, head).

    Args:
        coupling: The coupling of the frequencies of one head.
        num_heads: H.
        num_frequencies: m.
        num_dims: d.
        key: The seed and the indices of the stream.

    Raises:
        InvalidArgumentError: For the reasons of `Coupling.sample`.

    Examples:
        >>> from rfgp import couplings
        >>> draw_heads(couplings.by_name("orthogonal"), 2, 4, 3, key=(0, 1)).dense().shape
        torch.Size([2, 4, 3])
    """
    streams = [random.generator(key[0], *key[1:], head) for head in range(num_heads)]
    drawn = [coupling.sample(num_frequencies, num_dims, generator=stream) for stream in streams]
    matrix, weights = torch.stack([f.dense() for f in drawn]), torch.stack([f.weights for f in drawn])
    return HeadFrequencies(matrix, weights, drawn[0].antithetic)


Make = Callable[[Frequencies, Frequencies | None], FeaturePair]
"""A function from frequencies, and those of the coefficients if there are any, to a pair."""


@dataclass(frozen=True)
class Estimator:
    """A kind of features.

    Attributes:
        make: The function from frequencies to a pair.
        each: The number of features for each frequency.
        num_others: The number of frequencies of the coefficients, 0 if there are none.
        coupling: The default coupling.
        of_pairs: Whether frequencies may come in pairs omega, -omega.

    Examples:
        >>> estimator("trigonometric").num_frequencies(256)
        128
    """

    make: Make
    each: int = 1
    num_others: int = 0
    coupling: str = "orthogonal"
    of_pairs: bool = True

    def num_frequencies(self, num_features: int) -> int:
        """Return the number of frequencies that a number of features allows.

        Args:
            num_features: The largest number of features.

        Raises:
            InvalidArgumentError: If it allows none.
        """
        return check_count("num_features", num_features, least=self.each) // self.each


_NUM_SIGNS = 8


def _hybrid(frequencies: Frequencies, others: Frequencies | None, *, both_signs: bool) -> FeaturePair:
    """Return the angular hybrid of Choromanski et al. (2022), Eqs. 3, 12 and 19, for the Gaussian kernel.

    With one sign it is the bipolar hybrid with the same coefficient.
    """
    assert others is not None
    coefficient = softmax.coefficients.Angular(others)
    return softmax.bipolar(frequencies, coefficient, antithetic=both_signs, kernel="gaussian")


def _of_first(function: Callable[[Frequencies], FeaturePair], first: Frequencies, _: Frequencies | None) -> FeaturePair:
    return function(first)


_BOTH, _ONE = (partial(_hybrid, both_signs=both_signs) for both_signs in (True, False))
_ESTIMATORS = {
    "positive": Estimator(partial(_of_first, softmax.Positive), coupling="monotone-antithetic"),
    "trigonometric": Estimator(
        partial(_of_first, partial(softmax.Trigonometric, kernel="gaussian")), each=2, of_pairs=False
    ),
    "hybrid": Estimator(_BOTH, each=4 * (_NUM_SIGNS + 1), num_others=_NUM_SIGNS, of_pairs=False),
    "hybrid-one-sign": Estimator(_ONE, each=3 * (_NUM_SIGNS + 1), num_others=_NUM_SIGNS, of_pairs=False),
}


def estimator(features: str | Callable[[Frequencies], FeaturePair]) -> Estimator:
    """Return the estimator of a name, or of a function from frequencies to a pair.

    Args:
        features: A name, or a function from frequencies to a pair.

    Raises:
        InvalidArgumentError: If the name is unknown.

    Examples:
        >>> estimator("positive").coupling
        'monotone-antithetic'
    """
    if isinstance(features, str) and features in _ESTIMATORS:
        return _ESTIMATORS[features]
    if not callable(features):
        raise InvalidArgumentError(
            f"features must be one of {', '.join(map(repr, _ESTIMATORS))} or a function from frequencies to a pair, "
            f"got {features!r}."
        )
    return Estimator(partial(_of_first, features))
