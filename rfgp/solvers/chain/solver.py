"""The solver of a Matern process of one column, as a Markov process: states, score and posterior.

Let nu = a - 1/2 and kappa = sqrt(2 nu) / lengthscale. The state z = (f, f' / kappa, ...) has a numbers and is a Markov
process (`graphs.precisions.chains`). For variance 1, A and R of a step, the first unit vector e_0 and the
noise D of a row, the filter is

    m <- A m,  P <- A P A^T + R,    s = P_00 + D,  v = y - m_0,  k = P e_0 / s,    m <- m + k v,  P <- P - k k^T s,

and -2 log N(y) = sum log s + v^2 / s + n log 2 pi. In the backward pass, r is the derivative of the log marginal
likelihood in m, and N is minus its expected second derivative. A state has the posterior mean m + P r and covariance
P - P N P. See de Jong (1989), Smoothing and interpolation with the state-space model, and Durbin and Koopman (2012),
Section 4.4. At a row

    (C^-1 y)_i = v / s - k^T r,        (C^-1)_ii = 1 / s + k^T N k,
    r <- (I - k e_0^T)^T r + e_0 v / s,    N <- (I - k e_0^T)^T N (I - k e_0^T) + e_0 e_0^T / s,

and in a step r <- A^T r, N <- A^T N A. Let M = r r^T - N after a step of x, kappa times the distance. The last column
of A is g. The derivatives in a step are dA / dx = F A and dR / dx = q g g^T. Hence (Koopman and Shephard 1992, Exact
score for time series models in state space form)

    d log N(y) / dx = r^T F m + tr(M F (P - R)) + q g^T M g / 2,    with m and P after the step.

For points in ascending order, the covariance of f_i and f_j, i < j, is e_0^T P_i Phi^T (I - N_j P_j) e_0. Phi is the
product of all A and I - k e_0^T between them.

In a forward pass, the derivatives of m and P in a hyperparameter follow from those of A and R. With the derivatives of
v and s, the score is sum (d log s (v^2 / s - 1) / 2 - v dv / s). An unbiased estimate of the Fisher information is

    sum (d log s d log s / 2 + dv dv / s)

(Harvey 1989, Forecasting, structural time series models and the Kalman filter, Section 3.4.5).

Numerics: A = exp(-x) sum_k x^k T_k. R is the integral of q g g^T, a sum of C_m E_m(2 x) with

    E_m(t) = 1 - exp(-t) sum_(k <= m) t^k / k!.

For small t, E_m is summed from its smallest terms. No entry of R is a difference of larger ones, even for short steps.
P - P N P loses digits only if the variance is small relative to that given earlier rows alone or later rows alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from graphs.precisions.chains import INTENSITY, companion
from rfgp.autograd import Array, Gradients, Needs, as_array, with_gradient
from rfgp.blocks import MaternColumn, Prior
from rfgp.chains import tables
from rfgp.rows import Block
from rfgp.solvers.role import Solver, log_density
from rfgp.solvers.statespace.solver import Chain, GivenRows, StateSpacePosterior, ascending

# --- A Matern process of one column as a Markov process: its states given rows ----------------------------------------


class Smoothed(NamedTuple):
    """The result of the backward pass over the rows, for variance 1."""

    coefficients: Array  # C^-1 y, (n,)
    precisions: Array  # the diagonal of C^-1, (n,)
    slope: float  # the derivative of the log marginal likelihood in log kappa
    adjoints: Array  # r and N at the first rows of blocks, (b + 1, a + a^2)


class Scores(NamedTuple):
    """Sums over the rows of derivatives of innovations.

    The directions are log kappa, q directions of the noise and the mean. The sums are defined in
    `rfgp.solvers.chain.loops`.

    Attributes:
        in_scales: The sums of derivatives through the variances of innovations, (q + 2,).
        in_means: The sums of derivatives through the innovations, (q + 2,).
        of_scales: The sums of products of the former, (q + 2, q + 2).
        of_means: The sums of products of the latter, (q + 2, q + 2).
        log_determinant: The log determinant of C, sum log s.
        squares: The squared norm y^T C^-1 y, sum v^2 / s.
    """

    in_scales: Array  # (q + 2,)
    in_means: Array  # (q + 2,)
    of_scales: Array  # (q + 2, q + 2)
    of_means: Array  # (q + 2, q + 2)
    log_determinant: float
    squares: float


def _loops() -> Any:
    """Return the module of compiled loops, which is loaded on first use."""
    from rfgp.solvers.chain import loops

    return loops


@dataclass(frozen=True, eq=False)
class ChainStates:
    """The process of variance 1 given one output of rows.

    Attributes:
        order: The number a of entries of a state, nu + 1/2.
        lengthscale: The lengthscale.
        times: The rows, ascending, (n,).
        targets: The targets y, (n,).
        noise: The noise D, (1,) or (n,).

    Examples:
        >>> times = np.array([0.0, 1.0])
        >>> states = ChainStates(1, 1.0, times, np.zeros(2), np.zeros(1))
        >>> round(states.log_determinant, 6), round(float(np.log(1 - np.exp(-2))), 6)
        (-0.145413, -0.145413)
    """

    order: int
    lengthscale: float
    times: Array
    targets: Array
    noise: Array

    @cached_property
    def _model(self) -> tuple[Any, ...]:
        return (math.sqrt(2 * self.order - 1) / self.lengthscale, *model_of(self.order))

    @property
    def filtered(self) -> Array:
        """M and P before each block of rows, (b, a + a^2)."""
        return self._sums[0]

    @cached_property
    def _sums(self) -> tuple[Array, float, float]:
        """The states before blocks, sum log s, and sum v^2 / s."""
        states = np.empty((-(-len(self.times) // _loops().BLOCK_ROWS), self.order * (self.order + 1)))
        return states, *_loops().filter_rows(self.times, self.targets, self.noise, self._model, states)

    @property
    def log_determinant(self) -> float:
        """The log determinant of C."""
        return self._sums[1]

    @property
    def squares(self) -> float:
        """The squared norm y^T C^-1 y."""
        return self._sums[2]

    @cached_property
    def smoothed(self) -> Smoothed:
        """The result of the backward pass over the rows."""
        states, n = self.filtered, len(self.times)
        coefficients, precisions, adjoints = np.empty(n), np.empty(n), np.empty((len(states) + 1, states.shape[1]))
        rows = self.times, self.targets, self.noise, self._model, states
        slope = _loops().smooth_rows(*rows, adjoints, coefficients, precisions)
        return Smoothed(coefficients, precisions, slope, adjoints)

    def scores(
        self,
        noise_fractions: Array,  # (q, 1) or (q, n)
    ) -> Scores:
        """Return sums of derivatives of the innovations, in one pass.

        Args:
            noise_fractions: The fraction of each row's noise variance in each of q directions, from 0 to 1.
        """
        size = len(noise_fractions) + 2
        sums = np.zeros(size), np.zeros(size), np.zeros((size, size)), np.zeros((size, size))
        rows = self.times, self.targets, self.noise, noise_fractions
        return Scores(*sums, *_loops().score_rows(*rows, self._model, *sums))


@lru_cache
def model_of(order: int) -> tuple[tuple[float, ...], Array]:
    """Return the arrays of a Matern process in the compiled loops.

    Args:
        order: The number a of entries of a state, nu + 1/2.

    Returns:
        The unit vector (1, 0, ...) of length a as a tuple, and the tables (3 a + 2, a, a): T_k, C_m, P, F, and q in
        each entry.
    """
    powers, integrals, stationary = (table.numpy() for table in tables(order))
    intensity = np.full((order, order), INTENSITY[order])
    return (1.0, *[0.0] * (order - 1)), np.stack([*powers, *integrals, stationary, companion(order), intensity])


# --- Rows of one column in ascending order, and a Matern process given them ------------------------------------------


class ChainRows:
    """A Matern process given rows.

    Args:
        prior: The prior of one block.
        inputs: The inputs of the rows, (n, d).
        noise: The noise D, (1,) or (n,).
        residual: The residual y - mean, (n, k).
    """

    def __init__(self, prior: Prior, inputs: Tensor, noise: Tensor, residual: Tensor) -> None:
        (block,) = prior.precisions
        self.column, self.order = column_of(prior), ascending(inputs, column_of(prior).position)
        self.lengthscale, self.variance = float(block.values.detach()), float(block.variance.detach())
        self._noise, self._residual = as_array(noise), as_array(residual)

    @cached_property
    def noise(self) -> Array:
        """The noise D of the rows in ascending order, (n,), or (1,) if all are equal."""
        given = self._noise
        return given[:1] if (given == given[0]).all() else self.order.sorted(given)

    @cached_property
    def states(self) -> list[ChainStates]:
        """The process over its standard deviation s, given each output over s."""
        noise, times = self.noise / self.variance, self.order.values
        targets = (self.order.sorted(output) / math.sqrt(self.variance) for output in self._residual.T)
        return [ChainStates(self.column.order, self.lengthscale, times, target, noise) for target in targets]

    @cached_property
    def coefficients(self) -> Array:
        """C^-1 (y - mean) of the rows in ascending order, (n, k)."""
        coefficients: Array = np.stack([state.smoothed.coefficients for state in self.states], axis=1)
        return coefficients / math.sqrt(self.variance)

    @cached_property
    def precisions(self) -> Array:
        """The diagonal of C^-1 of the rows in ascending order, (n,)."""
        return self.states[0].smoothed.precisions / self.variance

    def known(self, prior: Prior) -> GivenRows:
        """Return the filtered rows for predictions.

        Args:
            prior: The prior of the process.
        """
        scale, columns = math.sqrt(self.variance), np.stack([self.order.sorted(y) for y in self._residual.T], axis=1)

        def backward() -> Array:
            return self._joined([one.smoothed.adjoints for one in self.states], 1 / scale)

        states = self._joined([one.filtered for one in self.states], scale)
        border = torch.empty(0, 0).double(), torch.empty(0, columns.shape[1]).double()
        return GivenRows(Chain.of(prior), self.order.values, columns, self.noise, states, backward, *border)

    def _joined(self, parts: Sequence[Array], scale: float) -> Array:
        """Return m (a, k) and P (a, a) of k outputs, (b, a k + a^2), from those of each for variance 1."""
        a = self.column.order
        means = np.stack([part[:, :a] for part in parts], axis=2).reshape(len(parts[0]), -1)
        return np.concatenate([scale * means, scale**2 * parts[0][:, a:]], axis=1)


def restored(prior: Prior, inputs: Tensor, noise_diag: Tensor, targets: Tensor) -> StateSpacePosterior:
    """Return the posterior given saved rows.

    Args:
        prior: The prior of one process (`supports`).
        inputs: The inputs of the rows, (n, d).
        noise_diag: The noise D, (n,).
        targets: The centered targets y - mean, (n, k).
    """
    rows = ChainRows(prior, inputs, noise_diag.double(), targets)
    return StateSpacePosterior(prior, inputs, noise_diag, targets, known=lambda: rows.known(prior))


def supports(prior: Prior) -> bool:
    """Return whether a prior is a Matern process of one column alone.

    Args:
        prior: The prior.
    """
    return len(prior.blocks) == len(prior.precisions) == 1 and prior.precisions[0].column is not None


def column_of(prior: Prior) -> MaternColumn:
    """Return the column of the process of a prior.

    Args:
        prior: A prior that satisfies `supports`.
    """
    column = prior.precisions[0].column
    assert column is not None
    return column


def as_tensor(array: Array) -> Tensor:
    """Return a tensor (...) of the same numbers.

    Args:
        array: The numbers.
    """
    return torch.from_numpy(np.ascontiguousarray(array))


def ascending_rows(prior: Prior, rows: Block) -> Block:
    """Return rows in ascending order of the column of a prior.

    Args:
        prior: A prior that satisfies `supports`.
        rows: The data.
    """
    order = ascending(rows.inputs, column_of(prior).position).order
    return rows if order is None else rows.take(torch.from_numpy(order))


# --- The solver of a Matern process of one column, for rows in memory ------------------------------------------------


class ChainSolver(Solver):
    """Rows under a half-integer Matern process of one column.

    The time and the memory are linear in the rows. The formulas are in `rfgp.solvers.chain.solver`. Let C = s^2 K + D
    and r = y - mean. The derivative of the log likelihood in s^2 follows from that in the logarithm of a common factor
    of s^2 and D. The latter is (r^T C^-1 r - n) / 2.

    Args:
        prior: The prior of one block (`supports`), with gradients.
        rows: The data.
        mean: The prior mean, (k,), float64.
        noise: The variance of one observation, 0-d, float64.
    """

    def __init__(self, prior: Prior, rows: Block, mean: Tensor, noise: Tensor) -> None:
        super().__init__(rows, mean, noise)
        self._prior, self._mean, self._learned = prior, mean, noise
        self._given_noise = rows.noise_diag(noise).reshape(-1)  # of all rows, or of each

    @cached_property
    def _given(self) -> ChainRows:
        return ChainRows(self._prior, self._rows.inputs, self._given_noise, self._residual)

    @property
    def _process(self) -> tuple[Tensor, Tensor]:
        """The lengthscale (1,) and s^2, 0-d."""
        (block,) = self._prior.precisions
        return block.values.double(), block.variance.double()

    def with_data(self, rows: Block, mean: Tensor, noise: Tensor) -> Self:
        """Return the solver for other targets and noise of the same inputs.

        The order of the rows is reused.

        Args:
            rows: The same inputs with targets (n, k), noise and weights.
            mean: The prior mean, (k,), float64.
            noise: The variance of one observation, 0-d, float64.
        """
        return type(self)(self._prior, rows, mean, noise)

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log marginal likelihood, 0-d."""
        return with_gradient(self._value, self._residual, self._given_noise, *self._process) + self._other_terms

    def _value(self, needs: Needs) -> tuple[Tensor, Gradients]:
        given, output_weights, n = self._given, self._rows.output_weights, len(self._rows)
        squares = output_weights.new_tensor([states.squares for states in given.states])
        determinant = given.states[0].log_determinant + n * math.log(given.variance)
        return log_density(squares, determinant, output_weights, n), partial(self._gradients, needs)

    def _gradients(self, needs: Needs) -> list[Tensor | None]:
        """Return the derivatives in the residual (n, k), the noise (1,) or (n,), the lengthscale (1,) and s^2."""
        given, output_weights, n = self._given, self._rows.output_weights, len(self._rows)
        coefficients, states = as_tensor(given.coefficients), given.states
        in_noise = 0.5 * (coefficients.square() @ output_weights - output_weights.sum() * as_tensor(given.precisions))
        common = 0.5 * (output_weights @ output_weights.new_tensor([state.squares - n for state in states]))
        slope = output_weights @ output_weights.new_tensor([state.smoothed.slope for state in states])
        return [
            as_tensor(given.order.restored(-given.coefficients)) * output_weights if needs[0] else None,
            in_noise.sum().reshape(1)
            if len(self._given_noise) == 1
            else as_tensor(given.order.restored(in_noise.numpy())),
            (-slope / given.lengthscale).reshape(1),
            (common - (in_noise * as_tensor(given.noise)).sum()) / given.variance,
        ]

    # --- scores ----------------------------------------------------------------------------------

    def score(self) -> Tensor:
        """Return the log marginal likelihood, 0-d, with its gradient.

        The gradient takes one pass over the rows. It has derivatives in hyperparameters only, but not in the noise or
        the targets of single rows.
        """

        def compute(needs: Needs) -> tuple[Tensor, Gradients]:
            (lengthscale, variance), noise = (tensor.detach() for tensor in self._process), self._learned.detach()
            deviance, gradient = 0.0, np.zeros(3 + self._rows.num_outputs)
            for count, scales, means, scores in self._scores:
                deviance += count * (scores.log_determinant + scores.squares)
                gradient += count * (0.5 * scales @ scores.in_scales - means @ scores.in_means)
            found = torch.from_numpy(gradient)
            gradients = found[:1] / lengthscale, found[1] / variance, found[2] / noise, found[3:]
            constants = self._rows.output_weights.sum() * len(self._rows) * (2 * math.pi * variance).log()
            return -0.5 * (deviance + constants), lambda: gradients

        value = with_gradient(compute, *self._process, self._learned, self._mean)
        return value + self._other_terms

    @property
    def coordinates(self) -> Tensor:
        """The logarithms of lengthscale, s^2 and noise, and the mean, (3 + k,)."""
        lengthscale, variance = self._process
        return torch.cat([lengthscale.log(), variance.log()[None], self._learned.log()[None], self._mean]).detach()

    @property
    def information(self) -> Tensor:
        """The estimate of the Fisher information of the coordinates, (3 + k, 3 + k)."""
        size, rows = 3 + self._rows.num_outputs, self._rows
        information = np.zeros((size, size))
        for count, scales, means, scores in self._scores:
            information += count * (0.5 * scales @ scores.of_scales @ scales.T + means @ scores.of_means @ means.T)
        if rows.weight is not None:  # repeated rows have the noise of one observation each
            repeated = (as_array(rows.weight) - 1) * np.square(self._noise_fraction)
            information[2, 2] += 0.5 * float(rows.output_weights.sum()) * repeated.sum()
        return torch.from_numpy(information)

    @property
    def _noise_fraction(self) -> Array:
        """The fraction of each row's noise variance due to the learned noise, (1,) or (n,)."""
        fixed, learned = self._rows.fixed_noise, float(self._learned.detach())
        return np.ones(1) if fixed is None else learned / (learned + as_array(fixed))

    @cached_property
    def _scores(self) -> list[tuple[float, Array, Array, Scores]]:
        """The weight of each output, and the coordinates as directions of its scores, (3 + k, q + 2) twice.

        A log lengthscale is -log kappa. As s^2 grows, all innovations grow by its root, and noise falls relative to it.
        """
        learned, k, given = self._noise_fraction, self._rows.num_outputs, self._given
        ones = np.ones(len(learned))
        fractions = learned[None] if len(ones) == 1 else np.stack([given.order.sorted(learned), ones])
        scales, means = np.zeros((3 + k, len(fractions) + 2)), np.zeros((k, 3 + k, len(fractions) + 2))
        scales[0, 1] = scales[1, -1] = -1.0
        scales[1, 0] = scales[2, 2] = 1.0
        means[:, 0, 0] = means[:, 1, -2] = -1.0
        means[:, 2, 1] = 1.0
        means[range(k), range(3, 3 + k), -1] = given.variance**-0.5
        counts = self._rows.output_weights.tolist()
        pairs = zip(counts, means, given.states, strict=True)
        return [(count, scales, directions, states.scores(fractions)) for count, directions, states in pairs]

    # --- rows ------------------------------------------------------------------------------------

    @property
    def solved(self) -> Tensor:
        """The coefficients C^-1 (y - mean), (n, k)."""
        return as_tensor(self._given.order.restored(self._given.coefficients))

    @property
    def precisions(self) -> Tensor:
        """The diagonal of C^-1, (n,)."""
        return as_tensor(self._given.order.restored(self._given.precisions))

    @property
    def log_determinant(self) -> Tensor:
        """The log determinant of I + K D^-1, 0-d."""
        return self._given.states[0].log_determinant - (self._noise.detach() / self._given.variance).log().sum()

    def posterior(self) -> StateSpacePosterior:
        """Return the posterior, which keeps the rows and their filtered states."""
        rows = self._rows.inputs, self._noise.detach(), self._residual.detach()
        prior, given = self._prior.detached(), self._given
        return StateSpacePosterior(prior, *rows, known=lambda: given.known(prior))
