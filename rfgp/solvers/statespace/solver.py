"""The solver of sums of Markov processes of one column, with a border of dense weights: filter, smoother and posterior.

y = mean + f(t) + Phi w + e with e of variance D and w ~ N(0, I). f = h^T z is the sum of terms, each of which reads a
few numbers of a state z of d numbers, a Markov process in t. Over a step, z <- A z + e with e ~ N(0, Q), where A and Q
are block diagonal. Let C be the covariance of f + e at the rows. For all columns X = [y - mean, Phi] at once, the
filter is

    m <- A m,  P <- A P A^T + Q,    s = h^T P h + D,  v = x - h^T m,  k = P h / s,    m <- m + k v^T,  P <- P - k k^T s,

so that log|C| = sum log s and X^T C^-1 X = sum v v^T / s. In the backward pass

    (C^-1 X)_i = v / s - k^T r,        (C^-1)_ii = 1 / s + k^T N k,
    r <- r + h (C^-1 X)_i,             N <- (I - k h^T)^T N (I - k h^T) + h h^T / s,

and in a step r <- A^T r, N <- A^T N A. Given all rows, a state has the mean m + P r and the covariance P - P N P. See
de Jong (1989), Smoothing and interpolation with the state-space model, and Durbin and Koopman (2012), Time series
analysis by state space methods, Section 4.4.

The border. With B = I + Phi^T C^-1 Phi = L L^T and S = C + Phi Phi^T, as in `rfgp.solvers.bordered`,

    w = B^-1 Phi^T C^-1 (y - mean),   a = S^-1 (y - mean) = C^-1 (y - mean - Phi w),   S^-1 = C^-1 - U U^T,
    U = C^-1 Phi L^-T,   log|S| = log|C| + log|B|.

The derivatives. For K outputs with weights c_o, the log marginal likelihood has the derivative G = (sum_o c_o a a^T -
K S^-1) / 2 in S. By the columns Z = [y - mean - Phi w, Phi L^-T], whose C^-1 Z are [a, U], and the weights g = [c, K]

    M = sum_q g_q r_q r_q^T - K N after a step,    in Q: M / 2,    in A: M A P + sum_q g_q r_q m_q^T,

with m and P before the step (Koopman and Shephard 1992, Exact score for time series models in state space form). Those
of all steps of one length are summed. Derivatives in hyperparameters follow from those in A and Q by automatic
differentiation of these small matrices. At the rows,

    in D_i  (sum_o c_o a_io^2 - K (S^-1)_ii) / 2,    in Phi  sum_o c_o a_o w_o^T - K U L^-1,    in y  -c_o a_o.

Points between rows are further steps without a row. For points in ascending order, the covariance of f_i and f_j, i <
j, is h^T P_i T^T (I - N_j P_j) h, where T is the product of all A and I - k h^T between them, plus that through w.

Numerics: P keeps about 16 + log10(D / P) digits.
"""

import math
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from rfgp.approximations.exact import MAX_FEATURES
from rfgp.autograd import Array, Gradients, Needs, as_array, with_gradient
from rfgp.blocks import PrecisionBlock, Prior
from rfgp.chains import StateModel, matern
from rfgp.errors import InvalidArgumentError, NotDifferentiableError
from rfgp.linalg import cholesky
from rfgp.rows import Block
from rfgp.solvers.bordered import all_weights
from rfgp.solvers.role import (
    Functions,
    Joint,
    OnDemand,
    Shape,
    Solver,
    TermwisePosterior,
    check_joint,
    known_terms,
    log_density,
)
from rfgp.torch_context import Recent

# --- Terms as Markov processes ----------------------------------------------------------------------------------------


def _model_of(block: PrecisionBlock) -> StateModel:
    """Return the Matern process of a block of one column."""
    assert block.column is not None
    return matern(block.column.order, block.values.double().reshape(())).scaled(block.variance.double())


