"""The interfaces of terms and of their factors, summaries of columns, and matrices on tables."""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphs.checks import check_fits
from rfgp.autograd import Array
from rfgp.chains import StateModel
from rfgp.columns import ColumnKind, ColumnRequest, InputSchema, InputTable
from rfgp.columns.rules import Key, MatrixKey
from rfgp.errors import InvalidArgumentError
from rfgp.grams import Gram, in_frame, scaled_gram, stationary_gram
from rfgp.messages import brief_repr
from rfgp.parameters import Hyperparameter, find_path
from rfgp.scaling import Affine, moments
from rfgp.spectra import Spectrum
from rfgp.torch_context import CachedWithoutLock

# --- Arguments of kernels, checked -----------------------------------------------------------------------------------


def read_columns(columns: Any) -> tuple[Key, ...] | None:
    """Return the keys of columns as a tuple.

    Args:
        columns: A key or a sequence of keys. None stays None.

    Raises:
        InvalidArgumentError: If a key is no text and no integer, a key occurs twice, or there is none.
    """
    if columns is None:
        return None
    keys = (columns,) if isinstance(columns, str | int) else columns
    if not isinstance(keys, Sequence) or isinstance(keys, bytes):
        raise InvalidArgumentError(f"columns must be a name, a number or a sequence of them, got {columns!r}.")
    for key in keys:
        if isinstance(key, bool) or not isinstance(key, str | int):
            raise InvalidArgumentError(f"A column must be a name or a number, got {key!r}.")
    if len(set(keys)) < len(keys) or not keys:
        raise InvalidArgumentError(f"columns must be at least one and distinct, got {columns!r}.")
    return tuple(keys)


def check_name(name: Any) -> None:
    """Check that a name is None or a text.

    Args:
        name: The name of a term.

    Raises:
        InvalidArgumentError: If the name has another type, or is empty.
    """
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise InvalidArgumentError(f"The name of a term must be a text that is not empty, got {name!r}.")


