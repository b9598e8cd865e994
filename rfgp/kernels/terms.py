"""Terms: products of factors, with names, variances and the paths of their hyperparameters."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rfgp.columns import ColumnKind, ColumnRequest
from rfgp.errors import InvalidArgumentError
from rfgp.grams import Gram, scaled_gram, stationary_gram
from rfgp.kernels.arguments import Key
from rfgp.kernels.role import Factor, Values
from rfgp.kernels.summary import ColumnSummary
from rfgp.parameters import Hyperparameter
from rfgp.spectra import Spectrum
from rfgp.values import brief_repr

OUTPUTSCALE = "outputscale"
"""The name of the variance of a term."""


def label_of(factor: Factor) -> str:
    """Return the default name of a factor: its class and columns.

    Args:
        factor: The factor.
    """
    kind = type(factor).__name__.lower()
    return f"{kind}({', '.join(map(str, factor.columns))})" if factor.columns else kind


def unused(label: str, taken: "set[str]") -> str:
    """Return a label, or the label with the first number that makes it new.

    Args:
        label: The label.
        taken: The labels in use.
    """
    numbered = (f"{label}_{number}" for number in itertools.count(2))
    return next(name for name in itertools.chain([label], numbered) if name not in taken)


@dataclass(frozen=True, eq=False)
class Term:
    """A product of factors with a variance.

    Attributes:
        factors: The kernels that are multiplied. None of them is a sum.
        name: The name of the term. If None, it has the default name.
        variance: The starting variance, in the user's units. If None, the data decide.
        given: The names that the user gave to factors before their multiplication, or None for each.

    Examples:
        >>> from rfgp import kernels as k
        >>> term = (2.0 * k.RBF("t") * k.Group("store")).terms()[0]
        >>> term.label, term.variance, len(term.factors)
        ('rbf(t):group(store)', 2.0, 2)
    """

    factors: tuple[Any, ...]
    name: str | None = None
    variance: float | None = None
    given: tuple[str | None, ...] = ()

    @property
    def label(self) -> str:
        """The default name: the names of the factors, joined by colons."""
        pairs = zip(self.factors, self._given, strict=True)
        return ":".join(given or factor.name or label_of(factor) for factor, given in pairs)

    @property
    def has_outputscale(self) -> bool:
        """Whether the term has an output scale. Otherwise a factor has a variance."""
        return not any(factor.has_own_variance for factor in self.factors)

    @property
    def factor_names(self) -> tuple[str, ...]:
        """The names of the factors, unique within the term."""
        names: list[str] = []
        for factor, given in zip(self.factors, self._given, strict=True):
            names.append(unused(given or factor.name or type(factor).__name__.lower(), set(names)))
        return tuple(names)

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The path prefix of each factor: the term, and in a product the factor."""
        if len(self.factors) == 1:
            return (f"{self.name}.",)
        return tuple(f"{self.name}.{name}." for name in self.factor_names)

    @property
    def _given(self) -> tuple[str | None, ...]:
        return self.given or (None,) * len(self.factors)

    def times(self, other: "Term") -> "Term":
        """Return the product of two terms, under its default name.

        Args:
            other: The second term. Starting variances are multiplied.
        """
        known = [term.variance for term in (self, other) if term.variance is not None]
        given = (*self._as_factors(), *other._as_factors())
        return Term((*self.factors, *other.factors), None, math.prod(known) if known else None, given)

    def _as_factors(self) -> tuple[str | None, ...]:
        return (self.name,) if len(self.factors) == 1 else self._given

    def scaled(self, variance: float) -> "Term":
        """Return the term with its starting variance multiplied by a number.

        Args:
            variance: The number.
        """
        return replace(self, variance=variance * (1.0 if self.variance is None else self.variance))

    def __repr__(self) -> str:
        product = " * ".join(map(repr, self.factors))
        text = product if self.variance is None else f"{brief_repr(self.variance)} * {product}"
        is_own = self.name == self.label
        return text if self.name is None or is_own else f"({text}).named({self.name!r})"


def with_names(terms: Sequence[Term]) -> tuple[Term, ...]:
    """Return terms with unique names. Equal default names are numbered.

    Args:
        terms: The terms.

    Raises:
        InvalidArgumentError: If the user gave two terms the same name.
    """
    given = [term.name for term in terms if term.name is not None]
    twice = sorted({name for name in given if given.count(name) > 1})
    if twice:
        raise InvalidArgumentError(f"Terms must have unique names, got {twice[0]!r} twice. Rename one.")
    taken, named = set(given), []
    for term in terms:
        name = unused(term.label, taken) if term.name is None else term.name
        taken.add(name)
        named.append(replace(term, name=name))
    return tuple(named)


def requests_of(terms: Sequence[Term]) -> list[ColumnRequest]:
    """Return the columns of terms in the order of appearance.

    Args:
        terms: The terms, with explicit columns and names.
    """
    return [
        ColumnRequest(key, factor.kind, str(term.name), factor.nodes)
        for term in terms
        for factor in term.factors
        for key in factor.columns or ()
    ]


