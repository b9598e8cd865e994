"""Compiled loops of the filter and smoother of half-integer Matern processes.

The formulas are in `rfgp.solvers.chain.solver`. A state has a numbers, and `unit` is the tuple (1, 0, ...) of that
length. Loops are compiled for each a, and those over small matrices are unrolled. Common arguments are:

    x                     kappa times the length of a step
    unit, tables          the unit vector, and the tables (3 a + 2, a, a) of `rfgp.solvers.chain.solver.model_of`
    model                 kappa, unit and tables
    times (n,)            the rows, ascending
    targets (n,), target  y of the rows, and of one row
    noise (1,) or (n,)    D of the rows, or a number for one row
    mean, covariance      m (a,) and P (a, a) of a state
    r, curvature          r (a,) and N (a, a) of the backward pass
    moved (..., a, a)     A P A^T of a step
    block                 the index of a block of BLOCK_ROWS rows
    states (b, a + a^2)   m and P given the rows before each block
    adjoints (b + 1, a + a^2)  r and N before the first row of each block, and zeros
    predicted (BLOCK_ROWS, a + a^2)  m and P before each row of a block
    backward (BLOCK_ROWS + 1, a + a^2)  r and N before each row of a block, and before the next row
    points (m,), indices (m,)  points, ascending, and the numbers of rows at or before them
    filtered (m, a + a^2) m and P at the points given earlier rows
    adjoint (m, a + a^2)  r and N at the points given later rows
    work (4, a, a)        space for A, R, A P A^T and a product
    numbers (2 a,)        space for coefficients, and the length of the step of A and R in `work`

The formulas are in `rfgp.solvers.chain.solver`, and further arguments in `rfgp.solvers.chain.loops`. There are q + 2
directions: log kappa, q directions of the noise, and the mean. Arguments are:

    tangents (q + 1, a, a)  the derivatives of the covariance of a state, which do not depend on the mean
    moving (q + 2, a)       the derivatives of the mean of a state
    noises (q + 1,)         the derivatives of the noise of a row, 0 in log kappa
    v, s                    the innovation of a row and its variance
    noise_fractions (q, 1) or (q, n)  the fraction of each row's noise variance in each direction of the noise
"""

import math

import numpy as np

from graphs.compiled import jit

# --- Compiled loops of filter and smoother of half-integer Matern processes ------------------------------------------

BLOCK_ROWS = 256
"""The number of rows of a block. States within a block are recomputed, in memory that fits into the cache."""
MAX_STEP = 700.0
"""The maximum x of a step. At longer steps, the correlation of the two ends is below the rounding error."""
MAX_SERIES_T = 3.0
"""The maximum t for which the incomplete gamma function is summed from its smallest terms."""
MAX_PRODUCT = 1e100
"""The product of variances above which, or below whose inverse, its logarithm is added to the sum."""

loop = jit(error_model="numpy")


# --- steps and rows ------------------------------------------------------------------------------


@loop
def step_to(x, unit, tables, work, numbers):
    """Write the A and R of a step, unless the step is unchanged.

    A = exp(-x) sum_k x^k T_k, R = sum_m C_m E_m(2 x), and E_m(t) = 1 - exp(-t) sum_(k <= m) t^k / k!.
    """
    a = len(unit)
    if x == numbers[2 * a - 1]:
        return
    numbers[2 * a - 1] = x
    x = min(x, MAX_STEP)
    decay, t, top = math.exp(-x), 2 * x, 2 * a - 2
    numbers[0] = decay
    for k in range(1, a):
        numbers[k] = numbers[k - 1] * x
    for i in range(a):
        for j in range(a):
            total = 0.0
            for k in range(a):
                total += numbers[k] * tables[k, i, j]
            work[0, i, j] = total
    numbers[0] = decay * decay
    for m in range(1, top + 1):
        numbers[m] = numbers[m - 1] * (t / m)  # exp(-t) t^m / m!
    if t < MAX_SERIES_T:
        tail, rest, m = 0.0, numbers[top], top
        while rest > 1e-17 * tail:
            m += 1
            rest *= t / m
            tail += rest
    else:
        tail = 1.0
        for m in range(top + 1):
            tail -= numbers[m]
    for m in range(top, -1, -1):
        numbers[m], tail = tail, tail + numbers[m]  # E_m
    for i in range(a):
        for j in range(i + 1):
            total = 0.0
            for m in range(top + 1):
                total += tables[a + m, i, j] * numbers[m]
            work[1, i, j] = work[1, j, i] = total


