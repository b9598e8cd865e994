"""Products of real features on lattices, and series of such products.

A design on a lattice has the features c_j Re exp(i theta_j) and c_j Im exp(i theta_j) of the modes j. c_0 is 1, and
c_j = sqrt(2) otherwise. The mode j = 0 has no imaginary part. Products of two features are

    cos a cos b = Re(e^(i(a-b)) + e^(i(a+b))) / 2,     sin a sin b = Re(e^(i(a-b)) - e^(i(a+b))) / 2,
    sin a cos b = Im(e^(i(a+b)) + e^(i(a-b))) / 2,     cos a sin b = Im(e^(i(a+b)) - e^(i(a-b))) / 2.
"""

import math

import numpy as np
from numpy.typing import NDArray

from rfgp.lattices import Modes
from rfgp.lattices.transforms import Complex, Floats

Integers = NDArray[np.int64]
_ENTRIES = 2**20
"""The maximum number of entries of a covariance whose products are in memory at once."""


def amplitudes(modes: Modes) -> Floats:
    """Return the amplitudes c_j, (p + 1,).

    Args:
        modes: The modes j of a lattice.
    """
    out = np.full(len(modes.indices) + 1, math.sqrt(2))
    out[0] = 1
    return out


def indices_of(modes: Modes) -> Integers:
    """Return the integers of the modes, 0 first, (p + 1, d).

    Args:
        modes: The modes j of a lattice.
    """
    return np.concatenate([np.zeros((1, modes.lattice.num_columns), dtype=np.int64), modes.indices])


def at_modes(sums: Complex, modes: Modes) -> Complex:
    """Return the entries of sums at the modes of a lattice, (p + 1, q).

    Args:
        sums: The sums at all integers of the lattice, (2 K_1 + 1, ..., 2 K_d + 1, q).
        modes: The modes.
    """
    indices = indices_of(modes) + modes.lattice.half_widths
    return np.asarray(sums[tuple(indices.T)])


def real_projections(values: Complex, modes: Modes) -> Floats:
    """Return the sums of features times columns, (2 p + 1, q).

    Args:
        values: The sums of exponentials times columns, (p + 1, q).
        modes: The modes.
    """
    scaled = amplitudes(modes)[:, None] * values
    return np.concatenate([scaled.real, scaled.imag[1:]])


def within_lattice(generator: Complex, first: Modes, second: Modes) -> Floats:
    """Return the sums of products of features of two sets of modes of one lattice.

    The shape is (2 p + 1, 2 q + 1).

    Args:
        generator: The sums of exponentials on the doubled lattice, (4 K_1 + 1, ..., 4 K_d + 1).
        first: The p modes of the first set.
        second: The q modes of the second set.
    """
    a, b = (flat_indices(indices_of(modes), generator.shape) for modes in (first, second))
    zero, flat = generator.size // 2, generator.reshape(-1)
    return _products(flat[zero + a[:, None] - b], flat[zero + a[:, None] + b], first, second)


def between_lattices(sums: Complex, first: Modes, second: Modes) -> Floats:
    """Return the sums of products of features of modes of two lattices.

    The shape is (2 p + 1, 2 q + 1).

    Args:
        sums: The sums of products of exponentials, in the shapes of both lattices.
        first: The p modes on the first lattice.
        second: The q modes on the second lattice.
    """
    d = first.lattice.num_columns
    a, b = (flat_indices(indices_of(m), shape) for m, shape in zip((first, second), _sides(sums, d), strict=True))
    inner = math.prod(sums.shape[d:])
    zero, flat = sums.size // 2, sums.reshape(-1)
    return _products(flat[zero + inner * a[:, None] - b], flat[zero + inner * a[:, None] + b], first, second)


def _products(differences: Complex, totals: Complex, first: Modes, second: Modes) -> Floats:
    scale = 0.5 * amplitudes(first)[:, None] * amplitudes(second)
    minus, plus = scale * differences, scale * totals
    cosines = np.hstack([plus.real + minus.real, (plus.imag - minus.imag)[:, 1:]])
    sines = np.hstack([plus.imag + minus.imag, (minus.real - plus.real)[:, 1:]])
    return np.vstack([cosines, sines[1:]])


def real_series(coefficients: Floats, modes: Modes) -> Complex:
    """Return C with sum_k C_k exp(i theta_k) = sum_j w_j phi_j.

    The shape is (2 K_1 + 1, ..., 2 K_d + 1).

    Args:
        coefficients: The coefficients w, (2 p + 1,).
        modes: The modes.
    """
    lattice, p = modes.lattice, len(modes.indices)
    series = np.zeros(lattice.shape, dtype=np.complex128)
    real, imaginary = coefficients[: p + 1], np.concatenate([[0.0], coefficients[p + 1 :]])
    indices = indices_of(modes) + lattice.half_widths
    series[tuple(indices.T)] = amplitudes(modes) * (real - 1j * imaginary)
    return np.asarray(0.5 * (series + np.conj(np.flip(series))))


def quadratic_series(covariance: Floats, first: Modes, second: Modes) -> Complex:
    """Return C with Re sum_k C_k exp(i theta_k) = phi V psi^T.

    phi and psi are the features of two sets of modes.

    Args:
        covariance: The covariance V, (2 p + 1, 2 q + 1).
        first: The modes of phi.
        second: The modes of psi, on the same lattice or on one of other columns.

    Returns:
        The coefficients on the doubled lattice, or on the product of both lattices.
    """
    p, q = len(first.indices) + 1, len(second.indices) + 1
    is_same = first.lattice is second.lattice or first.lattice.same_as(second.lattice)
    shapes = (first.lattice.doubled_shape,) * 2 if is_same else (first.lattice.shape, second.lattice.shape)
    shape = shapes[0] if is_same else (*shapes[0], *shapes[1])
    inner = 1 if is_same else math.prod(shapes[1])
    a, b = (
        flat_indices(indices_of(modes), lattice_shape)
        for modes, lattice_shape in zip((first, second), shapes, strict=True)
    )
    size, total = math.prod(shape), np.zeros(math.prod(shape), dtype=np.complex128)
    for rows in np.array_split(np.arange(p), max(1, p * q // _ENTRIES)):
        scale = 0.5 * amplitudes(first)[rows, None] * amplitudes(second)
        cc, sc = covariance[rows, :q], np.zeros((len(rows), q))
        cs, ss, later = np.zeros_like(sc), np.zeros_like(sc), rows[rows > 0]
        cs[:, 1:] = covariance[rows, q:]
        sc[rows > 0], ss[rows > 0, 1:] = covariance[p - 1 + later, :q], covariance[p - 1 + later, q:]
        minus, plus = scale * ((cc + ss) + 1j * (cs - sc)), scale * ((cc - ss) - 1j * (cs + sc))
        starts = size // 2 + inner * a[rows, None]
        indices, values = np.concatenate([starts - b, starts + b]).ravel(), np.concatenate([minus, plus]).ravel()
        total += np.bincount(indices, values.real, minlength=size)
        total += 1j * np.bincount(indices, values.imag, minlength=size)
    return total.reshape(shape)


def flat_indices(indices: Integers, shape: tuple[int, ...]) -> Integers:
    """Return the offsets of integers from the middle of a flattened array, (p,).

    Args:
        indices: The integers, (p, d).
        shape: The shape of the array, odd in each axis.
    """
    strides = np.cumprod((1, *shape[:0:-1]))[::-1]
    return np.asarray(indices @ strides, dtype=np.int64)


def _sides(sums: Complex, d: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return sums.shape[:d], sums.shape[d:]
