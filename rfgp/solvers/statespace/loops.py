"""Compiled loops of the filter and smoother of a chain of small blocks, with several columns at once.

The formulas are in `rfgp.solvers.statespace.solver`. A state has d numbers, in blocks of a few numbers each. Matrices
that are block diagonal are stored as the entries of their blocks, row by row, one block after the other (e numbers).
Common arguments are:

    starts (b + 1,)       the first number of each block, and d
    reading (d,)          h, which reads the sum of all terms from a state
    steps (n,)            the number of the step before each row, or -1 if there is none
    moves, noises (u, e)  A and Q of each step
    first (e,)            the covariance of the state before the first row
    columns (n, c)        the values of each row: targets, and features of the border
    noise (1,) or (n,)    D of the rows
    mean (d, c), covariance (d, d)   m and P of a state
    adjoint (d, c), curvature (d, d) r and N of the backward pass
    block                 the number of a block of BLOCK_ROWS rows
    states (b, d c + d^2)            m and P given the rows before each block of rows
    adjoints (b + 1, d c + d^2)      r and N before the first row of each block of rows, and zeros
"""

import math

import numpy as np

from graphs.compiled import jit

BLOCK_ROWS = 256
"""The number of rows of a block. States within a block are recomputed, in memory that fits into the cache."""
MAX_PRODUCT = 1e100
"""The product of variances above which, or below whose inverse, its logarithm is added to the sum."""

loop = jit(error_model="numpy")


@loop
def times_blocks(starts, entries, matrix, out):
    """Write A X to `out` (d, p), for a block-diagonal A and X (d, p)."""
    offset = 0
    for block in range(starts.size - 1):
        low, high = starts[block], starts[block + 1]
        for i in range(low, high):
            for q in range(matrix.shape[1]):
                out[i, q] = 0.0
            for k in range(low, high):
                value = entries[offset]
                offset += 1
                if value != 0.0:
                    for q in range(matrix.shape[1]):
                        out[i, q] += value * matrix[k, q]


@loop
def times_transposed(starts, entries, matrix, out):
    """Write A^T X to `out` (d, p), for a block-diagonal A and X (d, p)."""
    offset = 0
    out[:] = 0.0
    for block in range(starts.size - 1):
        low, high = starts[block], starts[block + 1]
        for i in range(low, high):
            for k in range(low, high):
                value = entries[offset]
                offset += 1
                if value != 0.0:
                    for q in range(matrix.shape[1]):
                        out[k, q] += value * matrix[i, q]


@loop
def add_blocks(starts, entries, matrix):
    """Add a block-diagonal matrix to `matrix` (d, d)."""
    offset = 0
    for block in range(starts.size - 1):
        low, high = starts[block], starts[block + 1]
        for i in range(low, high):
            for k in range(low, high):
                matrix[i, k] += entries[offset]
                offset += 1


@loop
def transpose(matrix, out):
    """Write the transpose of `matrix` (d, d) to `out`."""
    for i in range(len(matrix)):
        for k in range(len(matrix)):
            out[k, i] = matrix[i, k]


@loop
def advance(starts, move, noise, mean, covariance, moved, work):
    """Overwrite m and P with A m and A P A^T + Q. A P is written to `moved` (d, d)."""
    times_blocks(starts, move, mean, work[0])
    mean[:] = work[0]
    times_blocks(starts, move, covariance, moved)
    transpose(moved, work[1])
    times_blocks(starts, move, work[1], covariance)
    add_blocks(starts, noise, covariance)


@loop
def condition(row, noise, reading, mean, covariance, gain, innovation):
    """Overwrite m and P with those given a row. P h / s and v are written to `gain` and `innovation`. Return s."""
    d, c = mean.shape
    s = noise
    for i in range(d):
        total = 0.0
        for k in range(d):
            if reading[k] != 0.0:
                total += covariance[i, k] * reading[k]
        gain[i] = total
        s += reading[i] * total
    for q in range(c):
        innovation[q] = row[q]
    for i in range(d):
        if reading[i] != 0.0:
            for q in range(c):
                innovation[q] -= reading[i] * mean[i, q]
    for i in range(d):
        gain[i] /= s
    is_one = reading[0] == 1.0  # without cancellation if the state has one block
    for i in range(1, d):
        is_one = is_one and reading[i] == 0.0
    for i in range(d):
        for q in range(c):
            mean[i, q] += gain[i] * innovation[q]
        scaled = gain[i] * s
        for k in range(d):
            covariance[i, k] -= scaled * gain[k]
    if is_one:
        for i in range(d):
            covariance[i, 0] = covariance[0, i] = gain[i] * noise
    return s