@loop
def advance(x, unit, tables, mean, covariance, work, numbers):
    """Overwrite the mean and the covariance of a state with A m and A P A^T + R."""
    a = len(unit)
    step_to(x, unit, tables, work, numbers)
    for i in range(a):
        for j in range(a):
            total = 0.0
            for k in range(a):
                total += work[0, i, k] * covariance[k, j]
            work[3, i, j] = total
    for i in range(a):
        for j in range(i + 1):
            total = 0.0
            for k in range(a):
                total += work[3, i, k] * work[0, j, k]
            work[2, i, j] = work[2, j, i] = total
            covariance[i, j] = covariance[j, i] = total + work[1, i, j]
    for i in range(a):
        total = 0.0
        for k in range(a):
            total += work[0, i, k] * mean[k]
        work[3, i, 0] = total
    for i in range(a):
        mean[i] = work[3, i, 0]


@loop
def step_backward(x, unit, tables, r, curvature, work, numbers):
    """Overwrite r and N after a step with A^T r and A^T N A."""
    a = len(unit)
    step_to(x, unit, tables, work, numbers)
    for i in range(a):
        total = 0.0
        for k in range(a):
            total += work[0, k, i] * r[k]
        work[3, i, 0] = total
    for i in range(a):
        r[i] = work[3, i, 0]
    for i in range(a):
        for j in range(a):
            total = 0.0
            for k in range(a):
                total += work[0, k, i] * curvature[k, j]
            work[3, i, j] = total
    for i in range(a):
        for j in range(i + 1):
            total = 0.0
            for k in range(a):
                total += work[3, i, k] * work[0, k, j]
            curvature[i, j] = curvature[j, i] = total


@loop
def condition_on_row(target, noise, unit, mean, covariance):
    """Overwrite the mean and covariance of a state with those given a row.

    Return v and s.
    """
    a, s, v = len(unit), covariance[0, 0] + noise, target - mean[0]
    for i in range(a):
        mean[i] += covariance[i, 0] * (v / s)
    for i in range(1, a):
        for j in range(1, i + 1):
            covariance[i, j] -= covariance[i, 0] * (covariance[j, 0] / s)
            covariance[j, i] = covariance[i, j]
    for i in range(a):
        covariance[i, 0] *= noise / s
        covariance[0, i] = covariance[i, 0]
    return v, s


@loop
def smooth_row(target, noise, unit, mean, covariance, r, curvature, work):
    """Overwrite r and N after a row with those before it.

    Return (C^-1 y)_i and (C^-1)_ii.
    """
    a, s = len(unit), covariance[0, 0] + noise
    score, noise_ratio, inverse_variance = (target - mean[0]) / s, noise / s, 1 / s
    coefficient, precision, before, corner = score, inverse_variance, score + r[0] * noise_ratio, inverse_variance
    for i in range(a):
        along_gain = along_rest = 0.0  # N k and N (e_0 - k)
        for j in range(a):
            gain = covariance[j, 0] * inverse_variance
            along_gain += curvature[i, j] * gain
            along_rest += curvature[i, j] * (noise_ratio if j == 0 else -gain)
        gain = covariance[i, 0] * inverse_variance
        coefficient -= gain * r[i]
        precision += gain * along_gain
        corner += along_rest * (noise_ratio if i == 0 else -gain)
        before -= 0.0 if i == 0 else gain * r[i]
        work[3, i, 0] = along_rest
    for i in range(1, a):
        curvature[i, 0] = curvature[0, i] = work[3, i, 0]
    r[0], curvature[0, 0] = before, corner
    return coefficient, precision


@loop
def step_length_gradient(unit, tables, moved, mean, r, curvature, work):
    """Return the derivative of the log marginal likelihood in the length of a step.

    The arguments include r and N after the step.
    """
    a, total = len(unit), 0.0
    for i in range(a):
        for j in range(a):
            pair = r[i] * r[j] - curvature[i, j]
            change = tables[3 * a, i, j] * mean[j] * r[i]
            for k in range(a):
                change += pair * tables[3 * a, i, k] * moved[k, j]
            total += change + 0.5 * pair * tables[3 * a + 1, i, j] * work[0, i, a - 1] * work[0, j, a - 1]
    return total