@dataclass(frozen=True, eq=False)
class BoundTerm:
    """A term with the indices of its columns in rows (n, D), and with paths.

    Attributes:
        term: The term, with a name.
        column_indices: The indices of the columns of each factor.
        prefixes: The path prefixes of the hyperparameters of each factor. A shared factor has the prefix of its first
            use.
    """

    term: Term
    column_indices: tuple[list[int], ...]
    prefixes: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the term."""
        return str(self.term.name)

    @property
    def outputscale(self) -> str | None:
        """The path of the output scale, or None."""
        return f"{self.name}.{OUTPUTSCALE}" if self.term.has_outputscale else None

    @property
    def measure(self) -> Spectrum | None:
        """The spectral measure of a single stationary factor. Otherwise None."""
        return self.term.factors[0].measure if len(self.column_indices) == 1 else None

    def parts(self) -> Iterator[tuple[Factor, list[int], str]]:
        """Yield each factor with its column indices and its path prefix."""
        return iter(zip(self.term.factors, self.column_indices, self.prefixes, strict=True))

    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Return the covariance (n, m) of rows a (n, D) and b (m, D), at values by path."""
        scale = self.outputscale
        product = a.new_ones((), dtype=torch.float64) if scale is None else values[scale].double()
        if self.measure is not None and b is a and not a.requires_grad:
            x, lengthscale = a[:, self.column_indices[0]], values[f"{self.prefixes[0]}lengthscale"]
            return scaled_gram(self.measure, x, lengthscale.to(x), product.to(x))
        for factor, indices, prefix in self.parts():
            right = a[:, indices]
            covariance = factor.covariance(right, right if b is a else b[:, indices], of_prefix(values, prefix))
            if covariance.shape != (len(a), len(b)):
                raise InvalidArgumentError(
                    f"covariance of {type(factor).__name__} must return a matrix of shape ({len(a)}, {len(b)}), got "
                    f"shape {tuple(covariance.shape)}."
                )
            product = product * covariance
        return product

    def gram(self, a: Tensor, values: Values) -> Gram:
        """Return the covariance (n, n) of rows a (n, D), with its gradient."""
        gram = None
        if self.measure is not None and not a.requires_grad:
            lengthscale = values[f"{self.prefixes[0]}lengthscale"].to(a)
            variance = a.new_ones(()) if self.outputscale is None else values[self.outputscale].to(a)
            gram = stationary_gram(self.measure, a[:, self.column_indices[0]], lengthscale, variance)
        return (Gram.of(self.covariance(a, a, values)) if gram is None else gram).double()

    def variances(self, a: Tensor, values: Values) -> Tensor:
        """Return the variances (n,) of rows a (n, D), at values by path."""
        scale = 1.0 if self.outputscale is None else values[self.outputscale].double()
        variances = [f.variances(a[:, indices], of_prefix(values, prefix)) for f, indices, prefix in self.parts()]
        return scale * torch.stack(variances).prod(0)


def of_prefix(values: Values, prefix: str) -> dict[str, Tensor]:
    """Return the values (...) with paths of the form prefix.name, by name.

    Args:
        values: The values by path.
        prefix: The prefix, with its final dot.
    """
    size = len(prefix)
    return {path[size:]: v for path, v in values.items() if path.startswith(prefix) and "." not in path[size:]}


def bind(terms: Sequence[Term], index_of: Callable[[Key, ColumnKind, Any], int]) -> tuple[BoundTerm, ...]:
    """Return terms with the indices of their columns.

    Args:
        terms: Terms with explicit columns and names.
        index_of: Returns the index of a column from its key, its kind, and its nodes or None.
    """
    first: dict[int, str] = {}
    bound = []
    for term in terms:
        indices = tuple(
            [index_of(key, factor.kind, factor.nodes) for key in factor.columns or ()] for factor in term.factors
        )
        pairs = zip(term.factors, term.prefixes, strict=True)
        bound.append(BoundTerm(term, indices, tuple(first.setdefault(id(factor), prefix) for factor, prefix in pairs)))
    return tuple(bound)


def check_points(terms: Sequence[BoundTerm], x: Tensor) -> None:
    """Check that rows (n, D) lie in the domains of all terms.

    Args:
        terms: The terms.
        x: The rows, (n, D).

    Raises:
        DataError: If a row lies outside. The message names the first and the reason.
    """
    for term in terms:
        for factor, indices, _ in term.parts():
            if factor.domain is not None:
                factor.domain.check(x[:, indices].detach().double().cpu().numpy())


def hyperparameters_of(terms: Sequence[BoundTerm], columns: ColumnSummary) -> dict[str, Hyperparameter]:
    """Return the hyperparameters of the factors by path, without output scales.

    Args:
        terms: The terms.
        columns: The summary of all columns.
    """
    hyperparameters: dict[str, Hyperparameter] = {}
    for term in terms:
        for factor, indices, prefix in term.parts():
            for name, quantity in factor.hyperparameters(columns.select(indices)).items():
                hyperparameters.setdefault(f"{prefix}{name}", quantity)
    return hyperparameters


def constants_of(terms: Sequence[BoundTerm], columns: ColumnSummary) -> dict[str, Tensor]:
    """Return the constants (...) of the factors of terms by path.

    Args:
        terms: The terms.
        columns: The summary of all columns.
    """
    return {
        f"{prefix}{name}": value
        for term in terms
        for factor, indices, prefix in term.parts()
        for name, value in factor.constants(columns.select(indices)).items()
    }
