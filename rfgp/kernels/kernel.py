"""Kernels as values: sums of terms, each a product of factors."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add, mul
from typing import Any, ClassVar

import torch
from torch import Tensor

from rfgp.columns import InputTable
from rfgp.columns.rules import Key
from rfgp.errors import InvalidArgumentError
from rfgp.kernels.role import (
    BoundTerm,
    ColumnSummary,
    Factor,
    Term,
    Values,
    bind,
    check_name,
    constants_of,
    covariance_matrix,
    hyperparameters_of,
    read_columns,
    requests_of,
    with_names,
)
from rfgp.messages import brief_repr, changed_arguments
from rfgp.parameters import Hyperparameter
from rfgp.torch_context import CachedWithoutLock


@dataclass(frozen=True, eq=False, repr=False)
class Kernel(Factor):
    """A covariance function of some columns, combined by `+` and `*`.

    A kernel object that is used several times shares its hyperparameters. To define a kernel, subclass this class as a
    dataclass and implement `covariance`, and `hyperparameters` if it has any (`rfgp.parameters.Hyperparameter` has an
    example). The approximations `Exact`, `InducingPoints` and `Vecchia` support it.

    Attributes:
        columns: The keys of its columns: names of a dataframe or dict, integers of an array. If None, all columns but
            the target.
        name: The name of its term. If None, its class and columns.

    Examples:
        >>> from rfgp import kernels as k
        >>> kernel = k.RBF("t", name="trend") + 2.0 * k.Group("store") * k.Matern("t")
        >>> [term.name for term in kernel.terms()]
        ['trend', 'group(store):matern(t)']
    """

    __array_ufunc__: ClassVar[None] = None  # numpy leaves + and * to kernels

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", read_columns(self.columns))
        check_name(self.name)

    def resolved(self, columns: ColumnSummary, starts: Mapping[str, Any]) -> "Kernel":
        """Return the kernel with starting values and options from the data.

        Args:
            columns: The rows.
            starts: Some of the starting values that `starts` names, in the user's units.
        """
        return replace(self, **starts)

    def expanded(self, keys: Sequence[Key]) -> "Kernel":
        """Return the kernel with explicit columns.

        Args:
            keys: All columns but the target.
        """
        return self if self.columns is not None else replace(self, columns=tuple(keys))

    def matrix(self, A: Any, B: Any = None, values: Mapping[str, Any] | None = None) -> Tensor:
        """Return the covariance matrix (n, m) of the rows of A and of B.

        It is float64, and differentiable in tensors. Output scales are 1 unless `values` has them. An unresolved
        `Linear` has its origin at 0.

        Args:
            A: n rows: a dataframe, a dict of columns, an array (n, d), or n labels of nodes.
            B: m rows. If None, A.
            values: Hyperparameters in the user's units, by path or unique suffix. If None, the starting values.

        Returns:
            The matrix (n, m).

        Raises:
            DataError: If a column is missing or of another kind.
            InvalidArgumentError: If a hyperparameter has no value, or a name is unknown.
        """
        left = InputTable.of(A)
        kernel = transformed(self, lambda factor: factor.expanded(left.keys))
        return covariance_matrix(kernel.terms(), left, None if B is None else InputTable.of(B), values or {})

    # --- composition ------------------------------------------------------------------------------

    @property
    def summands(self) -> tuple[Term, ...]:
        """The terms in the order of addition, with the names that the user gave.

        A kernel that is not a sum is its only term. A term without a name has None. `terms` gives unique names.
        """
        return (Term((self,), self.name),)

    def terms(self) -> tuple[Term, ...]:
        """Return the terms with unique names. Equal default names are numbered.

        Raises:
            InvalidArgumentError: If the user gave two terms the same name.
        """
        return self._terms

    @CachedWithoutLock
    def _terms(self) -> tuple[Term, ...]:
        return with_names(self.summands)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_terms"}

    def named(self, name: str) -> "Kernel":
        """Return the kernel with a name, which prefixes the terms of a sum.

        Args:
            name: The name, a text that is not empty.

        Raises:
            InvalidArgumentError: If the name is not a text, or empty.
        """
        check_name(name)
        if len(self.summands) == 1:
            return Sum((replace(self.summands[0], name=name),))
        return Sum(tuple(replace(term, name=f"{name}.{term.name}") for term in self.terms()))

    def __add__(self, other: Any) -> "Kernel":
        if isinstance(other, int) and other == 0:  # sum() starts with 0
            return self
        return Sum((*self.summands, *other.summands)) if isinstance(other, Kernel) else NotImplemented

    __radd__ = __add__

    def __mul__(self, other: Any) -> "Kernel":
        if isinstance(other, Kernel):
            pairs = itertools.product(self.summands, other.summands)
            return Sum(tuple(first.times(second) for first, second in pairs))
        if isinstance(other, bool) or not isinstance(other, int | float):
            return NotImplemented
        if not (0 < other < math.inf):
            raise InvalidArgumentError(f"The starting variance of a term must be positive and finite, got {other}.")
        return Sum(tuple(term.scaled(float(other)) for term in self.summands))

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(_arguments(self))})"


def transformed(kernel: Kernel, change: Callable[[Kernel], Kernel]) -> Kernel:
    """Return a kernel with each factor changed, a shared one once.

    Args:
        kernel: The kernel.
        change: Maps a factor to a kernel, which may be a sum.
    """
    changed: dict[int, Kernel] = {}
    out = []
    for term, summand in zip(kernel.terms(), kernel.summands, strict=True):
        for factor in term.factors:
            if id(factor) not in changed:
                changed[id(factor)] = change(factor)
        out.append(_product(term, summand.name, [changed[id(factor)] for factor in term.factors]))
    return reduce(add, out)


def _product(term: Term, name: str | None, factors: list[Kernel]) -> Kernel:
    """Return a term as a kernel with other factors, and the name that the user gave it, if any."""
    given = term.given or (None,) * len(factors)
    named = [f if known is None else f.named(known) for f, known in zip(factors, given, strict=True)]
    product = reduce(mul, named)
    if len(product.summands) == 1:
        product = product.named(str(term.name))
    elif name is not None and name != term.factors[0].name:
        product = product.named(name)
    return product if term.variance is None else term.variance * product


def _arguments(kernel: Kernel) -> Iterator[str]:
    """Yield the arguments of a kernel that differ from the defaults. Columns are positional."""
    for name, value in changed_arguments(kernel):
        yield brief_repr(value) if name == "columns" else f"{name}={brief_repr(value)}"


@dataclass(frozen=True, eq=False, repr=False)
class Sum(Kernel):
    """A sum of terms: `(A + B) * C` is `A * C + B * C` with a shared C.

    Attributes:
        summands: The terms.

    Examples:
        >>> from rfgp import kernels as k
        >>> kernel = (k.RBF("t") + k.Constant()) * k.Group("store")
        >>> [term.name for term in kernel.terms()]
        ['rbf(t):group(store)', 'constant:group(store)']
    """

    columns: None = field(default=None, init=False)
    summands: tuple[Term, ...] = ()

    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Return the covariance (n, m) of rows a (n, D) and b (m, D), at values by path."""
        return sum((term.covariance(a, b, values) for term in self._bound), start=torch.zeros((), dtype=torch.float64))

    def variances(self, a: Tensor, values: Values) -> Tensor:
        """Return the variances (n,) of rows a (n, D), at values by path."""
        return sum((term.variances(a, values) for term in self._bound), start=torch.zeros((), dtype=torch.float64))

    def hyperparameters(self, columns: ColumnSummary) -> dict[str, Hyperparameter]:
        """Return the hyperparameters of all factors by path, without output scales."""
        return hyperparameters_of(self._bound, columns)

    def constants(self, columns: ColumnSummary) -> dict[str, Tensor]:
        """Return the constants (...) of all factors by path."""
        return constants_of(self._bound, columns)

    @property
    def _bound(self) -> tuple[BoundTerm, ...]:
        terms = self.terms()
        order = list(dict.fromkeys((request.key, request.kind) for request in requests_of(terms)))
        return bind(terms, lambda key, kind, nodes: order.index((key, kind)))

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.summands))