@loop
def store(array, i, unit, vector, matrix):
    """Write a vector (a,) and a matrix (a, a) to row i of an array."""
    a = len(unit)
    for j in range(a):
        array[i, j] = vector[j]
        for k in range(a):
            array[i, a + a * j + k] = matrix[j, k]


@loop
def load(array, i, unit, vector, matrix):
    """Read a vector (a,) and a matrix (a, a) from row i of an array."""
    a = len(unit)
    for j in range(a):
        vector[j] = array[i, j]
        for k in range(a):
            matrix[j, k] = array[i, a + a * j + k]


# --- passes over the rows ------------------------------------------------------------------------


@loop
def filter_rows(times, targets, noise, model, states):
    """Write m and P before all blocks to `states`.

    Return sum log s and sum v^2 / s.
    """
    kappa, unit, tables = model
    a = len(unit)
    mean, covariance, work, numbers = np.zeros(a), tables[3 * a - 1].copy(), np.empty((4, a, a)), np.full(2 * a, np.nan)
    logarithms, squares, product, last, has_row_noise = 0.0, 0.0, 1.0, times[0], noise.size > 1
    for i in range(times.size):
        if i % BLOCK_ROWS == 0:
            store(states, i // BLOCK_ROWS, unit, mean, covariance)
        advance(kappa * (times[i] - last), unit, tables, mean, covariance, work, numbers)
        v, s = condition_on_row(targets[i], noise[i if has_row_noise else 0], unit, mean, covariance)
        last, squares, product = times[i], squares + v * (v / s), product * s
        if not 1 / MAX_PRODUCT < product < MAX_PRODUCT:
            logarithms += math.log(product)
            product = 1.0
    return logarithms + math.log(product), squares


@loop
def filter_block(block, times, targets, noise, model, states, predicted, moved):
    """Write m and P before each row of a block to `predicted`.

    A P A^T of their last step is written to `moved`.
    """
    kappa, unit, tables = model
    a, first, has_row_noise = len(unit), BLOCK_ROWS * block, noise.size > 1
    mean, covariance, work, numbers = np.empty(a), np.empty((a, a)), np.empty((4, a, a)), np.full(2 * a, np.nan)
    load(states, block, unit, mean, covariance)
    last = times[max(first - 1, 0)]
    for i in range(first, min(first + BLOCK_ROWS, times.size)):
        advance(kappa * (times[i] - last), unit, tables, mean, covariance, work, numbers)
        last = times[i]
        store(predicted, i - first, unit, mean, covariance)
        for j in range(a):
            for k in range(a):
                moved[i - first, j, k] = work[2, j, k]
        condition_on_row(targets[i], noise[i if has_row_noise else 0], unit, mean, covariance)


@loop
def smooth_rows(times, targets, noise, model, states, adjoints, coefficients, precisions):
    """Write C^-1 y, the diagonal of C^-1 and the adjoints.

    Return the derivative in log kappa. The coefficients C^-1 y (n,) and the diagonal `precisions` (n,) are overwritten.
    """
    kappa, unit, tables = model
    a, total, has_row_noise = len(unit), 0.0, noise.size > 1
    mean, r, covariance, curvature = np.empty(a), np.zeros(a), np.empty((a, a)), np.zeros((a, a))
    predicted, moved = np.empty((BLOCK_ROWS, a + a * a)), np.empty((BLOCK_ROWS, a, a))
    work, numbers = np.empty((4, a, a)), np.full(2 * a, np.nan)
    store(adjoints, len(states), unit, r, curvature)
    for block in range(len(states) - 1, -1, -1):
        filter_block(block, times, targets, noise, model, states, predicted, moved)
        first = BLOCK_ROWS * block
        for i in range(min(first + BLOCK_ROWS, times.size) - 1, first - 1, -1):
            load(predicted, i - first, unit, mean, covariance)
            row_noise = noise[i if has_row_noise else 0]
            coefficients[i], precisions[i] = smooth_row(
                targets[i], row_noise, unit, mean, covariance, r, curvature, work
            )
            if i == first:
                store(adjoints, block, unit, r, curvature)
            x = kappa * (times[i] - times[max(i - 1, 0)])
            step_to(x, unit, tables, work, numbers)
            total += x * step_length_gradient(unit, tables, moved[i - first], mean, r, curvature, work)
            step_backward(x, unit, tables, r, curvature, work, numbers)
    return total


# --- Compiled loops of the filter and its forward derivatives --------------------------------------------------------


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
