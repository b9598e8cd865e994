"""Additive kernels: a term for each column and each pair, identified by zero mean (OAK)."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from rfgp.errors import InvalidArgumentError
from rfgp.kernels.arguments import Key
from rfgp.kernels.kernel import Kernel, Sum
from rfgp.kernels.role import Values
from rfgp.kernels.stationary import RBF
from rfgp.kernels.summary import ColumnSummary
from rfgp.kernels.terms import Term, label_of
from rfgp.parameters import Hyperparameter

NODES = 64
"""The number of quantiles that represent the distribution of a column."""


@dataclass(frozen=True, eq=False, repr=False)
class Centered(Kernel):
    """A kernel of one column, conditioned on a mean of 0 over the column.

    It is k(x, z) - c(x) c(z) / C for the base kernel k. Here c(x) = E k(x, X) and C = E k(X, X'), with X uniform on
    `points`.

    Source: Lu, Boukouvalas and Hensman (2022), Additive Gaussian processes revisited, Equation 9.

    Attributes:
        columns: The name or index of the column.
        base: A kernel of one column of numbers.
        points: Values (p,) in the units of the column that represent its distribution. If None, 64 quantiles of the
            training rows, so that the kernel has no values before a fit.
        name: The name of the term. If None, that of the base kernel.

    Raises:
        InvalidArgumentError: If `columns` is not the one column of the base kernel, or there are no points.

    Examples:
        >>> from rfgp import kernels as k
        >>> kernel = k.Centered("x", k.RBF("x", lengthscale=1.0), points=(0.0, 1.0))
        >>> abs(kernel.matrix({"x": [0.0, 1.0]}).sum().item()) < 1e-12
        True
    """

    columns: Any = field()
    base: Kernel
    points: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.columns is None or self.columns != self.base.columns or len(self.columns) != 1:
            raise InvalidArgumentError(f"Centered must have the one column of its base kernel, got {self.columns!r}.")
        if self.points is not None and not len(self.points):
            raise InvalidArgumentError("points must have at least one value, or be None for quantiles, got none.")

    @property
    def starts(self) -> Any:
        """The starts of the base kernel."""
        return self.base.starts

    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Return the covariance (n, m) of rows a (n, 1) and b (m, 1)."""
        points = values["points"].to(a)[:, None]
        left, total = self._means(a, points, values)
        right = left if b is a else self._means(b, points, values)[0]
        return self.base.covariance(a, b, values) - left[:, None] * right / total

    def variances(self, a: Tensor, values: Values) -> Tensor:
        """Return the variances (n,) of rows a (n, 1)."""
        means, total = self._means(a, values["points"].to(a)[:, None], values)
        return self.base.variances(a, values) - means.square() / total

    def hyperparameters(self, columns: ColumnSummary) -> dict[str, Hyperparameter]:
        """Return the hyperparameters of the base kernel."""
        return self.base.hyperparameters(columns)

    def constants(self, columns: ColumnSummary) -> dict[str, Tensor]:
        """Return the standardized points (p,) and the base kernel's constants.

        Args:
            columns: The training rows in the column of the kernel.

        Raises:
            InvalidArgumentError: If the kernel has no points, because it was not resolved with rows.
        """
        if self.points is None:
            raise InvalidArgumentError(
                f"{label_of(self)} must have points for its integrals, got none. Give points=, or use gp.kernel of a "
                "fitted model."
            )
        points = torch.tensor(self.points, dtype=columns.scale.dtype, device=columns.scale.device)
        standardized = (points - columns.location[0]) / columns.scale[0]
        return {**self.base.constants(columns), "points": standardized}

    def resolved(self, columns: ColumnSummary, starts: Mapping[str, Any]) -> Kernel:
        """Return the kernel with quantiles of the rows as points, and with starts."""
        base = self.base.resolved(columns, starts)
        if self.points is not None:
            return replace(self, base=base)
        levels = (torch.arange(NODES, dtype=torch.float64) + 0.5) / NODES
        points = torch.quantile(columns.sample[:, 0].double(), levels.to(columns.sample.device))
        return replace(self, base=base, points=tuple((columns.location[0] + columns.scale[0] * points).tolist()))

    def _means(self, a: Tensor, points: Tensor, values: Values) -> tuple[Tensor, Tensor]:
        """Return c(a) (n,) and C, 0-d."""
        total = self.base.covariance(points, points, values).mean()
        return self.base.covariance(a, points, values).mean(1), total


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Additive(Kernel):
    """A sum of one term for each column and, with order 2, for each pair of columns.

    Each term has zero mean over the rows. The effects of single columns and of pairs are therefore identifiable.

    Source: Lu, Boukouvalas and Hensman (2022), Additive Gaussian processes revisited, Sections 3 and 4.

    Attributes:
        base: A function of a key that returns the kernel of one column, such as `k.RBF` or
            `functools.partial(k.Matern, nu=2.5)`.
        columns: The keys of its columns. If None, all columns but the target.
        order: 1, or 2 for pairs of columns as well.
        name: A prefix of the names of the terms. If None, "additive".

    Raises:
        InvalidArgumentError: If the order is neither 1 nor 2, or the base does not return a kernel.

    Examples:
        >>> from rfgp import kernels as k
        >>> [term.name for term in k.Additive(columns=("a", "b"), order=2).terms()]
        ['additive(a)', 'additive(b)', 'additive(a, b)']
    """

    base: Callable[[Key], Kernel] = RBF
    order: int = 1

    def __init__(
        self,
        base: Callable[[Key], Kernel] = RBF,
        columns: Any = None,
        order: int = 1,
        *,
        name: str | None = None,
    ) -> None:
        if isinstance(order, bool) or order not in (1, 2):
            raise InvalidArgumentError(f"order must be 1 or 2, got {order!r}.")
        if not callable(base):
            raise InvalidArgumentError(
                f"base must map the key of a column to a kernel, such as k.RBF does, got {base!r}."
            )
        for key, value in (("columns", columns), ("name", name), ("base", base), ("order", order)):
            object.__setattr__(self, key, value)
        self.__post_init__()

    @property
    def summands(self) -> tuple[Term, ...]:
        """The terms, or the kernel itself before its columns are set."""
        if self.columns is None:
            return (Term((self,), self.name),)
        factors = {key: Centered(key, self._base_of(key)) for key in self.columns}
        prefix = self.name or "additive"
        single = [Term((factor,), f"{prefix}({key})") for key, factor in factors.items()]
        if self.order == 1:
            return tuple(single)
        pairs = itertools.combinations(factors, 2)
        return (*single, *(Term((factors[a], factors[b]), f"{prefix}({a}, {b})") for a, b in pairs))

    def expanded(self, keys: Sequence[Key]) -> Kernel:
        """Return the sum of the terms.

        Args:
            keys: All columns but the target.
        """
        return Sum(replace(self, columns=self.columns or tuple(keys)).summands)

    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Raise an error for rows (n, c), because the columns are not set yet.

        Raises:
            InvalidArgumentError: Always.
        """
        raise InvalidArgumentError(
            "Additive must know its columns, got None. Give columns=, or use gp.kernel after a fit."
        )

    def _base_of(self, key: Key) -> Kernel:
        kernel = self.base(key)
        if not isinstance(kernel, Kernel):
            raise InvalidArgumentError(f"base must return a kernel, got {kernel!r} for the column {key!r}.")
        return kernel