class Chain(NamedTuple):
    """The terms of a prior as one Markov process."""

    models: Sequence[StateModel]
    names: Sequence[str]  # of the terms

    @classmethod
    def of(cls, prior: Prior) -> "Chain":
        """Return the process of a prior that satisfies `supports`."""
        models = [*map(_model_of, prior.precisions), *(block.process for block in prior.chains)]
        return cls(models, [block.name for block in (*prior.precisions, *prior.chains)])

    @property
    def starts(self) -> NDArray[np.int64]:
        """The first number of each block of the state, and d."""
        return np.cumsum([0, *(size for model in self.models for size in model.sizes)])

    def reading(self, names: Sequence[str] | None = None) -> Array:
        """Return h (d,), with zeros for terms that are not named.

        Args:
            names: The names of terms. If None, all.
        """
        pairs = zip(self.models, self.names, strict=True)
        readings = [(names is None or name in names, reading) for model, name in pairs for reading in model.readings]
        return np.concatenate([np.multiply(is_read, reading) for is_read, reading in readings])

    def moves(self, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return A and Q of steps, (u, e) each, with gradients."""
        moves, noises = zip(*(model.steps(lengths) for model in self.models), strict=True)
        return _entries(moves), _entries(noises)

    def first(self, times: Tensor) -> Tensor:
        """Return the covariances of states without earlier rows, (m, e), with gradients."""
        return _entries([model.first(times) for model in self.models])

    def dense_moves(self, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return A and Q of steps, (u, d, d) each, with gradients."""
        moves, noises = zip(*(model.steps(lengths) for model in self.models), strict=True)
        return _dense(moves), _dense(noises)

    def dense_first(self, times: Tensor) -> Tensor:
        """Return the covariances of states without earlier rows, (m, d, d), with gradients."""
        return _dense([model.first(times) for model in self.models])


def _entries(blocks: Sequence[Sequence[Tensor]]) -> Tensor:
    """Return the entries of all blocks of all terms, (u, e)."""
    return torch.cat([block.flatten(1) for own in blocks for block in own], dim=1)


def _dense(blocks: Sequence[Sequence[Tensor]]) -> Tensor:
    """Return the block-diagonal matrices of all blocks of all terms, (u, d, d)."""
    parts, end = [block for own in blocks for block in own], 0
    size = sum(part.shape[1] for part in parts)
    out = torch.zeros(len(parts[0]), size, size, dtype=torch.float64)
    for part in parts:
        begin, end = end, end + part.shape[1]
        out[:, begin:end, begin:end] = part
    return out


def supports(prior: Prior) -> bool:
    """Return whether a prior is a sum of Markov processes of one column, and of few dense weights.

    Args:
        prior: The prior.
    """
    others = prior.kernels or prior.graph_features or prior.neighbors is not None
    if others or any(block.column is None for block in prior.precisions) or prior.num_features > MAX_FEATURES:
        return False
    return len(set(_positions(prior))) == 1


def _positions(prior: Prior) -> list[int]:
    """Return the index of the column of each process."""
    columns = [block.column.position for block in prior.precisions if block.column is not None]
    return [*columns, *(block.position for block in prior.chains)]


# --- Rows in ascending order ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Ascending:
    """Values in ascending order.

    Attributes:
        values: The values, (n,).
        order: The original positions of the values, (n,). If None, the given values were in ascending order.
    """

    values: Array
    order: NDArray[np.int64] | None

    @classmethod
    def of(cls, values: Array) -> "Ascending":
        """Return values in ascending order.

        Args:
            values: The values, (n,).
        """
        if (values[1:] >= values[:-1]).all():
            return cls(np.ascontiguousarray(values), None)
        order = np.argsort(values, kind="stable")
        return cls(values[order], order)

    def sorted(self, numbers: Array) -> Array:
        """Return numbers (n,) in the ascending order of the values.

        Args:
            numbers: Numbers in the original order of the values, (n,).
        """
        return np.ascontiguousarray(numbers) if self.order is None else numbers[self.order]

    def restored(self, numbers: Array) -> Array:
        """Return numbers in the original order of the values, (n, ...).

        Args:
            numbers: Numbers in the ascending order of the values, (n, ...).
        """
        if self.order is None:
            return numbers
        out = np.empty_like(numbers)
        out[self.order] = numbers
        return out


_CACHE: MutableMapping[Tensor, Recent[Ascending]] = WeakTensorKeyDictionary()
"""The index and the ascending values of the last column of each tensor of inputs."""


def ascending(inputs: Tensor, column: int) -> Ascending:
    """Return a column of rows in ascending order.

    The result is cached for the lifetime of the tensor of inputs.

    Args:
        inputs: The inputs of the rows, (n, d).
        column: The index of the column.
    """
    return _CACHE.setdefault(inputs, Recent(1)).find(column, lambda: Ascending.of(as_array(inputs[:, column])))


# --- Rows under a chain -----------------------------------------------------------------------------------------------


def _loops() -> Any:
    """Return the module of compiled loops, which is loaded on first use."""
    from rfgp.solvers.statespace import loops

    return loops


class Steps(NamedTuple):
    """The steps between ascending rows: distinct lengths (u,), and the number of each row's step, -1 without one."""

    lengths: Array
    numbers: NDArray[np.int64]


_ROUNDING = 8 * np.finfo(np.float64).eps
"""The largest difference of two steps that count as one, in units of the largest time."""
_MAX_ROUNDED = 1e-7
"""The largest such difference, in units of the shortest step. With more, steps are what they are."""


def steps_of(times: Array) -> Steps:
    """Return the steps between ascending rows. Lengths on a grid that differ by rounding are one.

    Args:
        times: The rows, ascending, (n,).
    """
    if len(times) < 2:
        return Steps(np.empty(0), np.full(len(times), -1, np.int64))
    unit = _ROUNDING * float(np.abs(times).max())
    lengths, numbers = np.unique(np.diff(times), return_inverse=True)
    breaks = np.diff(lengths) > unit
    first, last = lengths[np.append(True, breaks)], lengths[np.append(breaks, True)]
    if unit <= _MAX_ROUNDED * first[first > unit].min(initial=math.inf) and (last - first <= 2 * unit).all():
        groups = np.append(0, np.cumsum(breaks))
        lengths, numbers = np.bincount(groups, lengths) / np.bincount(groups), groups[numbers]
    if lengths[0] <= 0:  # rows at one time
        lengths, numbers = lengths[1:], numbers - 1
    return Steps(lengths, np.concatenate([[-1], numbers]).astype(np.int64))


@dataclass(frozen=True, eq=False)
class ChainData:
    """The arrays of a chain given rows, without gradients.

    Attributes:
        chain: The process.
        times: The rows, ascending, (n,).
        steps: The steps between them.
        matrices: A (u, e) and Q (u, e) of the steps, and the covariance (e,) of the first state.
        columns: The columns X (n, c) of the filter.
        noise: The noise D, (1,) or (n,).
    """

    chain: Chain
    times: Array
    steps: Steps
    matrices: tuple[Array, Array, Array]
    columns: Array
    noise: Array

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The arguments of the compiled loops: block starts, h, step numbers, A, Q and the first covariance."""
        return self.chain.starts, self.chain.reading(), self.steps.numbers, *self.matrices

    @cached_property
    def filtered(self) -> tuple[Array, Array, float]:
        """The states before blocks of rows, X^T C^-1 X (c, c), and log|C|."""
        loops, (n, c), d = _loops(), self.columns.shape, len(self.chain.reading())
        states, products = np.empty((-(-n // loops.BLOCK_ROWS), d * c + d * d)), np.zeros((c, c))
        determinant = loops.filter_rows(self.arrays, self.columns, self.noise, states, products)
        return states, products, determinant

    def smoothed(self, columns: Array, states: Array, weights: Array) -> "Smoothed":
        """Return the result of the backward pass for other columns, linear combinations of X.

        Args:
            columns: The columns Z, (n, c).
            states: Their states before blocks of rows.
            weights: The weights g of the columns, and K, (c + 1,).
        """
        coefficients, precisions = np.empty(columns.shape), np.empty(len(columns))
        adjoints = np.empty((len(states) + 1, states.shape[1]))
        moves, noises, first = self.matrices
        slopes = np.zeros_like(moves), np.zeros_like(noises), np.zeros_like(first)
        rows = self.arrays, columns, self.noise, weights, states
        _loops().smooth_rows(*rows, adjoints, coefficients, precisions, slopes)
        return Smoothed(coefficients, precisions, slopes, adjoints)


class Smoothed(NamedTuple):
    """The result of the backward pass over the rows."""

    coefficients: Array  # C^-1 Z, (n, c)
    precisions: Array  # the diagonal of C^-1, (n,)
    slopes: tuple[Array, Array, Array]  # the derivatives of the log marginal likelihood in A, Q, the first covariance
    adjoints: Array  # r and N before the first row of each block of rows, and zeros


# --- The solver -------------------------------------------------------------------------------------------------------


class StateSpaceSolver(Solver):
    """Rows under a sum of Markov processes of one column, and dense weights, exactly and in linear time.

    The formulas are in `rfgp.solvers.statespace.solver`.

    Args:
        prior: The prior (`supports`), with gradients.
        rows: The data.
        mean: The prior mean, (k,), float64.
        noise: The variance of one observation, 0-d, float64.
    """

    def __init__(self, prior: Prior, rows: Block, mean: Tensor, noise: Tensor) -> None:
        self._prior = prior
        self._border: Tensor = all_weights(prior, rows.inputs).scaled(rows.inputs).double()
        super().__init__(rows, mean, noise, features=(prior.dense, self._border))
        self._row_noise = self._rows.noise_diag(noise).reshape(-1)  # of all rows, or of each

    def with_data(self, rows: Block, mean: Tensor, noise: Tensor) -> Self:
        """Return the solver for other targets and noise of the same inputs."""
        return type(self)(self._prior, rows, mean, noise)

    @cached_property
    def _matrices(self) -> tuple[Tensor, Tensor, Tensor]:
        """A, Q and the first covariance, with gradients."""
        chain, times = Chain.of(self._prior), self._ascending.values
        moves, noises = chain.moves(torch.from_numpy(self._steps.lengths))
        return moves, noises, chain.first(torch.from_numpy(times[:1]))[0]

    @cached_property
    def _ascending(self) -> Ascending:
        return ascending(self._rows.inputs, _positions(self._prior)[0])

    @cached_property
    def _steps(self) -> Steps:
        return steps_of(self._ascending.values)

    @cached_property
    def _data(self) -> ChainData:
        columns = torch.cat([self._residual, self._border], dim=1).detach()
        noise = as_array(self._row_noise)
        noise = noise[:1] if (noise == noise[0]).all() else self._ascending.sorted(noise)
        moves, noises, first = map(as_array, self._matrices)
        matrices = np.ascontiguousarray(moves), np.ascontiguousarray(noises), np.ascontiguousarray(first)
        chain, given = Chain.of(self._prior.detached()), self._ascending
        return ChainData(chain, given.values, self._steps, matrices, given.sorted(as_array(columns)), noise)

    @cached_property
    def _system(self) -> tuple[Tensor, Tensor, Tensor]:
        """The factor L (F, F), w (F, k), and the quadratic forms (k,) of the outputs."""
        k, products = self._rows.num_outputs, torch.from_numpy(self._data.filtered[1])
        size = products.shape[0] - k
        factor = cholesky(torch.eye(size).double() + products[k:, k:], "I + Phi^T C^-1 Phi")
        weights = torch.cholesky_solve(products[k:, :k], factor) if size else products[k:, :k]
        return factor, weights, products.diagonal()[:k] - (products[k:, :k] * weights).sum(0)

    @cached_property
    def given(self) -> "GivenRows":
        """The columns Z given the rows."""
        factor, weights, _ = self._system
        return GivenRows.of(self._data, factor, weights)

    @cached_property
    def _smoothed(self) -> "Smoothed":
        (factor, _, _), counts = self._system, self._rows.output_weights
        weights = torch.cat([counts, counts.sum().expand(len(factor) + 1)]).numpy()
        return self._data.smoothed(self.given.columns, self.given.states, weights)

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log marginal likelihood, 0-d."""
        inputs = self._residual, self._row_noise, self._border, *self._matrices
        return with_gradient(self._value, *inputs) + self._other_terms

    def _value(self, needs: Needs) -> tuple[Tensor, Gradients]:
        factor, _, squares = self._system
        determinant = self._data.filtered[2] + 2 * factor.diagonal().log().sum()
        value = log_density(squares, determinant, self._rows.output_weights, len(self._rows))
        return value, self._gradients

    def _gradients(self) -> list[Tensor | None]:
        """Return the derivatives in the residual, the noise, Phi, A, Q and the first covariance."""
        (factor, weights, _), counts = self._system, self._rows.output_weights
        total, solved = counts.sum(), self.solved
        in_noise = 0.5 * (solved.square() @ counts - total * self.precisions)
        in_border = (solved * counts) @ weights.mT
        if len(factor):
            in_border = in_border - total * torch.linalg.solve_triangular(factor.mT, self._reduced.mT, upper=True).mT
        return [
            -solved * counts,
            in_noise.sum().reshape(1) if len(self._row_noise) == 1 else in_noise,
            in_border,
            *map(torch.from_numpy, self._smoothed.slopes),
        ]

    @property
    def solved(self) -> Tensor:
        """The coefficients S^-1 (y - mean), (n, k)."""
        coefficients = self._smoothed.coefficients[:, : self._rows.num_outputs]
        return torch.from_numpy(self._ascending.restored(coefficients))

    @property
    def _reduced(self) -> Tensor:
        """U, (n, F)."""
        return torch.from_numpy(self._ascending.restored(self._smoothed.coefficients[:, self._rows.num_outputs :]))

    @property
    def precisions(self) -> Tensor:
        """The diagonal of S^-1, (n,)."""
        return torch.from_numpy(self._ascending.restored(self._smoothed.precisions)) - self._reduced.square().sum(1)

    @property
    def log_determinant(self) -> Tensor:
        """The log determinant of I + K D^-1, 0-d."""
        return self._data.filtered[2] + 2 * self._system[0].diagonal().log().sum() - self._noise.detach().log().sum()

    @property
    def effective_dof_fraction(self) -> float | None:
        """The effective degrees of freedom of the F weights over F, or None without any."""
        factor = self._system[0]
        return 1 - float(torch.cholesky_inverse(factor).diagonal().mean()) if len(factor) else None

    def posterior(self) -> "StateSpacePosterior":
        """Return the posterior, which keeps the rows and their filtered states."""
        rows = self._rows.inputs, self._noise.detach(), self._residual.detach()
        known = self.given
        if "_smoothed" in vars(self):  # the solver is not kept
            adjoints = self._smoothed.adjoints
            known = replace(known, backward=lambda: adjoints)
        return StateSpacePosterior(self._prior.detached(), *rows, known=known)


class PointStates(NamedTuple):
    """States at m points in ascending order given the rows, for the columns Z, with gradients in the points."""

    indices: NDArray[np.int64]  # the numbers of rows at or before the points, (m,)
    covariance: Tensor  # P given earlier rows, (m, d, d)
    curvature: Tensor  # N given later rows, (m, d, d)
    smoothed: Tensor  # m + P r, (m, d, c)
    distances: tuple[Tensor, Tensor]  # of the rows before and after the points, (m,) each


@dataclass(frozen=True, eq=False)
class GivenRows:
    """The columns Z = [y - mean - Phi w, Phi L^-T] given rows, and the algebra of the border.

    Attributes:
        chain: The process.
        times: The rows, ascending, (n,).
        columns: The columns Z, (n, k + F).
        noise: The noise D, (1,) or (n,).
        states: m and P given the rows before each block of rows.
        backward: Returns r and N before the first row of each block of rows, and zeros.
        factor: L, (F, F).
        weights: w, (F, k).
    """

    chain: Chain
    times: Array
    columns: Array
    noise: Array
    states: Array
    backward: Callable[[], Array]
    factor: Tensor
    weights: Tensor

    @cached_property
    def adjoints(self) -> Array:
        """R and N before the first row of each block of rows, and zeros."""
        adjoints: Array = self.backward()
        return adjoints

    def states_at(self, points: Tensor) -> PointStates:
        """Return the states at points.

        Args:
            points: The points, ascending, (m,), float64.
        """
        times, (d, c) = self.times, (len(self.chain.reading()), self.columns.shape[1])
        indices = np.searchsorted(times, points.detach().numpy(), side="right")
        filtered, adjoint = np.empty((len(points), d * c + d * d)), np.empty((len(points), d * c + d * d))
        size = _loops().BLOCK_ROWS
        blocks = np.unique(np.maximum(indices - 1, 0) // size)
        rows = np.minimum(size * blocks[:, None] + np.arange(size + 1), len(times) - 1)
        chain = self.arrays(times[rows] - times[np.maximum(rows - 1, 0)])
        data = self.columns, self.noise, self.states, self.adjoints
        _loops().states_near(indices, blocks, chain, *data, filtered, adjoint)
        (mean, covariance), (r, curvature) = (
            (torch.from_numpy(part[:, : d * c].reshape(-1, d, c)), torch.from_numpy(part[:, d * c :].reshape(-1, d, d)))
            for part in (filtered, adjoint)
        )
        earlier, later = times[np.maximum(indices - 1, 0)], times[np.minimum(indices, len(times) - 1)]
        distances = (points - torch.from_numpy(earlier)).clamp_min(0), (torch.from_numpy(later) - points).clamp_min(0)
        (before, noise), (after, _) = map(self.chain.dense_moves, distances)
        has_earlier, first = torch.from_numpy(indices > 0), self.chain.dense_first(points)
        covariance = torch.where(has_earlier[:, None, None], before @ covariance @ before.mT + noise, first)
        r, curvature = after.mT @ r, after.mT @ curvature @ after
        return PointStates(indices, covariance, curvature, before @ mean + covariance @ r, distances)

    def arrays(self, distances: Array) -> tuple[Any, ...]:
        """Return the arguments of compiled loops: block starts, h, step numbers (...), and A and Q of the steps (u, e).

        Args:
            distances: The distances of rows from the rows before them, (...).
        """
        lengths, numbers = np.unique(distances, return_inverse=True)
        numbers = numbers.reshape(distances.shape).astype(np.int64)
        moves, noises = (np.ascontiguousarray(as_array(part)) for part in self.chain.moves(torch.from_numpy(lengths)))
        return self.chain.starts, self.chain.reading(), np.where(distances > 0, numbers, -1), moves, noises

    @classmethod
    def of(cls, data: ChainData, factor: Tensor, weights: Tensor) -> "GivenRows":
        """Return the columns Z given rows.

        Args:
            data: The arrays, with the columns [y - mean, Phi].
            factor: L, (F, F).
            weights: w, (F, k).
        """
        size, k = weights.shape
        change = np.eye(k + size)
        if size:
            change[k:, :k] = -weights.numpy()
            change[k:, k:] = torch.linalg.solve_triangular(factor.mT, torch.eye(size).double(), upper=True).numpy()
        d, states = len(data.chain.reading()), data.filtered[0]
        means = states[:, : d * (k + size)].reshape(-1, d, k + size) @ change
        states = np.concatenate([means.reshape(len(states), -1), states[:, d * (k + size) :]], axis=1)
        columns, unused = data.columns @ change, np.zeros(k + size + 1)
        rows = data.chain, data.times, columns, data.noise, states
        return cls(*rows, lambda: data.smoothed(columns, states, unused).adjoints, factor, weights)


# --- The posterior ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Projection:
    """A sum of terms at n points, given the rows.

    Attributes:
        given: The rows.
        order: The positions of the points in ascending order, (n,).
        states: The states at the points in ascending order.
        reading: h of the sum, (d,).
        dense: The features of the weights in the sum, (n, F).
        conditional_variance: The variances (n,) of residuals of features, or their covariance (n, n).
    """

    given: GivenRows
    order: Tensor
    states: PointStates
    reading: Tensor
    dense: Tensor
    conditional_variance: Tensor

    def _restored(self, values: Tensor) -> Tensor:
        """Return values (n, ...) in the order of the points."""
        return values[self.order.argsort()]

    @cached_property
    def _read(self) -> Tensor:
        """h^T (m + P r) of the columns Z, (n, k + F)."""
        return self._restored(torch.einsum("i,nic->nc", self.reading, self.states.smoothed))

    @property
    def mean(self) -> Tensor:
        """The mean (n, k) of the sum."""
        return self._read[:, : self.given.weights.shape[1]] + self.dense @ self.given.weights

    @property
    def half(self) -> Tensor:
        """A root (n, F) of the part of the covariance that is due to the weights."""
        read, factor = self._read[:, self.given.weights.shape[1] :], self.given.factor
        half: Tensor = torch.linalg.solve_triangular(factor, self.dense.mT, upper=False).mT - read
        return half

    @cached_property
    def _ends(self) -> tuple[Tensor, Tensor]:
        """P h and (I - N P) h, (n, d) each, in ascending order."""
        start = self.states.covariance @ self.reading
        return start, self.reading - torch.einsum("nij,nj->ni", self.states.curvature, start)

    @property
    def variances(self) -> Tensor:
        """The variances (n,) of the sum."""
        start, end = self._ends
        own, missing = self._restored((start * end).sum(1)).clamp_min(0), self.conditional_variance
        return own + self.half.square().sum(1) + (missing.diagonal() if missing.ndim == 2 else missing)

    def covariance_with(self, other: "Projection") -> Tensor:
        """Return the covariance (n, n) with another sum at the same points, without residuals of features.

        Args:
            other: The projection of the other sum.
        """
        (start, end), (other_start, other_end) = ((part.numpy() for part in one._ends) for one in (self, other))
        out, reached, other_reached = np.diag((start * other_end).sum(1)), np.zeros_like(start), np.zeros_like(start)
        for j, propagator in enumerate(self._propagators()[1:], 1):  # `reached` is T P_i h of all points i before j
            reached[j - 1], other_reached[j - 1] = start[j - 1], other_start[j - 1]
            reached[:j], other_reached[:j] = reached[:j] @ propagator.T, other_reached[:j] @ propagator.T
            out[:j, j], out[j, :j] = reached[:j] @ other_end[j], other_reached[:j] @ end[j]
        place = self.order.argsort()
        return torch.from_numpy(out)[place][:, place] + self.half @ other.half.mT

    def _propagators(self) -> Array:
        """Return the transition matrices of the filtering error between consecutive points, (n, d, d)."""
        given, states = self.given, self.states
        (before, _), (after, noise) = map(given.chain.moves, states.distances)
        points = torch.from_numpy(given.times[np.maximum(states.indices - 1, 0)]) + states.distances[0]
        points = torch.where(torch.from_numpy(states.indices > 0), points, given.times[0] - states.distances[1])
        across, _ = given.chain.moves(torch.diff(points, append=points[-1:]).clamp_min(0))
        ways = tuple(np.ascontiguousarray(as_array(part)) for part in (before, after, noise, across))
        covariances = np.ascontiguousarray(as_array(states.covariance))
        out, chain = np.zeros_like(covariances), given.arrays(np.diff(given.times, prepend=given.times[:1]))
        _loops().propagate_between(states.indices, chain, ways, given.noise, covariances, out)
        return out


@dataclass(frozen=True, eq=False)
class StateSpacePosterior(TermwisePosterior):
    """The posterior of a sum of Markov processes of one column and of dense weights, stored as the rows.

    Methods have the arguments of those of `Posterior`.

    Attributes:
        prior: The prior of processes and weights.
        inputs: The inputs of the rows, (n, d).
        noise_diag: The noise D, (n,).
        targets: The centered targets y - mean, (n, k).
        known: The columns given the rows, or a function that returns them. If None, they are computed on demand.
    """

    inputs: Tensor
    noise_diag: Tensor
    targets: Tensor
    known: GivenRows | Callable[[], GivenRows] | None = None

    serialized_fields = ("inputs", "noise_diag", "targets")

    @cached_property
    def given(self) -> GivenRows:
        """The columns given the rows."""
        if self.known is not None:
            return self.known() if callable(self.known) else self.known
        prior = replace(self.prior, weights=tuple(replace(block, residual=None) for block in self.prior.weights))
        rows = Block(self.inputs, self.targets, fixed_noise=self.noise_diag)  # with the residuals of features
        zero = torch.zeros(self.targets.shape[1], dtype=torch.float64)
        return StateSpaceSolver(prior, rows, zero, zero[0]).given

    @property
    def width(self) -> int:
        """The number of entries of a point: two states, and features."""
        given = self.given
        return 2 * int(given.states.shape[1]) + len(given.factor)

    def project(self, inputs: Tensor) -> Projection:
        """Return the posterior at n single points (n, d), with its mean and variances."""
        return self._at(inputs)

    def _at(self, inputs: Tensor, *, jointly: bool = False) -> Projection:
        """Return the predicted sum at n points, with conditional variances (n,), or jointly with covariances (n, n)."""
        given, weights = self.given, all_weights(self.prior, self.inputs)
        points = inputs[:, _positions(self.prior)[0]].double()
        order = points.detach().argsort(stable=True)
        dense = weights.scaled(inputs).double()
        dense = dense if self.terms is None else dense * weights.of(self.terms)
        residuals, reading = (
            weights.with_residuals_of(self.terms),
            torch.from_numpy(given.chain.reading(self.terms)),
        )
        missing = (residuals.residual_covariance if jointly else residuals.residual_variance)(inputs, dense)
        return Projection(given, order, given.states_at(points[order]), reading, dense, missing)

    def joints(self, inputs: Tensor, parts: Sequence[Any], projected: Sequence[OnDemand]) -> Sequence[Joint]:
        """Return the joint projections of at most 2,000 points for sums of terms.

        Raises:
            InvalidArgumentError: If there are more points.
            NotDifferentiableError: If the inputs require gradients.
        """
        if torch.is_grad_enabled() and inputs.requires_grad:
            raise NotDifferentiableError(
                "X must not require gradients for covariances and samples of a filter, got X that does. Use "
                "predict(X.detach()), or Exact()."
            )
        check_joint(len(inputs))
        return [Joint(part._at(inputs, jointly=True)) for part in parts]

    def between(self, left: Projection, right: Projection) -> Tensor:
        """Return the covariance (n, n) of two sums, without residuals of features."""
        return left.covariance_with(right)

    def residual_covariance(self, inputs: Tensor, projected: Projection) -> Tensor:
        """Return the covariance (n, n) given the states and weights."""
        return projected.conditional_variance

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Raise an error: the process has no functions to draw.

        Raises:
            InvalidArgumentError: In any case.
        """
        raise InvalidArgumentError(
            "This process has no functions to draw, because it is defined at given positions only. Use "
            "predict(X).sample() instead."
        )

    def shapes(self, n: int, k: int) -> dict[str, Shape]:
        """Return the shapes of noise_diag and targets by name."""
        return {"noise_diag": (n,), "targets": (n, k)}

    def of(self, names: Sequence[str]) -> Self:
        """Return the posterior of the sum of some terms, with the same states.

        Raises:
            InvalidArgumentError: If a term is unknown, or none is named.
        """
        return replace(self, terms=known_terms(self.prior, names), known=self.given)
