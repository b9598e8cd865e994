"""Gaussian fields with a sparse precision: the interface, operators of fields, and what a precision gives."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.polynomial import Chebyshev
from numpy.typing import ArrayLike, NDArray

from graphs.arrays import as_numbers, pointers, ranks
from graphs.checks import check_count, check_fits, resolve_seed, short_repr
from graphs.cholesky import Analysis, Factor, analyze
from graphs.errors import InvalidArgumentError

Floats = NDArray[np.float64]

# --- The interface of fields with a sparse precision: Gaussian vectors as functions of parameters --------------------


class SymmetricPattern(NamedTuple):
    """The pattern of a symmetric (N, N) matrix in CSR form, with its diagonal.

    Examples:
        >>> from graphs.precisions import IndependentField
        >>> IndependentField(2).pattern.indices.tolist()
        [0, 1]
    """

    indptr: NDArray[np.int64]  # (N + 1,)
    indices: NDArray[np.int32]  # (nnz,) ascending in each row


class MarkovField(ABC):
    """A Gaussian vector of N latent values with mean 0 and a sparse precision Q.

    `entries` are those of a symmetric positive definite matrix on `pattern`. `pull_back` is the adjoint of their
    derivative in the parameters, a vector-Jacobian product.

    Attributes:
        parameters: The names of the p learnable parameters, all positive.
        pattern: The pattern of Q, for all parameters.
        coordinates: Coordinates (N, 2) or (N, 3) of the values for orderings, or None.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions import ChainField
        >>> field = ChainField([0.0, 1.0, 3.0])
        >>> value, slope = field.log_determinant(np.array([2.0]))
        >>> round(value, 4)
        0.6041
    """

    parameters: tuple[str, ...]
    coordinates: Floats | None = None

    @property
    @abstractmethod
    def pattern(self) -> SymmetricPattern:
        """The pattern of Q."""

    @abstractmethod
    def entries(
        self,
        values: Floats,  # (p,)
    ) -> Floats:  # (nnz,)
        """Return the entries (nnz,) of Q on the pattern.

        Args:
            values: The parameters (p,).
        """

    @abstractmethod
    def pull_back(
        self,
        values: Floats,  # (p,)
        weights: Floats,  # (nnz,)
    ) -> Floats:  # (p,)
        """Return sum_e weights_e dQ_e / d parameters, over all entries e of the pattern.

        Args:
            values: The parameters (p,).
            weights: The derivative (nnz,) of a scalar in each entry of Q.
        """

    @cached_property
    def analysis(self) -> Analysis:
        """The symbolic analysis of the pattern for factors, cached."""
        return analyze(*self.pattern, self.coordinates)

    def factor(
        self,
        data: Floats,  # (nnz,)
    ) -> Factor:
        """Return the Cholesky factor of a matrix with these entries on the pattern.

        Args:
            data: The entries (nnz,) of the matrix on the pattern.

        Raises:
            NotPositiveDefiniteError: If the matrix is not positive definite in double precision.
            MemoryBudgetError: If the factor does not fit into memory. Nothing was computed.
        """
        return Factor.of(self.analysis, data)

    def factor_at(
        self,
        values: Floats,  # (p,)
    ) -> Factor:
        """Return the Cholesky factor of Q; the last one is cached.

        Args:
            values: The parameters (p,).

        Raises:
            NotPositiveDefiniteError: If Q is not positive definite in double precision.
            MemoryBudgetError: If the factor does not fit into memory. Nothing was computed.
        """
        key = np.asarray(values, dtype=np.float64).tobytes()
        factor = self._kept.get(key)
        if factor is None:
            factor = self.factor(self.entries(values))
            self._kept.clear()
            self._kept[key] = factor
        return factor

    @cached_property
    def _kept(self) -> dict[bytes, Factor]:
        """The last factor of Q, by its parameters."""
        return {}

    def log_determinant(
        self,
        values: Floats,  # (p,)
    ) -> tuple[float, Floats]:
        """Return log |Q| and its derivatives (p,), by a factor and its inverse.

        Args:
            values: The parameters (p,).
        """
        factor = self.factor_at(values)
        return factor.log_determinant, self.pull_back(values, factor.inverse)


def read_lengthscale(
    values: Floats,  # (1,)
) -> float:
    """Return the lengthscale in the parameters of a field that has no others.

    Args:
        values: The lengthscale (1,).

    Raises:
        InvalidArgumentError: If it is not one positive number.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.fields import read_lengthscale
        >>> read_lengthscale(np.array([2.0]))
        2.0
    """
    given = as_numbers(values)
    if given.shape != (1,) or not 0 < given[0] < np.inf:
        raise InvalidArgumentError(f"The lengthscale must be one positive number, (1,), got {short_repr(values)}.")
    return float(given[0])


def read_indices(name: str, given: ArrayLike, count: int) -> NDArray[np.int64]:
    """Return integers (n,) from 0 to count - 1.

    Args:
        name: The name of the argument, for the message.
        given: The integers.
        count: Their bound.

    Raises:
        InvalidArgumentError: If they are not such integers.

    Examples:
        >>> from graphs.precisions.fields import read_indices
        >>> read_indices("vertices", [2, 0], 3).tolist()
        [2, 0]
    """
    try:
        numbers = np.asarray(given)
    except ValueError:  # ragged
        numbers = np.array([np.nan])
    if numbers.size == 0:
        return np.zeros(0, dtype=np.int64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or ((numbers < 0) | (numbers >= count)).any():
        raise InvalidArgumentError(f"{name} must be integers (n,) from 0 to {count - 1}, got {short_repr(given)}.")
    return numbers.astype(np.int64)


# --- Interpolation of log |L + x| in x, which replaces a factor and its inverse for each x ---------------------------
#
# With t = log x the function is the sum of log(lambda + e^t) over eigenvalues lambda >= 0, analytic for |Im t| < pi. On
# a panel of half-width h its Chebyshev interpolant on n points therefore converges like rho^-n, rho = pi / h + sqrt(1 +
# (pi / h)^2). With the panels of `WIDTH` and the points of `POINTS` the error is about 1e-12 N, and about 1e-10 N for
# its derivative x tr (L + x)^-1. Panels are computed on demand.


WIDTH = math.log(100.0)
"""The width of a panel in log x, a factor of ten in a lengthscale."""
POINTS = 24
"""The number of points of a panel."""


class LogDeterminant:
    """The interpolant of log |L + x|.

    Args:
        exact: A function that returns log |L + x| at a positive x.

    Examples:
        >>> import math
        >>> from graphs.precisions.fields import LogDeterminant
        >>> value, slope = LogDeterminant(lambda x: math.log(2 + x))(3.0)
        >>> round(value, 8) == round(math.log(5), 8), round(slope, 8)
        (True, 0.2)
    """

    def __init__(self, exact: Callable[[float], float]) -> None:
        self._exact = exact
        self._panels: dict[int, Chebyshev] = {}

    def __call__(self, x: float) -> tuple[float, float]:
        """Return log |L + x| and its derivative tr (L + x)^-1.

        Args:
            x: A positive number.
        """
        log_x = math.log(x)
        number = math.floor(log_x / WIDTH)
        if number not in self._panels:
            self._panels[number] = self._computed(number)
        panel = self._panels[number]
        return float(panel(log_x)), float(panel.deriv()(log_x)) / x

    def _computed(self, number: int) -> Chebyshev:
        domain = [number * WIDTH, (number + 1) * WIDTH]

        def at(log_x: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.array([self._exact(math.exp(value)) for value in log_x])

        return Chebyshev.interpolate(at, POINTS - 1, domain)


# --- Powers of sparse symmetric matrices on the pattern of the highest one -------------------------------------------


def reached_within(
    matrix: sp.csr_array,  # (N, N)
    steps: int,
    nodes: str,
    remedy: str,
) -> SymmetricPattern:
    """Return the pattern of pairs that are connected by at most so many steps, with read-only arrays.

    Args:
        matrix: A matrix (N, N) whose pattern, which is symmetric, has the pairs that are one step apart.
        steps: The largest number of steps, a positive integer.
        nodes: The number of nodes as text, for messages.
        remedy: A sentence that ends the message.

    Raises:
        MemoryBudgetError: If the pattern does not fit into memory.

    Examples:
        >>> import scipy.sparse as sp
        >>> from graphs.precisions.fields import reached_within
        >>> chain = sp.csr_array(sp.diags_array([1.0, 2.0, 1.0], offsets=[-1, 0, 1], shape=(4, 4)))
        >>> reached_within(chain, 2, "4 nodes", "").indptr.tolist()
        [0, 3, 7, 11, 14]
    """
    once = sp.csr_array((np.ones(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape)
    hop = sp.csr_array(once + sp.eye_array(matrix.shape[0]))
    reached = hop
    for _ in range(steps - 1):
        size = 12.0 * float(np.diff(hop.indptr)[reached.indices].sum())
        check_fits(f"The precision of {nodes}", size, remedy)
        reached = sp.csr_array(reached @ hop)
    reached.sort_indices()
    pattern = SymmetricPattern(reached.indptr.astype(np.int64), reached.indices.astype(np.int32))
    for array in pattern:
        array.flags.writeable = False
    return pattern


def symmetric_powers(
    first: sp.csr_array,  # (N, N)
    step: sp.csr_array,  # (N, N)
    count: int,
) -> Iterator[sp.csr_array]:
    """Yield the first matrix and its products with powers of the step, all exactly symmetric with sorted entries.

    Args:
        first: A symmetric matrix (N, N).
        step: A matrix (N, N), such that the products are symmetric up to rounding.
        count: The number of products after the first matrix.

    Examples:
        >>> import scipy.sparse as sp
        >>> from graphs.precisions.fields import symmetric_powers
        >>> identity, double = sp.csr_array(sp.eye_array(2)), sp.csr_array(2 * sp.eye_array(2))
        >>> [power.diagonal().tolist() for power in symmetric_powers(identity, double, 2)]
        [[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]]
    """
    power = first
    for number in range(count + 1):
        if number:
            power = sp.csr_array(power @ step)
            power = sp.csr_array((power + power.T) / 2)
        power.sort_indices()
        yield power


def entry_indices(
    matrix: sp.csr_array,  # (N, N)
    pattern: SymmetricPattern,
) -> NDArray[np.int64]:  # (m,)
    """Return the indices of the entries of a matrix on a pattern that contains its own.

    Args:
        matrix: The matrix (N, N), with m sorted entries.
        pattern: The pattern.

    Examples:
        >>> import scipy.sparse as sp
        >>> from graphs.precisions.fields import entry_indices, reached_within
        >>> chain = sp.csr_array(sp.diags_array([1.0, 2.0, 1.0], offsets=[-1, 0, 1], shape=(2, 2)))
        >>> entry_indices(sp.csr_array(sp.eye_array(2)), reached_within(chain, 1, "2 nodes", "")).tolist()
        [0, 3]
    """
    starts = np.arange(matrix.shape[0], dtype=np.int64) * matrix.shape[0]
    all_keys = np.repeat(starts, np.diff(pattern.indptr)) + pattern.indices
    keys = np.repeat(starts, np.diff(matrix.indptr)) + matrix.indices
    return np.asarray(np.searchsorted(all_keys, keys))


# --- Powers of a resolvent, for kernels on graphs and Whittle-Matern fields of finite elements -----------------------
#
# Forming the power loses digits if x is small: with C = I the constant vector has the eigenvalue x^p among entries of
# size 1. Its relative error, and that of results that depend on it, is about eps (1 + 2 / x)^p. The determinant keeps
# its digits, since it needs factors of x C + G alone,
#
#     log |Q| = p log |x C + G| - (p - 1) sum_i log C_ii + N (e log x - log s).


class ResolventField(MarkovField):
    """The field with precision x^e C (x + C^-1 G)^p / s, with shift x.

    It is x^e sum_j binom(p, j) x^(p - j) G_j / s, with G_0 = C and G_j = G (C^-1 G)^(j - 1). On a graph, G is the
    Laplacian L, C = I, e = 0 and s = 1.

    Args:
        matrix: G, symmetric and positive semidefinite, (N, N).
        order: The power p, a positive integer.
        coordinates: Coordinates (N, 2) or (N, 3) of the values for orderings, or None.
        masses: The diagonal (N,) of C. If None, ones.
        exponent: The exponent e.
        norm: The divisor s.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> from graphs.precisions import resolvent_field
        >>> field = resolvent_field(graphs.Graph.from_grid((3, 3)), order=2)
        >>> field.parameters, field.entries(np.array([0.5])).shape
        (('shift',), (61,))
    """

    parameters = ("shift",)
    subject, remedy = "nodes", "Hubs make it dense: use walks or a series."
    """The values and a sentence, for messages."""

    def __init__(
        self,
        matrix: sp.csr_array,
        order: int,
        coordinates: Floats | None = None,
        *,
        masses: Floats | None = None,
        exponent: int = 0,
        norm: float = 1.0,
    ) -> None:
        self.order, self.coordinates, self._matrix = order, coordinates, matrix
        self._masses = np.ones(matrix.shape[0]) if masses is None else masses
        self._exponent, self._norm = exponent, norm

    @cached_property
    def pattern(self) -> SymmetricPattern:
        """Pairs of values within p steps."""
        return reached_within(self._matrix, self.order, f"{len(self._masses):,} {self.subject}", self.remedy)

    @np.errstate(under="ignore")
    def entries(
        self,
        values: Floats,  # (1,)
    ) -> Floats:  # (nnz,)
        """Return the entries of Q on the pattern.

        Args:
            values: The parameter (1,).
        """
        return np.asarray(self._coefficients(self._shift(values)[0]) @ self.powers)

    @np.errstate(under="ignore")
    def pull_back(
        self,
        values: Floats,  # (1,)
        weights: Floats,  # (nnz,)
    ) -> Floats:  # (1,)
        """Return sum_e weights_e dQ_e / d parameter.

        Args:
            values: The parameter (1,).
            weights: The derivative (nnz,) of a scalar in each entry of Q.
        """
        x, slope = self._shift(values)
        return np.array([slope / x * (self._exponents * self._coefficients(x)) @ (self.powers @ weights)])

    def log_determinant(
        self,
        values: Floats,  # (1,)
    ) -> tuple[float, Floats]:
        """Return log |Q| and its derivative (1,), to about 1e-12 N.

        Args:
            values: The parameter (1,).
        """
        (x, slope), size = self._shift(values), len(self._masses)
        value, in_x = self.log_determinants(x)
        total = self.order * value - (self.order - 1) * float(np.log(self._masses).sum())
        total += size * (self._exponent * math.log(x) - math.log(self._norm))
        return total, np.array([slope * (self.order * in_x + size * self._exponent / x)])

    @cached_property
    def log_determinants(self) -> LogDeterminant:
        """A function of x that returns log |x C + G| and its derivative."""
        return LogDeterminant(self._log_determinant_at)

    @cached_property
    def powers(self) -> NDArray[np.float64]:
        """The entries of G_0, ..., G_p on the pattern, (p + 1, nnz)."""
        first = sp.csr_array(sp.diags_array(self._masses))
        step = sp.csr_array(sp.diags_array(1 / self._masses) @ self._matrix)
        out = np.zeros((self.order + 1, len(self.pattern.indices)))
        for row, power in zip(out, symmetric_powers(first, step, self.order), strict=True):
            row[entry_indices(power, self.pattern)] = power.data
        return out

    @cached_property
    def root(self) -> "ResolventField":
        """The field with precision x C + G, for determinants."""
        is_root = self.order == 1 and self._exponent == 0 and self._norm == 1
        return self if is_root else ResolventField(self._matrix, 1, self.coordinates, masses=self._masses)

    @property
    def _exponents(self) -> Floats:
        """The exponents of x of the terms, (p + 1,)."""
        return self.order + self._exponent - np.arange(self.order + 1.0)

    def _coefficients(self, x: float) -> Floats:
        """Return the coefficients (p + 1,) of G_0, ..., G_p."""
        binomials = [math.comb(self.order, j) for j in range(self.order + 1)]
        return np.asarray(binomials * x**self._exponents) / self._norm

    def _shift(self, values: Floats) -> tuple[float, float]:
        """Return x and its derivative in the parameter, which is x itself."""
        return float(values[0]), 1.0

    def _log_determinant_at(self, x: float) -> float:
        root = self.root
        return Factor.of(root.analysis, root._coefficients(x) @ root.powers).log_determinant


# --- Independent values of variance 1, such as the effects of the levels of a group ----------------------------------


@dataclass(frozen=True, eq=False)
class IndependentField(MarkovField):
    """A vector u ~ N(0, I) without parameters.

    Attributes:
        size: The number N of values.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions import IndependentField
        >>> IndependentField(3).entries(np.zeros(0)).tolist()
        [1.0, 1.0, 1.0]
    """

    size: int
    parameters = ()

    @cached_property
    def pattern(self) -> SymmetricPattern:
        """The diagonal."""
        return SymmetricPattern(np.arange(self.size + 1, dtype=np.int64), np.arange(self.size, dtype=np.int32))

    def entries(
        self,
        values: Floats,  # (0,)
    ) -> Floats:  # (N,)
        """Return ones."""
        return np.ones(self.size)

    def pull_back(
        self,
        values: Floats,  # (0,)
        weights: Floats,  # (N,)
    ) -> Floats:  # (0,)
        """Return no derivatives, since there are no parameters."""
        return np.zeros(0)

    def log_determinant(
        self,
        values: Floats,  # (0,)
    ) -> tuple[float, Floats]:
        """Return 0 and no derivatives."""
        return 0.0, np.zeros(0)


# --- Products of two fields, for example of space and time, or independent copies of a field --------------------------


@dataclass(frozen=True, eq=False)
class KroneckerField(MarkovField):
    """A field on pairs of values of two fields, with covariance K_1 x K_2.

    The values of the second field vary fastest. The product of an `IndependentField` and a field has independent copies
    of it.

    Attributes:
        first: A field of N_1 values, with the first parameters.
        second: A field of N_2 values, with the other parameters.
        parameters: The parameters of both.
        coordinates: Those of the second field for each value of the first, if the values of the first are independent.
            Otherwise None.

    Examples:
        >>> from graphs.precisions import ChainField, KroneckerField
        >>> field = KroneckerField(ChainField([0.0, 1.0]), ChainField([0.0, 2.0, 3.0]))
        >>> field.parameters, len(field.pattern.indptr) - 1
        (('lengthscale', 'lengthscale'), 6)
    """

    first: MarkovField
    second: MarkovField

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", (*self.first.parameters, *self.second.parameters))
        coordinates = self.second.coordinates
        if coordinates is not None and self._has_copies:
            object.__setattr__(self, "coordinates", np.tile(coordinates, (self.sizes[0], 1)))

    @property
    def sizes(self) -> tuple[int, int]:
        """The sizes (N_1, N_2)."""
        return len(self.first.pattern.indptr) - 1, len(self.second.pattern.indptr) - 1

    @cached_property
    def pattern(self) -> SymmetricPattern:
        """Pairs of values that have an entry in both fields."""
        first, second = self.first.pattern, self.second.pattern
        if self._has_copies:
            (copies, size), count = self.sizes, len(second.indices)
            copy = np.arange(copies, dtype=np.int32)[:, None]
            starts = np.append(second.indptr[:-1] + copy * np.int64(count), copies * count)
            return SymmetricPattern(starts, (second.indices + copy * np.int32(size)).reshape(-1))
        counts = np.diff(first.indptr)[:, None] * np.diff(second.indptr)
        i, j = self._pairs
        return SymmetricPattern(
            pointers(counts.reshape(-1)), (first.indices[i] * self.sizes[1] + second.indices[j]).astype(np.int32)
        )

    def entries(
        self,
        values: Floats,  # (p,)
    ) -> Floats:  # (nnz,)
        """Return the products of the entries of both fields.

        Args:
            values: The parameters (p,) of the first field, then of the second.
        """
        left, right = self._split(values)
        first, second = self.first.entries(left), self.second.entries(right)
        if self._has_copies:
            return np.outer(first, second).reshape(-1)
        i, j = self._pairs
        return np.asarray(first[i] * second[j])

    def pull_back(
        self,
        values: Floats,  # (p,)
        weights: Floats,  # (nnz,)
    ) -> Floats:  # (p,)
        """Return sum_e weights_e dQ_e / d parameters.

        Args:
            values: The parameters (p,) of the first field, then of the second.
            weights: The derivative (nnz,) of a scalar in each entry of Q.
        """
        left, right = self._split(values)
        first, second = self.first.entries(left), self.second.entries(right)
        if self._has_copies:
            blocks = weights.reshape(len(first), -1)
            return np.concatenate(
                [self.first.pull_back(left, blocks @ second), self.second.pull_back(right, first @ blocks)]
            )
        i, j = self._pairs
        in_first: Floats = np.bincount(i, weights * second[j], len(first)).astype(np.float64)
        in_second: Floats = np.bincount(j, weights * first[i], len(second)).astype(np.float64)
        return np.concatenate([self.first.pull_back(left, in_first), self.second.pull_back(right, in_second)])

    def log_determinant(
        self,
        values: Floats,  # (p,)
    ) -> tuple[float, Floats]:
        """Return log |Q| = N_2 log |Q_1| + N_1 log |Q_2| and its derivatives (p,).

        Args:
            values: The parameters (p,) of the first field, then of the second.
        """
        (left, right), (rows, columns) = self._split(values), self.sizes
        (first, in_first), (second, in_second) = self.first.log_determinant(left), self.second.log_determinant(right)
        return columns * first + rows * second, np.concatenate([columns * in_first, rows * in_second])

    @property
    def _has_copies(self) -> bool:
        """Whether the values of the first field are independent, so that entries are blocks of the second."""
        return len(self.first.pattern.indices) == self.sizes[0]

    def _split(self, values: Floats) -> tuple[Floats, Floats]:
        """Return the parameters of each field."""
        count = len(self.first.parameters)
        return values[:count], values[count:]

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The indices (nnz,) of the entry of each field in each product.

        The row (i, j) has, for each entry of row i of the first field, all entries of row j of the second.
        """
        (starts, indices), (others, inner) = self.first.pattern, self.second.pattern
        check_fits(
            f"The precision of {len(starts) - 1:,} x {len(others) - 1:,} latent values",
            60.0 * len(indices) * len(inner),
            "Use fewer distinct values of the column, or fewer positions.",
        )
        width, degree = np.diff(others), np.diff(starts)
        outer = np.repeat(np.arange(len(degree)), len(width))  # i of each row (i, j)
        row = np.tile(np.arange(len(width)), len(degree))  # j
        counts = degree[outer] * width[row]
        offset, row_width = ranks(counts), np.repeat(width[row], counts)
        i = np.repeat(starts[:-1][outer], counts) + offset // row_width
        j = np.repeat(others[:-1][row], counts) + offset % row_width
        return i.astype(np.int32), j.astype(np.int32)


