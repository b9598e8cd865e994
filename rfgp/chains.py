"""Terms of one column as Markov processes: the state, its transition and its innovation over a step.

A term f(t) = h^T z(t) reads a few numbers of a state z. Over a step of length x, z <- A(x) z + e with e ~ N(0, Q(x)).
A and Q are block diagonal. All of them are tensors with gradients in the hyperparameters.

Source: Hartikainen and Sarkka (2010), Kalman filtering and smoothing solutions to temporal Gaussian process regression
models, Section 3. Solin and Sarkka (2014), Explicit link between periodic covariance functions and state space models,
Sections 3.2 and 3.4.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product as pairs_of
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphs.precisions.chains import INTENSITY, MAX_STEP, STATIONARY, companion
from rfgp.errors import DataError

Blocks = list[Tensor]
"""The diagonal blocks of a matrix for each of u steps, (u, a, a) each."""


class StateModel(NamedTuple):
    """A Markov process.

    Attributes:
        readings: h, one tuple for each block of the state.
        steps: Maps the lengths of steps (u,) to the blocks of A and of Q.
        first: Maps times (m,) to the blocks of the covariance of a state without earlier rows, (m, a, a) each.
    """

    readings: tuple[tuple[float, ...], ...]
    steps: Callable[[Tensor], tuple[Blocks, Blocks]]
    first: Callable[[Tensor], Blocks]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of entries of each block of the state."""
        return tuple(map(len, self.readings))

    def scaled(self, variance: Tensor) -> "StateModel":
        """Return the process times the root of a variance, 0-d."""

        def steps(lengths: Tensor) -> tuple[Blocks, Blocks]:
            moves, noises = self.steps(lengths)
            return moves, [variance * noise for noise in noises]

        return self._replace(steps=steps, first=lambda times: [variance * block for block in self.first(times)])


# --- Matern processes -------------------------------------------------------------------------------------------------