@loop
def smooth_row(s, reading, gain, innovation, adjoint, curvature, coefficients, work):
    """Overwrite r and N after a row with those before it.

    (C^-1 x)_i is written to `coefficients` (c,). Return (C^-1)_ii.
    """
    d, c = adjoint.shape
    precision = 1 / s
    for q in range(c):
        coefficients[q] = innovation[q] / s
    for i in range(d):
        total = 0.0
        for k in range(d):
            total += curvature[i, k] * gain[k]
        work[i] = total
        precision += gain[i] * total
        for q in range(c):
            coefficients[q] -= gain[i] * adjoint[i, q]
    for i in range(d):
        for q in range(c):
            adjoint[i, q] += reading[i] * coefficients[q]
        for k in range(d):
            curvature[i, k] += precision * reading[i] * reading[k] - reading[i] * work[k] - work[i] * reading[k]
    return precision


@loop
def step_backward(starts, move, adjoint, curvature, work):
    """Overwrite r and N after a step with A^T r and A^T N A."""
    times_transposed(starts, move, adjoint, work[0])
    adjoint[:] = work[0]
    times_transposed(starts, move, curvature, work[1])
    transpose(work[1], work[2])
    times_transposed(starts, move, work[2], curvature)


@loop
def store(array, i, vector, matrix):
    """Write m (d, c) and P (d, d) to row i of an array."""
    d, c = vector.shape
    for j in range(d):
        for q in range(c):
            array[i, j * c + q] = vector[j, q]
        for k in range(d):
            array[i, d * c + d * j + k] = matrix[j, k]


@loop
def load(array, i, vector, matrix):
    """Read m (d, c) and P (d, d) from row i of an array."""
    d, c = vector.shape
    for j in range(d):
        for q in range(c):
            vector[j, q] = array[i, j * c + q]
        for k in range(d):
            matrix[j, k] = array[i, d * c + d * j + k]


@loop
def space(d, c):
    """Return space for products of the loops, (d, c) and twice (d, d)."""
    return np.empty((d, c)), np.empty((d, d)), np.empty((d, d))