# --- A sparse precision matrix, and properties of its Gaussian vector ------------------------------------------------


_COLUMNS = 64
"""The number of columns that are solved at once."""


@dataclass(frozen=True, eq=False)
class Precision:
    """The sparse inverse Q of the covariance matrix of a Gaussian vector of mean 0.

    Rows are positions 0..N-1. All results use one sparse Cholesky factor, which is computed on demand and cached.

    Attributes:
        matrix: Q, `csr_array` (N, N).
        analysis: The analysis of its pattern.

    Raises:
        NotPositiveDefiniteError: From methods that need the factor, if Q is not positive definite.
        MemoryBudgetError: From methods that need the factor, if it does not fit into memory.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> g, kernel = graphs.Graph.from_grid((9, 9)), graphs.kernels.Matern(nu=2)
        >>> precision = kernel.precision(g)
        >>> np.allclose(precision.variances, np.diag(kernel.exact(g)))
        True
        >>> precision.sample(3, seed=0).shape
        (3, 81)
        >>> (
        ...     round(precision.log_determinant),
        ...     precision.solve(np.ones(81)).shape,
        ...     precision.covariance(np.arange(3)).shape,
        ... )
        (260, (81,), (3, 3))
    """

    matrix: sp.csr_array
    analysis: Analysis

    @cached_property
    def factor(self) -> Factor:
        """The Cholesky factor of Q."""
        return Factor.of(self.analysis, self.matrix.data)

    @property
    def log_determinant(self) -> float:
        """The log determinant of Q."""
        return self.factor.log_determinant

    @property
    def variances(self) -> Floats:
        """The diagonal of Q^-1, (N,)."""
        return self.factor.variances

    def solve(
        self,
        b: Floats,  # (N,) or (N, k)
    ) -> Floats:
        """Return Q^-1 b, the covariance matrix times b, of the shape of b.

        Args:
            b: The right-hand sides (N,) or (N, k).

        Raises:
            InvalidArgumentError: If b does not have N rows.
        """
        b = np.asarray(b, dtype=np.float64)
        if b.ndim not in (1, 2) or len(b) != self.analysis.size:
            raise InvalidArgumentError(f"b must have shape ({self.analysis.size},) or (N, k), got {b.shape}.")
        return self.factor.solve(b)

    def covariance(
        self,
        positions: NDArray[np.integer[Any]],  # (n,)
    ) -> Floats:  # (n, n)
        """Return the covariance matrix of the values at n positions.

        Args:
            positions: Positions (n,) of latent values, integers from 0.

        Raises:
            InvalidArgumentError: If a position is outside 0..N-1.
            MemoryBudgetError: If the matrix does not fit into memory.
        """
        size = self.analysis.size
        indices = read_indices("positions", positions, size)
        check_fits(f"The covariance of {len(indices):,} positions", 8.0 * len(indices) ** 2, "Ask for variances.")
        out = np.empty((len(indices), len(indices)))
        for start in range(0, len(indices), _COLUMNS):
            block = indices[start : start + _COLUMNS]
            columns = np.zeros((size, len(block)))
            columns[block, np.arange(len(block))] = 1.0
            out[:, start : start + _COLUMNS] = self.factor.solve(columns)[indices]
        return (out + out.T) / 2

    def sample(
        self,
        count: int = 1,
        *,
        seed: int | None = None,
    ) -> Floats:  # (count, N)
        """Draw vectors from the distribution N(0, Q^-1).

        Args:
            count: The number of vectors.
            seed: An integer. If None, one from the system.

        Returns:
            Vectors (count, N), one per row.

        Raises:
            InvalidArgumentError: If the count or the seed is invalid.
        """
        generator = np.random.default_rng(resolve_seed(seed))
        standard = generator.standard_normal((self.analysis.size, check_count("count", count)))
        return self.factor.sample(standard).T
