"""Hybrid estimators: mixtures of estimators with coefficients of x and y, as one pair of feature maps.

A product of two inner products is one of row-wise Kronecker products, (a . b)(c . d) = (a x c) . (b x d), so a mixture

    sum_k lambda_k S_k + (1 - sum_k lambda_k) S_0,     lambda_k = a_k + l_k(x) . r_k(y),

has the features (sqrt |a_k|, l_k) x S_k for each k and (sqrt |1 - sum_k a_k|, l_1, l_2, ...) x S_0. The signs of
negative terms are on the right side, as in the imaginary block of the paper's Lemma 2.3. Features of n vectors take
time O(n (M d + F)), with M projections of estimators and coefficients together. No matrix larger than that of the
features is formed.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from rfgp.errors import InvalidArgumentError
from rfgp.features.softmax.coefficients import Coefficient, CoefficientMap
from rfgp.features.softmax.pair import FeaturePair, SideMap


class _HybridMap(SideMap):
    """One side: coefficients and their estimators.

    If there is a base, it is the last estimator.
    """

    def __init__(
        self,
        coefficients: Sequence[CoefficientMap],
        constants: Sequence[float],
        estimators: Sequence[SideMap],
        sign: float,
    ) -> None:
        super().__init__(estimators[0].kernel)
        self.coefficients, self.estimators = nn.ModuleList(coefficients), nn.ModuleList(estimators)
        self.constants, self.sign = tuple(constants), sign
        self.has_base = len(estimators) > len(coefficients)
        widths = [c.num_features for c in coefficients]
        widths = [*widths, sum(widths)] if self.has_base else widths
        columns = [width + (a != 0) for width, a in zip(widths, constants, strict=True)]
        self._num_features = sum(n * e.num_features for n, e in zip(columns, estimators, strict=True))

    @property
    def num_features(self) -> int:
        return self._num_features

    def forward(self, x: Tensor) -> Tensor:
        estimates = [estimator(x) for estimator in self.estimators]  # these refuse invalid inputs
        coefficients = [coefficient(x) for coefficient in self.coefficients]
        if self.has_base:
            coefficients.append(self.sign * torch.cat(coefficients, dim=-1))
        blocks = [
            _row_products(self._with_constant(values, a), features)
            for values, a, features in zip(coefficients, self.constants, estimates, strict=True)
        ]
        return torch.cat(blocks, dim=-1)

    def _with_constant(self, values: Tensor, constant: float) -> Tensor:
        """Return the features of a coefficient, preceded by that of its constant."""
        if constant == 0:
            return values
        root = math.sqrt(abs(constant)) * (self.sign if constant < 0 else 1.0)
        return torch.cat([values.new_full((*values.shape[:-1], 1), root), values], dim=-1)


class Hybrid(FeaturePair):
    """The estimator sum_k lambda_k S_k + (1 - sum_k lambda_k) S_0.

    It is unbiased if every coefficient is independent of the estimators S. The estimators may have a common draw. If
    the coefficients sum to 1 for all x and y, as those of all pairs of clusters do, there is no S_0. A hybrid is an
    estimator, so hybrids can be nested. Its estimates can be negative.

    Source: Choromanski et al. (2022), Eq. 8 and Lemma 2.3.

    Args:
        base: S_0, or None if the coefficients sum to 1.
        parts: Pairs (lambda_k, S_k).

    Raises:
        InvalidArgumentError: If there are no parts, a part is not such a pair, or estimators have different kernels.

    Examples:
        >>> from rfgp import couplings
        >>> from rfgp.features import softmax
        >>> omega = couplings.by_name("orthogonal").sample(8, 2, seed=0)
        >>> half = softmax.coefficients.Constant(0.5)
        >>> hybrid = Hybrid(softmax.Positive(omega), [(half, softmax.Trigonometric(omega))])
        >>> hybrid(torch.ones(1, 2), torch.zeros(3, 2)).shape
        torch.Size([1, 3])
    """

    def __init__(self, base: FeaturePair | None, parts: Sequence[tuple[Coefficient, FeaturePair]]) -> None:
        pairs = _check_parts(base, parts)
        coefficients = [coefficient for coefficient, _ in parts]
        constants = [coefficient.constant for coefficient in coefficients]
        constants += [1 - math.fsum(constants)] if base is not None else []
        left = _HybridMap([c.left for c in coefficients], constants, [p.left for p in pairs], 1.0)
        right = _HybridMap([c.right for c in coefficients], constants, [p.right for p in pairs], -1.0)
        super().__init__(left, right)


def _check_parts(base: FeaturePair | None, parts: Sequence[tuple[Coefficient, FeaturePair]]) -> list[FeaturePair]:
    """Return the estimators with the base as the last one."""
    if not parts:
        raise InvalidArgumentError("parts must be at least one pair of a coefficient and an estimator, got none.")
    for part in parts:
        if (
            not isinstance(part, tuple)
            or len(part) != 2
            or not isinstance(part[0], Coefficient)
            or not isinstance(part[1], FeaturePair)
        ):
            raise InvalidArgumentError(f"parts must be pairs of a coefficient and an estimator, got {part!r}.")
    pairs = [pair for _, pair in parts] + ([base] if base is not None else [])
    for first, second in pairwise(pairs):
        if first.kernel != second.kernel:
            raise InvalidArgumentError(
                f"The estimators of a hybrid must be of one kernel, got {first.kernel} and {second.kernel}."
            )
    return pairs


def _row_products(
    a: Tensor,  # (..., n, F)
    b: Tensor,  # (..., n, G)
) -> Tensor:  # (..., n, F G)
    """Return the Kronecker product of each row. It is 0 if a is 0 and b overflows."""
    columns, values = a[..., :, None], b[..., None, :]
    lost = (columns == 0) & ~torch.isfinite(values)
    return torch.where(lost, 0, columns * torch.where(lost, 0, values)).flatten(-2)