def read_positives(name: str, value: Any) -> Any:
    """Return a positive number, or one for each column.

    Args:
        name: The name of the argument in messages.
        value: A number or a sequence of numbers. None stays None.

    Returns:
        A float, a tuple of floats, or None.

    Raises:
        InvalidArgumentError: If a number is not positive, or the value is not numeric.
    """
    if value is None:
        return None
    try:
        numbers = torch.as_tensor(value, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidArgumentError(f"{name} must be a number or numbers, got {value!r}.") from error
    if numbers.ndim > 1 or not numbers.numel() or not bool((torch.isfinite(numbers) & (numbers > 0)).all()):
        raise InvalidArgumentError(f"{name} must be positive numbers, one or one for each column, got {value!r}.")
    return numbers.item() if numbers.ndim == 0 else tuple(numbers.tolist())


def per_column(name: str, value: Any, like: Tensor) -> Tensor:
    """Return one number, or one for each of c columns, as a tensor (c,).

    Args:
        name: The name of the argument in messages.
        value: One number, or c numbers.
        like: A tensor (c,) with the dtype and the device of the result.

    Raises:
        InvalidArgumentError: If the number of values differs from c.
    """
    numbers = torch.as_tensor(value, dtype=like.dtype, device=like.device)
    if numbers.ndim and numbers.shape != like.shape:
        raise InvalidArgumentError(
            f"{name} must be one number or {len(like)}, one for each column, got {len(numbers)}."
        )
    return numbers.expand(like.shape)


def bounds_in(unit: Tensor, bounds: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """Return the bounds (...) of a hyperparameter from those in a unit (...)."""
    return bounds[0] * unit, bounds[1] * unit


# --- Summaries of the columns of a kernel ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ColumnSummary:
    """The training rows in the c columns of a kernel, in standardized units.

    A value in the user's units is location + scale * standardized value.

    Attributes:
        sample: Rows, all or a sample of them, (r, c).
        location: The location of the map to standardized units, (c,).
        scale: Its scale, (c,).
        spread: The standard deviations of the columns, (c,), 1 for constant columns, and the robust scale of columns
            with outliers (see `rfgp.scaling.Affine.robust`).
        num_levels: The number of levels of each column, c of them. 0 for numbers.
        low: The smallest values of all rows, (c,). If None, those of the sample.
        high: The largest values of all rows, (c,). If None, those of the sample.
        row_noise: The harmonic mean of the given noise variances of rows, standardized.

    Examples:
        >>> import torch
        >>> from rfgp.kernels import ColumnSummary
        >>> summary = ColumnSummary.of(torch.tensor([[0.0], [2.0], [4.0]]))
        >>> summary.num_columns, summary.center.item(), summary.extent.item()
        (1, 2.0, 4.0)
    """

    sample: Tensor
    location: Tensor
    scale: Tensor
    spread: Tensor
    num_levels: tuple[int, ...]
    low: Tensor | None = None
    high: Tensor | None = None
    row_noise: float = 0.0

    @classmethod
    def of(cls, sample: Tensor, num_levels: tuple[int, ...] = (), weight: Tensor | None = None) -> "ColumnSummary":
        """Return the summary of rows (r, c) in the user's units.

        Args:
            sample: The rows.
            num_levels: The number of levels of each column. If empty, all columns are numbers.
            weight: The weight of each row, (r,). If None, 1.
        """
        has_spread = len(sample) > 1 and sample.shape[1]
        spread = moments(sample, weight)[1] if has_spread else torch.zeros_like(sample[0])
        spread = torch.where(spread > 0, spread, torch.ones_like(spread))
        spread = Affine(torch.zeros_like(spread), spread).robust(sample, weight).scale
        return cls(
            sample, torch.zeros_like(spread), torch.ones_like(spread), spread, num_levels or (0,) * sample.shape[1]
        )

    @property
    def num_columns(self) -> int:
        """The number c of columns."""
        return len(self.scale)

    @property
    def center(self) -> Tensor:
        """The means of the columns in the sample, or medians of columns with outliers, (c,)."""
        mean = self.sample.mean(0)
        return Affine(mean, moments(self.sample)[1]).robust(self.sample).location if len(self.sample) > 1 else mean

    @property
    def extent(self) -> Tensor:
        """The ranges of the columns in the sample, (c,)."""
        return self.sample.amax(0) - self.sample.amin(0)

    @property
    def ends(self) -> tuple[Tensor, Tensor]:
        """The smallest and the largest values of all rows, (c,) each."""
        if self.low is not None and self.high is not None:
            return self.low, self.high
        low, high = torch.aminmax(self.sample, dim=0)
        return low, high

    def standardized(self, values: Tensor) -> Tensor:
        """Return standardized values (..., c).

        Args:
            values: The values (..., c) in the user's units.
        """
        return (values - self.location) / self.scale

    def select(self, indices: list[int]) -> "ColumnSummary":
        """Return the summary of some columns, from a cache.

        Args:
            indices: The indices of k of the c columns.
        """
        key = tuple(indices)
        if key not in self._selected:
            self._selected[key] = replace(
                self,
                sample=self.sample[:, indices],
                location=self.location[indices],
                scale=self.scale[indices],
                spread=self.spread[indices],
                num_levels=tuple(self.num_levels[index] for index in indices),
                low=None if self.low is None else self.low[indices],
                high=None if self.high is None else self.high[indices],
            )
        return self._selected[key]

    @CachedWithoutLock
    def _selected(self) -> "dict[tuple[int, ...], ColumnSummary]":
        """The summaries of some of the columns, by their indices."""
        return {}


# --- The interfaces of factors of terms: kernels that are not sums, and their latent fields --------------------------

Values = Mapping[str, Tensor]
"""Hyperparameters and constants in standardized units, by name."""


class FourierFunctions(NamedTuple):
    """Functions a cos(w . x), followed by a sin(w . x)."""

    frequencies: Tensor  # (m, c)
    places: list[int]  # of the columns (c,) that they read
    amplitudes: Tensor  # (m,)


@dataclass(frozen=True, eq=False)
class Functions:
    """Finitely many functions phi of rows such that phi phi^T is the covariance.

    Attributes:
        size: The number F of functions.
        features: Maps rows a (n, c), and values by name, to phi (n, F).
        design: Maps rows and values to phi (n, F) without the factors that depend on hyperparameters, or None.
        scale: Maps values to these factors, (F,).
        reads: The names of the values on which the design depends.
        fourier: Maps values to frequencies, for cosines and sines. None for other functions.
    """

    size: int
    features: Callable[[Tensor, Values], Tensor]
    design: Callable[[Tensor, Values], Tensor] | None = None
    scale: Callable[[Values], Tensor] | None = None
    reads: tuple[str, ...] = ()
    fourier: Callable[[Values], FourierFunctions] | None = None


Projector = Callable[[Tensor], sp.csr_array]
"""Maps rows (n, c) to the sparse matrix A (n, N) that reads the latent values of a field."""


class LatentField(ABC):
    """Interface: N latent values u, their sparse precision Q and projection to rows.

    The defaults hold for a field with all its values in place, whose latent values do not depend on hyperparameters.
    """

    @property
    @abstractmethod
    def field(self) -> Any:
        """Q as a function of its parameters, a `graphs.precisions.MarkovField`."""

    @property
    def is_refined(self) -> bool:
        """Whether the field has values at some places only, so that rows need `refine`."""
        return False

    def at(self, values: Values) -> "LatentField":
        """Return the field for some hyperparameters, if its latent values depend on them.

        Args:
            values: The hyperparameters and constants by name.
        """
        return self

    def parameters(self, values: Values) -> tuple[Tensor, Tensor]:
        """Return the parameters (p,) of Q, and the scale of A Q^-1 A^T, 0-d: by default the lengthscale, and 1.

        Args:
            values: The hyperparameters and constants by name.
        """
        return values["lengthscale"].double().reshape(1), torch.ones((), dtype=torch.float64)

    def projector(self, a: Tensor) -> sp.csr_array:
        """Return A (n, N) of rows a (n, c).

        Raises:
            InvalidArgumentError: If the field has values at some places only.
        """
        raise InvalidArgumentError("Rows must be among the values of a field, got others. Use `refine` first.")

    def refine(self, a: Tensor) -> tuple[Any, Projector]:
        """Return the field with rows a (n, c) among its values, and its projector."""
        return self.field, self.projector

    def between(self, field: Any, values: Array, a: Tensor) -> tuple[sp.csr_array, Array]:
        """Return the projection of rows to a field, and their conditional variances.

        Args:
            field: A field from `refine`.
            values: Its parameters, (p,).
            a: Rows, (n, c), which need not be among its values.

        Returns:
            A (n, N), and the variances (n,) of f at rows given the field's values, in units of its variance.
        """
        return self.projector(a), np.zeros(len(a))

    @property
    def slopes(self) -> "Callable[[Any, Array, Tensor], list[tuple[sp.csr_array, Array]]] | None":
        """The derivatives of the results of `between` in each column of the rows.

        They are a function that takes the arguments of `between`. It returns dA / dx (n, N) and the derivatives (n,) of
        the conditional variances for each column, or raises a `NotDifferentiableError`. If None, rows have no
        derivatives because they are labels.
        """
        return None


@dataclass(frozen=True, eq=False, repr=False)
class Factor(ABC):
    """The interface of a kernel on its columns. `rfgp.kernels.Kernel` adds their composition.

    Attributes:
        columns: The keys of its columns. If None, all columns but the target.
        name: Its name, or None.
    """

    columns: Any = None
    name: str | None = field(default=None, kw_only=True)

    @property
    def keys(self) -> tuple[MatrixKey, ...]:
        """The keys of the kernel's columns in the matrix of rows."""
        return self.columns or ()

    kind: ClassVar[ColumnKind] = ColumnKind.NUMBER
    """How the columns are read."""
    nodes: ClassVar[Any] = None
    """The graph whose nodes the column names, for ColumnKind.NODE."""
    graph_kernel: ClassVar[Any] = None
    """The kernel on these nodes, a `graphs.kernels.GraphKernel`, for ColumnKind.NODE."""
    domain: ClassVar[Any] = None
    """The domain of the points that the columns are, a `rfgp.kernels.fields.Domain`, for ColumnKind.COORDINATE."""
    embedding: ClassVar[Any] = None
    """Maps the columns (n, c) and the values to positions (n, e) for the neighbor search of `Vecchia`.

    The squared distance of close rows is about 2 - 2 k. If None, positions are the columns in lengthscales."""
    has_unit_variance: ClassVar[bool] = False
    """Whether all variances are 1."""
    has_own_variance: ClassVar[bool] = False
    """Whether a hyperparameter of the kernel replaces the output scale of its term."""

    @abstractmethod
    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Return the covariance (n, m) of rows a (n, c) and b (m, c).

        It must be differentiable in all arguments.

        Args:
            a: The kernel's columns, in standardized units.
            b: The kernel's columns of other rows.
            values: The kernel's hyperparameters and constants by name.
        """

    def variances(self, a: Tensor, values: Values) -> Tensor:
        """Return the variances (n,) of rows a (n, c).

        Args:
            a: The kernel's columns, in standardized units.
            values: The kernel's hyperparameters and constants by name.
        """
        if self.has_unit_variance:
            return torch.ones(len(a), dtype=torch.float64, device=a.device)
        variances = [self.covariance(row, row, values)[0, 0] for row in a[:, None]]
        return torch.stack(variances) if variances else a.new_zeros(0)

    def hyperparameters(self, columns: ColumnSummary) -> dict[str, Hyperparameter]:
        """Return the hyperparameters by name, with starting values.

        Args:
            columns: The training rows in the columns of the kernel.
        """
        return {}

    def constants(self, columns: ColumnSummary) -> dict[str, Tensor]:
        """Return the constants of `covariance` by name, in standardized units, (...) each.

        Args:
            columns: The training rows in the columns of the kernel.
        """
        return {}

    def check_rows(self, rows: Tensor) -> None:
        """Check that rows lie where the kernel is defined.

        Args:
            rows: The rows in the columns of the kernel, (n, c), in their units.

        Raises:
            DataError: If a row does not. The message has the reason.
        """
        if self.domain is not None:
            self.domain.check(rows.detach().double().cpu().numpy())

    def latent_field(self, columns: ColumnSummary) -> "LatentField | None":
        """Return the latent field with a sparse precision, or None.

        Args:
            columns: The training rows in the columns of the kernel.
        """
        return None

    def chain(self, columns: ColumnSummary) -> "Callable[[Values], StateModel] | None":
        """Return a map of hyperparameters and constants to a Markov process of variance 1, or None.

        The kernel then has one column.

        Args:
            columns: The training rows in the columns of the kernel.
        """
        return None

    @property
    def measure(self) -> Spectrum | None:
        """The spectral measure at unit lengthscale. None if not stationary."""
        return None

    @property
    def is_rotated(self) -> bool:
        """Whether the value "rotation" is the angle of the axes of two lengthscales against two columns, in radians."""
        return False

    def functions(self, columns: ColumnSummary) -> "Functions | None":
        """Return finitely many functions phi with covariance phi phi^T, or None.

        Args:
            columns: The training rows in the columns of the kernel.
        """
        return None

    def series(self, values: Values) -> "Factor | None":
        """Return an accurate factor of finitely many functions, or None.

        It has the same columns and hyperparameters.

        Args:
            values: The hyperparameters and constants by name, at which it is accurate.
        """
        return None

    @property
    def starts(self) -> Mapping[str, Any]:
        """The starting values by name, in the user's units. None if missing."""
        return {}


# --- Terms: products of factors, with names, variances and the paths of their hyperparameters ------------------------

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
        for key in factor.keys
    ]


class BoundFactor(NamedTuple):
    """A factor with the indices of its columns in rows (n, D), and the prefix of the paths of its hyperparameters."""

    factor: Factor
    indices: list[int]
    prefix: str

    def functions(self, columns: ColumnSummary) -> Functions | None:
        """Return the functions of the factor on rows (n, D) and values by path, or None if they are not finitely many.

        Args:
            columns: The summary of all columns.
        """
        own = columns.select(self.indices)
        functions = self.factor.functions(own)
        if functions is None:
            return None
        features = partial(self._of_rows, functions.features)
        if not self.factor.hyperparameters(own):
            return Functions(functions.size, features, features)
        if functions.design is None or functions.scale is None:
            return Functions(functions.size, features)
        design, scale = partial(self._of_rows, functions.design), partial(self._of_values, functions.scale)
        return Functions(functions.size, features, design, scale, tuple(self.prefix + name for name in functions.reads))

    def _of_rows(self, features: Callable[[Tensor, Values], Tensor], x: Tensor, values: Values) -> Tensor:
        return features(x[:, self.indices], of_prefix(values, self.prefix))

    def _of_values(self, scale: Callable[[Values], Tensor], values: Values) -> Tensor:
        return scale(of_prefix(values, self.prefix))

    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Return the covariance (n, m) of rows a (n, D) and b (m, D), at values by path.

        Raises:
            InvalidArgumentError: If the factor returns a matrix of another shape.
        """
        left = a[:, self.indices]
        right = left if b is a else b[:, self.indices]
        covariance = self.factor.covariance(left, right, of_prefix(values, self.prefix))
        if covariance.shape != (len(a), len(b)):
            raise InvalidArgumentError(
                f"covariance of {type(self.factor).__name__} must return a matrix of shape ({len(a)}, {len(b)}), got "
                f"shape {tuple(covariance.shape)}."
            )
        return covariance

    def latent_field(self, columns: ColumnSummary) -> LatentField | None:
        """Return the latent field of the factor with a sparse precision, or None.

        Args:
            columns: The summary of all columns.
        """
        return self.factor.latent_field(columns.select(self.indices))

    def chain(self, columns: ColumnSummary) -> Callable[[Values], StateModel] | None:
        """Return a map of values by path to a Markov process of variance 1, or None.

        Args:
            columns: The summary of all columns.
        """
        model = self.factor.chain(columns.select(self.indices))
        return None if model is None else lambda values: model(of_prefix(values, self.prefix))


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

    def parts(self) -> list[BoundFactor]:
        """Return each factor with its column indices and its path prefix."""
        return [BoundFactor(*part) for part in zip(self.term.factors, self.column_indices, self.prefixes, strict=True)]

    @property
    def columns(self) -> list[int]:
        """The indices of the columns that the term reads, in increasing order."""
        return sorted({index for indices in self.column_indices for index in indices})

    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Return the covariance (n, m) of rows a (n, D) and b (m, D), at values by path."""
        if self.measure is not None and b is a and not a.requires_grad:
            return scaled_gram(*self._stationary(a, values))
        product = self._variance(a, values)
        for part in self.parts():
            product = product * part.covariance(a, b, values)
        return product

    def gram(self, a: Tensor, values: Values) -> Gram:
        """Return the covariance (n, n) of rows a (n, D), with its gradient."""
        gram = None
        if self.measure is not None and not a.requires_grad:
            gram = stationary_gram(*self._stationary(a, values))
        return (Gram.of(self.covariance(a, a, values)) if gram is None else gram).double()

    def variances(self, a: Tensor, values: Values) -> Tensor:
        """Return the variances (n,) of rows a (n, D), at values by path."""
        variances = [f.variances(a[:, indices], of_prefix(values, prefix)) for f, indices, prefix in self.parts()]
        return self._variance(a, values) * torch.stack(variances).prod(0)

    def _variance(self, a: Tensor, values: Values) -> Tensor:
        """Return the variance of the term, 0-d, float64, or 1 without an output scale."""
        return a.new_ones((), dtype=torch.float64) if self.outputscale is None else values[self.outputscale].double()

    def _stationary(self, a: Tensor, values: Values) -> tuple[Spectrum, Tensor, Tensor, Tensor]:
        """Return the spectrum of a stationary term, its columns of rows a, the lengthscale and the variance."""
        assert self.measure is not None
        own = of_prefix(values, self.prefixes[0])
        x, lengthscale = in_frame(a[:, self.column_indices[0]], own["lengthscale"], own.get("rotation"))
        return self.measure, x, lengthscale.to(x), self._variance(a, values).to(x)


def of_prefix(values: Values, prefix: str) -> dict[str, Tensor]:
    """Return the values (...) with paths of the form prefix.name, by name.

    Args:
        values: The values by path.
        prefix: The prefix, with its final dot.
    """
    size = len(prefix)
    return {path[size:]: v for path, v in values.items() if path.startswith(prefix) and "." not in path[size:]}


def bind(terms: Sequence[Term], index_of: Callable[[MatrixKey, ColumnKind, Any], int]) -> tuple[BoundTerm, ...]:
    """Return terms with the indices of their columns.

    Args:
        terms: Terms with explicit columns and names.
        index_of: Returns the index of a column from its key, its kind, and its nodes or None.
    """
    first: dict[int, str] = {}
    bound = []
    for term in terms:
        indices = tuple([index_of(key, factor.kind, factor.nodes) for key in factor.keys] for factor in term.factors)
        pairs = zip(term.factors, term.prefixes, strict=True)
        bound.append(BoundTerm(term, indices, tuple(first.setdefault(id(factor), prefix) for factor, prefix in pairs)))
    return tuple(bound)


def check_points(terms: Sequence[BoundTerm], x: Tensor) -> None:
    """Check that rows (n, D) lie where all terms are defined.

    Args:
        terms: The terms.
        x: The rows, (n, D), in their units.

    Raises:
        DataError: If a row lies outside. The message names the first and the reason.
    """
    for term in terms:
        for factor, indices, _ in term.parts():
            factor.check_rows(x[:, indices])


def hyperparameters_of(terms: Sequence[BoundTerm], columns: ColumnSummary) -> dict[str, Hyperparameter]:
    """Return the hyperparameters of the factors by path, without output scales.

    Args:
        terms: The terms.
        columns: The summary of all columns.
    """
    return _by_path(terms, lambda part: part.factor.hyperparameters(columns.select(part.indices)))


def constants_of(terms: Sequence[BoundTerm], columns: ColumnSummary) -> dict[str, Tensor]:
    """Return the constants (...) of the factors of terms by path.

    Args:
        terms: The terms.
        columns: The summary of all columns.
    """
    return _by_path(terms, lambda part: part.factor.constants(columns.select(part.indices)))


def _by_path(terms: Sequence[BoundTerm], of: Callable[[BoundFactor], Mapping[str, Any]]) -> dict[str, Any]:
    """Return what each factor of terms has by name, by path."""
    parts = [part for term in terms for part in term.parts()]
    return {f"{part.prefix}{name}": value for part in parts for name, value in of(part).items()}


# --- Covariance matrices of kernels on a user's tables ---------------------------------------------------------------

COPIES = 8
"""The largest number of matrices of all points that are in memory during a computation with one covariance.

Measured at 5,000 points: 3 to 6 for covariances and draws, 7 for log-normal covariances and 8 for divergences."""


def covariance_matrix(terms: Sequence[Term], A: InputTable, B: InputTable | None, values: Mapping[str, Any]) -> Tensor:
    """Return the covariance (n, m) of the rows of two tables, or of one.

    Args:
        terms: Terms with explicit columns and names.
        A: The rows.
        B: The columns. If None, the rows.
        values: Hyperparameters in the user's units by path or unique suffix. Output scales are 1 unless they are among
            them.

    Raises:
        InvalidArgumentError: If a value has the name of no hyperparameter, or one is missing.
    """
    schema = InputSchema.fit(requests_of(terms), A)
    bound = bind(terms, schema.column_of)
    left = schema.read(A)
    right = left if B is None else schema.read(B)
    size = 8.0 * COPIES * len(left) * len(right)
    check_fits(f"The covariances of {len(left):,} and {len(right):,} rows", size, "Use fewer rows at a time.")
    check_points(bound, torch.cat([left, right]))
    summary = ColumnSummary.of(left.detach(), tuple(column.num_levels for column in schema.columns))
    known = _known_values(bound, hyperparameters_of(bound, summary), values, left)
    known |= constants_of(bound, summary)
    parts = [term.covariance(left, right, known) for term in bound]
    return torch.stack([part.expand(len(left), len(right)) for part in parts]).sum(0)


def _known_values(
    terms: Sequence[BoundTerm], quantities: Mapping[str, Hyperparameter], values: Mapping[str, Any], like: Tensor
) -> dict[str, Tensor]:
    """Return all hyperparameters (...) by path, from the given values, starting values, or 1 for variances."""
    scales = [term.outputscale for term in terms if term.outputscale is not None]
    paths = [*quantities, *scales]
    given = {find_path(name, paths): value for name, value in values.items()}
    starts = {path: v for path, v in _by_path(terms, lambda part: part.factor.starts).items() if v is not None}
    units = dict.fromkeys((*scales, *(path for path, quantity in quantities.items() if quantity.is_variance)), 1.0)
    on_graphs = [part for term in terms for part in term.parts() if part.factor.graph_kernel is not None]
    usual = {path: quantities[path].start for path in quantities for part in on_graphs if path.startswith(part.prefix)}
    known = {**units, **usual, **starts, **given}
    missing = [path for path in paths if path not in known]
    if missing:
        raise InvalidArgumentError(
            f"The kernel must have values of {', '.join(missing)}, got none. Give starting values, such as "
            "lengthscale=1.0, or "
            f"values={{{missing[0]!r}: 1.0}}."
        )
    return {path: _as_tensor(path, known[path], quantities.get(path), like) for path in paths}


def _as_tensor(path: str, value: Any, quantity: Hyperparameter | None, like: Tensor) -> Tensor:
    """Return a value in the shape of its hyperparameter, (...), float64.

    Raises:
        InvalidArgumentError: If the shape is wrong.
    """
    number = torch.as_tensor(value, dtype=torch.float64, device=like.device)
    shape = torch.Size([]) if quantity is None else quantity.start.shape
    if quantity is not None and quantity.is_shared and number.shape == quantity.unit.shape:
        return number
    if number.shape not in (shape, torch.Size([])):
        raise InvalidArgumentError(f"{path} must have the shape {tuple(shape)}, got {tuple(number.shape)}.")
    if quantity is None or quantity.is_shared:
        return number.expand(shape)
    return number.expand(shape) / quantity.unit.to(number)  # degrees of an angle in radians, or 1