@lru_cache
def tables(order: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return (F + I)^k / k! (a, a, a), the coefficients of Q (2 a - 1, a, a), and the stationary covariance (a, a).

    Q is the integral of q g g^T over a step, with g(s) = exp(-s) sum_k s^k (F + I)^k e / k!. So it is a sum of
    coefficients times the regularized incomplete gamma functions of 1, 2, ... at 2 x. None of its entries is a
    difference of larger ones, even for short steps.
    """
    shifted = companion(order) + np.eye(order)
    powers = [np.linalg.matrix_power(shifted, k) / math.factorial(k) for k in range(order)]
    integrals = np.zeros((2 * order - 1, order, order))
    for k, left in enumerate(powers):
        for m, right in enumerate(powers):
            scale = INTENSITY[order] * math.factorial(k + m) / 2.0 ** (k + m + 1)
            integrals[k + m] += scale * np.outer(left[:, -1], right[:, -1])
    first, second, third = map(torch.from_numpy, (np.stack(powers), integrals, STATIONARY[order]))
    return first, second, third


def matern(order: int, lengthscale: Tensor) -> StateModel:
    """Return a half-integer Matern process of variance 1.

    Args:
        order: The number a of entries of its state, nu + 1/2.
        lengthscale: The lengthscale, 0-d.

    Examples:
        >>> moves, noises = matern(1, torch.tensor(2.0)).steps(torch.tensor([2.0]).double())
        >>> moves[0].item(), noises[0].item()  # exp(-1), 1 - exp(-2)
        (0.36787944117144233, 0.8646647167633873)
    """
    powers, integrals, stationary = tables(order)

    def steps(lengths: Tensor) -> tuple[Blocks, Blocks]:
        x = (math.sqrt(2 * order - 1) * lengths / lengthscale).clamp_max(MAX_STEP)
        decays = torch.stack([(-x).exp() * x**k for k in range(order)], dim=1)
        tails = [-torch.expm1(-2 * x)]
        tails += [torch.special.gammainc(torch.full_like(x, m + 1.0), 2 * x) for m in range(1, 2 * order - 1)]
        noises = torch.einsum("um,mij->uij", torch.stack(tails, dim=1), integrals)
        return [torch.einsum("uk,kij->uij", decays, powers)], [noises]

    return StateModel(((1.0, *[0.0] * (order - 1)),), steps, lambda times: [stationary.expand(len(times), -1, -1)])


# --- Seasons ----------------------------------------------------------------------------------------------------------


def harmonics(period: Tensor, shares: Tensor) -> StateModel:
    """Return a sum of a constant, cosines and sines, with random amplitudes.

    Args:
        period: The period, 0-d.
        shares: The variance of the constant and of each harmonic, (J + 1,).
    """
    count = len(shares) - 1

    def steps(lengths: Tensor) -> tuple[Blocks, Blocks]:
        angles = 2 * math.pi * lengths[:, None] * torch.arange(1, count + 1) / period
        cosines, sines = angles.cos(), angles.sin()
        turns = torch.stack([cosines, sines, -sines, cosines], dim=-1).reshape(len(lengths), count, 2, 2)
        moves = [lengths.new_ones(len(lengths), 1, 1), *turns.unbind(1)]
        return moves, [torch.zeros_like(move) for move in moves]

    def first(times: Tensor) -> Blocks:
        sizes = [torch.eye(size, dtype=torch.float64) for size in (1, *[2] * count)]
        return [(share * size).expand(len(times), -1, -1) for share, size in zip(shares, sizes, strict=True)]

    return StateModel(((1.0,), *[(1.0, 0.0)] * count), steps, first)


# --- Levels and slopes that wander -----------------------------------------------------------------------------------


ROUNDING = 1e-9
"""The distance by which rows may be before an origin, in the largest distance of a row from it."""


def since_origin(times: Tensor, origin: Tensor) -> Tensor:
    """Return the times since an origin, (n,).

    Args:
        times: The times, (n,).
        origin: The origin, 0-d.

    Raises:
        DataError: If a time is before the origin.
    """
    since = times - origin
    if len(since) and bool((since < -ROUNDING * since.abs().max()).any()):
        raise DataError(
            f"Rows and points must not be before the origin of a Wiener process, at {float(origin):.6g}, got "
            f"{float(times.min()):.6g}. Give the kernel an earlier origin=."
        )
    return since.clamp_min(0.0)


def wiener(order: int, origin: Tensor) -> StateModel:
    """Return a Wiener process from an origin, or its integral.

    Args:
        order: The number of entries of its state: 1 for the process itself, 2 for its integral.
        origin: The time at which the process and its slope are 0, 0-d.

    Examples:
        >>> wiener(2, torch.tensor(0.0)).first(torch.tensor([3.0]).double())[0].tolist()
        [[[9.0, 4.5], [4.5, 3.0]]]
    """

    def noises(lengths: Tensor) -> Tensor:
        if order == 1:
            return lengths[:, None, None]
        entries = [lengths**3 / 3, lengths**2 / 2, lengths**2 / 2, lengths]
        return torch.stack(entries, dim=-1).reshape(-1, 2, 2)

    def steps(lengths: Tensor) -> tuple[Blocks, Blocks]:
        move = torch.eye(order, dtype=torch.float64).repeat(len(lengths), 1, 1)
        if order == 2:
            move[:, 0, 1] = lengths
        return [move], [noises(lengths)]

    return StateModel(((1.0, *[0.0] * (order - 1)),), steps, lambda times: [noises(since_origin(times, origin))])


# --- Products ---------------------------------------------------------------------------------------------------------


def product(first: StateModel, second: StateModel) -> StateModel:
    """Return the product of two stationary processes, which has a block for each pair of blocks.

    With the covariances P of the states, Q = Q_1 x P_2 + A_1 P_1 A_1^T x Q_2, in which no digits cancel.

    Args:
        first: A process.
        second: Another one.
    """

    def steps(lengths: Tensor) -> tuple[Blocks, Blocks]:
        (moves, noises), (other_moves, other_noises) = first.steps(lengths), second.steps(lengths)
        known, others = first.first(lengths), second.first(lengths)
        kept = [move @ block @ move.mT for move, block in zip(moves, known, strict=True)]
        innovations = [
            _kron(noise, other) + _kron(old, new)
            for (noise, old), (other, new) in pairs_of(
                zip(noises, kept, strict=True), zip(others, other_noises, strict=True)
            )
        ]
        return [_kron(*pair) for pair in pairs_of(moves, other_moves)], innovations

    readings = tuple(tuple(np.kron(*pair).tolist()) for pair in pairs_of(first.readings, second.readings))
    return StateModel(
        readings, steps, lambda times: [_kron(*p) for p in pairs_of(first.first(times), second.first(times))]
    )


def _kron(left: Tensor, right: Tensor) -> Tensor:
    """Return the Kronecker products of matrices (u, a, a) and (u, b, b), (u, a b, a b)."""
    size = left.shape[1] * right.shape[1]
    return torch.einsum("uij,ukl->uikjl", left, right).reshape(len(left), size, size)


def product_of(models: Sequence[StateModel]) -> StateModel:
    """Return the product of processes, at least one.

    Args:
        models: The processes, stationary if there are several.
    """
    result, *others = models
    for other in others:
        result = product(result, other)
    return result
