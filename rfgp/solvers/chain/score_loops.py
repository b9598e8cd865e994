"""Compiled loops of the filter and its forward derivatives.

The formulas are in `rfgp.solvers.chain.states`, and further arguments in `rfgp.solvers.chain.loops`. There are q + 2
directions: log kappa, q directions of the noise, and the mean. Arguments are:

    tangents (q + 1, a, a)  the derivatives of the covariance of a state, which do not depend on the mean
    moving (q + 2, a)       the derivatives of the mean of a state
    noises (q + 1,)         the derivatives of the noise of a row, 0 in log kappa
    v, s                    the innovation of a row and its variance
    noise_fractions (q, 1) or (q, n)  the fraction of each row's noise variance in each direction of the noise
"""

import math

import numpy as np

from rfgp.solvers.chain.loops import advance, condition_on_row, loop


@loop
def advance_tangents(x, unit, tables, mean, work, tangents, moving):
    """Overwrite derivatives with those after a step.

    The arguments include the mean of the step, and its A, R and A P A^T in `work`.
    """
    a = len(unit)
    for q in range(len(moving)):
        for i in range(a):
            total = 0.0
            for k in range(a):
                total += work[0, i, k] * moving[q, k]
                if q == 0:
                    total += x * tables[3 * a, i, k] * mean[k]
            work[3, i, 0] = total
        for i in range(a):
            moving[q, i] = work[3, i, 0]
    for q in range(len(tangents)):
        for i in range(a):
            for j in range(a):
                total = 0.0
                for k in range(a):
                    total += work[0, i, k] * tangents[q, k, j]
                work[3, i, j] = total
        for i in range(a):
            for j in range(i + 1):
                total = 0.0
                for k in range(a):
                    total += work[3, i, k] * work[0, j, k]
                    if q == 0:
                        total += x * (tables[3 * a, i, k] * work[2, k, j] + work[2, i, k] * tables[3 * a, j, k])
                if q == 0:
                    total += x * tables[3 * a + 1, i, j] * work[0, i, a - 1] * work[0, j, a - 1]
                tangents[q, i, j] = tangents[q, j, i] = total


@loop
def condition_tangents(v, s, unit, covariance, noises, tangents, moving, work):
    """Overwrite derivatives with those after a row.

    The arguments include the covariance before the row and the derivatives of its noise.

    dP <- (I - k e_0^T) dP (I - k e_0^T)^T + k k^T dD, and dm <- (I - k e_0^T) dm + v dk.
    """
    a = len(unit)
    for i in range(a):
        work[3, i, 0] = covariance[i, 0] / s  # k
    for q in range(len(moving)):
        first = moving[q, 0] + (1.0 if q == len(tangents) else 0.0)
        for i in range(a):
            moving[q, i] -= work[3, i, 0] * first
    for q in range(len(tangents)):
        corner, change = tangents[q, 0, 0], noises[q]
        for i in range(a):
            moving[q, i] += v * (tangents[q, i, 0] - work[3, i, 0] * (corner + change)) / s
        for i in range(a - 1, -1, -1):
            for j in range(i, -1, -1):
                gains = work[3, i, 0] * work[3, j, 0] * (corner + change)
                tangents[q, i, j] += gains - work[3, i, 0] * tangents[q, j, 0] - work[3, j, 0] * tangents[q, i, 0]
        for i in range(a):
            for j in range(i):
                tangents[q, j, i] = tangents[q, i, j]


@loop
def score_rows(times, targets, noise, noise_fractions, model, in_scales, in_means, of_scales, of_means):
    """Sum derivatives of the innovations v and their variances s.

    Return sum log s and sum v^2 / s.

    Let z = v / sqrt(s), c = (1, d log s) and b = dv / sqrt(s). The directions are log kappa and q directions of the
    log noise, and for b also the mean. The sums, which are added to the arrays, are

        in_scales (q + 2,)  sum c (z^2 - 1)    of_scales (q + 2, q + 2)  sum c c^T
        in_means (q + 2,)   sum b z            of_means (q + 2, q + 2)   sum b b^T
    """
    kappa, unit, tables = model
    a, parts, has_row_noise = len(unit), len(noise_fractions), noise.size > 1
    has_row_fractions = noise_fractions.shape[1] > 1
    mean, covariance, work, numbers = np.zeros(a), tables[3 * a - 1].copy(), np.empty((4, a, a)), np.full(2 * a, np.nan)
    tangents, moving, noises = np.zeros((parts + 1, a, a)), np.zeros((parts + 2, a)), np.zeros(parts + 1)
    b, c, logarithms, squares, last = np.zeros(parts + 2), np.ones(parts + 2), 0.0, 0.0, times[0]
    for i in range(times.size):
        x, last = kappa * (times[i] - last), times[i]
        advance(x, unit, tables, mean, covariance, work, numbers)
        advance_tangents(x, unit, tables, mean, work, tangents, moving)
        row_noise = noise[i if has_row_noise else 0]
        s, v = covariance[0, 0] + row_noise, targets[i] - mean[0]
        root = math.sqrt(s)
        z = v / root
        for q in range(parts + 1):
            noises[q] = 0.0 if q == 0 else row_noise * noise_fractions[q - 1, i if has_row_fractions else 0]
            c[q + 1] = (tangents[q, 0, 0] + noises[q]) / s
        for q in range(parts + 2):
            b[q] = -(moving[q, 0] + (1.0 if q == parts + 1 else 0.0)) / root
        for q in range(parts + 2):
            in_scales[q] += c[q] * (z * z - 1)
            in_means[q] += b[q] * z
            for k in range(parts + 2):
                of_scales[q, k] += c[q] * c[k]
                of_means[q, k] += b[q] * b[k]
        logarithms, squares = logarithms + math.log(s), squares + z * z
        condition_tangents(v, s, unit, covariance, noises, tangents, moving, work)
        condition_on_row(targets[i], row_noise, unit, mean, covariance)
    return logarithms, squares