@loop
def filter_rows(chain, columns, noise, states, products):
    """Write m and P before all blocks of rows to `states`, and sum v v^T / s in `products` (c, c).

    Return sum log s.
    """
    starts, reading, steps, moves, noises, first = chain
    d, c = len(reading), columns.shape[1]
    mean, covariance, moved, work = np.zeros((d, c)), np.zeros((d, d)), np.empty((d, d)), space(d, c)
    gain, whitened, logarithms, product, at = np.empty(d), np.zeros((BLOCK_ROWS, c)), 0.0, 1.0, 0
    add_blocks(starts, first, covariance)
    for i in range(len(columns)):
        at = i % BLOCK_ROWS
        if at == 0:
            if i > 0:
                products += whitened.T @ whitened
            store(states, i // BLOCK_ROWS, mean, covariance)
        if steps[i] >= 0:
            advance(starts, moves[steps[i]], noises[steps[i]], mean, covariance, moved, work)
        s = condition(columns[i], noise[i if noise.size > 1 else 0], reading, mean, covariance, gain, whitened[at])
        root = math.sqrt(s)
        for q in range(c):
            whitened[at, q] /= root
        product *= s
        if not 1 / MAX_PRODUCT < product < MAX_PRODUCT:
            logarithms += math.log(product)
            product = 1.0
    last = whitened[: at + 1]
    products += last.T @ last
    return logarithms + math.log(product)


@loop
def filter_block(block, chain, columns, noise, states, means, moveds, variances, gains, innovations):
    """Filter the rows of a block again.

    For each of its rows the filtered m of the row before (d, c), A P of the step (d, d), s, P h / s and v are written.
    """
    starts, reading, steps, moves, noises, _ = chain
    d, c, begin = len(reading), columns.shape[1], BLOCK_ROWS * block
    mean, covariance, work = np.empty((d, c)), np.empty((d, d)), space(d, c)
    load(states, block, mean, covariance)
    for i in range(begin, min(begin + BLOCK_ROWS, len(columns))):
        at = i - begin
        means[at] = mean
        if steps[i] >= 0:
            advance(starts, moves[steps[i]], noises[steps[i]], mean, covariance, moveds[at], work)
        row_noise = noise[i if noise.size > 1 else 0]
        variances[at] = condition(columns[i], row_noise, reading, mean, covariance, gains[at], innovations[at])


@loop
def smooth_rows(chain, columns, noise, weights, states, adjoints, coefficients, precisions, slopes):
    """Write C^-1 x of all columns (n, c), the diagonal of C^-1 (n,), the adjoints, and the derivatives in A and Q.

    Let M = sum_c w_c r_c r_c^T - w N after a step, with the weights w_c and their last entry w. `slopes` are the
    derivatives (u, e) in A, sum_c w_c r_c m_c^T + M A P, and in Q, M / 2, of each step, and (e,) in the first
    covariance.
    """
    starts, reading, steps, moves, _, _ = chain
    in_moves, in_noises, in_first = slopes
    d, c = len(reading), columns.shape[1]
    adjoint, curvature, work, pairs = np.zeros((d, c)), np.zeros((d, d)), space(d, c), np.empty((d, d))
    means, moveds = np.empty((BLOCK_ROWS, d, c)), np.empty((BLOCK_ROWS, d, d))
    variances, gains, innovations = np.empty(BLOCK_ROWS), np.empty((BLOCK_ROWS, d)), np.empty((BLOCK_ROWS, c))
    products = np.empty(d)
    store(adjoints, len(states), adjoint, curvature)
    for block in range(len(states) - 1, -1, -1):
        filter_block(block, chain, columns, noise, states, means, moveds, variances, gains, innovations)
        begin = BLOCK_ROWS * block
        for i in range(min(begin + BLOCK_ROWS, len(columns)) - 1, begin - 1, -1):
            at = i - begin
            precisions[i] = smooth_row(
                variances[at], reading, gains[at], innovations[at], adjoint, curvature, coefficients[i], products
            )
            if at == 0:
                store(adjoints, block, adjoint, curvature)
            if steps[i] >= 0:
                step = steps[i]
                pair_products(weights, adjoint, curvature, pairs)
                add_slopes(starts, weights, adjoint, pairs, means[at], moveds[at], in_moves[step], in_noises[step])
                step_backward(starts, moves[step], adjoint, curvature, work)
    pair_products(weights, adjoint, curvature, pairs)
    offset = 0
    for block in range(starts.size - 1):
        for i in range(starts[block], starts[block + 1]):
            for k in range(starts[block], starts[block + 1]):
                in_first[offset] += 0.5 * pairs[i, k]
                offset += 1


@loop
def pair_products(weights, adjoint, curvature, pairs):
    """Write M = sum_c w_c r_c r_c^T - w N to `pairs` (d, d)."""
    d, c = adjoint.shape
    for i in range(d):
        for k in range(i + 1):
            total = -weights[c] * curvature[i, k]
            for q in range(c):
                total += weights[q] * adjoint[i, q] * adjoint[k, q]
            pairs[i, k] = pairs[k, i] = total


@loop
def add_slopes(starts, weights, adjoint, pairs, mean, moved, in_move, in_noise):
    """Add the derivatives in A and Q of a step."""
    d, c = adjoint.shape
    offset = 0
    for block in range(starts.size - 1):
        for i in range(starts[block], starts[block + 1]):
            for k in range(starts[block], starts[block + 1]):
                total = 0.0
                for q in range(c):
                    total += weights[q] * adjoint[i, q] * mean[k, q]
                for j in range(d):
                    total += pairs[i, j] * moved[j, k]
                in_move[offset] += total
                in_noise[offset] += 0.5 * pairs[i, k]
                offset += 1


# --- points ----------------------------------------------------------------------------------------------------------


@loop
def states_of_block(block, place, chain, columns, noise, states, adjoints, filtered, backward):
    """Write m and P given each row of a block and earlier ones to `filtered` (BLOCK_ROWS, d c + d^2).

    r and N before each of its rows, and before the next row, are written to `backward` (BLOCK_ROWS + 1, d c + d^2).
    `steps` of the chain are those of the rows of some blocks and of the next rows, (k, BLOCK_ROWS + 1), and `place` is
    the number of the block among them.
    """
    starts, reading, steps, moves, noises = chain
    d, c, begin = len(reading), columns.shape[1], BLOCK_ROWS * block
    size = min(BLOCK_ROWS, len(columns) - begin)
    mean, covariance, moved, work = np.empty((d, c)), np.empty((d, d)), np.empty((d, d)), space(d, c)
    variances, gains, innovations = np.empty(BLOCK_ROWS), np.empty((BLOCK_ROWS, d)), np.empty((BLOCK_ROWS, c))
    load(states, block, mean, covariance)
    for at in range(size):
        step, row = steps[place, at], begin + at
        if step >= 0:
            advance(starts, moves[step], noises[step], mean, covariance, moved, work)
        row_noise = noise[row if noise.size > 1 else 0]
        variances[at] = condition(columns[row], row_noise, reading, mean, covariance, gains[at], innovations[at])
        store(filtered, at, mean, covariance)
    adjoint, curvature, coefficients, products = np.empty((d, c)), np.empty((d, d)), np.empty(c), np.empty(d)
    load(adjoints, block + 1, adjoint, curvature)
    store(backward, size, adjoint, curvature)
    for at in range(size - 1, -1, -1):
        step = steps[place, at + 1]
        if step >= 0:
            step_backward(starts, moves[step], adjoint, curvature, work)
        smooth_row(variances[at], reading, gains[at], innovations[at], adjoint, curvature, coefficients, products)
        store(backward, at, adjoint, curvature)


@loop
def states_near(indices, blocks, chain, columns, noise, states, adjoints, filtered, adjoint):
    """Write m and P given the rows before points, and r and N given the rows after them, at these rows.

    `indices` are the numbers of rows at or before the points (m,), ascending. Without such rows the numbers are 0.
    `blocks` (k,) are the blocks of these rows, ascending, whose steps are in `chain` (`states_of_block`).
    """
    d, c, place = len(chain[1]), columns.shape[1], -1
    of_rows, backward = np.empty((BLOCK_ROWS, d * c + d * d)), np.empty((BLOCK_ROWS + 1, d * c + d * d))
    for p in range(len(indices)):
        row = max(indices[p] - 1, 0)
        begin = row - row % BLOCK_ROWS
        if place < 0 or row // BLOCK_ROWS != blocks[place]:
            place += 1
            states_of_block(blocks[place], place, chain, columns, noise, states, adjoints, of_rows, backward)
        filtered[p] = of_rows[row - begin] if indices[p] > 0 else np.zeros(d * c + d * d)
        adjoint[p] = backward[indices[p] - begin]


@loop
def propagate_between(indices, chain, ways, noise, covariances, propagators):
    """Write the transition matrices of the filtering error between consecutive points.

    `propagators[p]` (d, d) maps the error z - m of the filtered state at point p - 1 to that at point p, up to
    independent noise. It is the product of A and I - k h^T of all steps and rows in between. `propagators[0]` is not
    changed. `ways` are A (m, e) from the row before to each point, A and Q from each point to the row after, and A from
    each point to the next. `covariances` are P at the points (m, d, d).
    """
    starts, reading, steps, moves, noises = chain
    before, after, after_noises, across = ways
    d = len(reading)
    mean, covariance, moved, work = np.empty((d, 0)), np.empty((d, d)), np.empty((d, d)), space(d, 0)
    gain, nothing, total, other = np.empty(d), np.empty(0), np.empty((d, d)), np.empty((d, d))
    for p in range(1, len(indices)):
        total[:] = np.eye(d)
        if indices[p] == indices[p - 1]:
            times_blocks(starts, across[p - 1], total, propagators[p])
            continue
        covariance[:] = covariances[p - 1]
        for i in range(indices[p - 1], indices[p]):
            if i == indices[p - 1]:
                advance(starts, after[p - 1], after_noises[p - 1], mean, covariance, moved, work)
                times_blocks(starts, after[p - 1], total, other)
                total[:] = other
            elif steps[i] >= 0:
                advance(starts, moves[steps[i]], noises[steps[i]], mean, covariance, moved, work)
                times_blocks(starts, moves[steps[i]], total, other)
                total[:] = other
            condition(nothing, noise[i if noise.size > 1 else 0], reading, mean, covariance, gain, nothing)
            read = reading @ total
            for j in range(d):
                for k in range(d):
                    total[j, k] -= gain[j] * read[k]
        times_blocks(starts, before[p], total, propagators[p])
