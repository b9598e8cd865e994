"""Compiled loops of Vecchia approximations: conditionals of stationary kernels, their gradients, and products.

The loops are serial, `nogil` and in float64. `rfgp.local.factor` runs them over blocks of rows in threads.

Let N be the neighbors of row i, C = v K(N, N) + diag(D_N) and c = v K(N, i). Given the observations of its neighbors,
the row has the weights b = C^-1 c and the variance d = v + D_i - b^T c. Its entries are -b / sqrt(d) at its neighbors
and 1 / sqrt(d) at itself. Let M be the covariance of N and i, and a = (-b, 1), so that d = a^T M a. Let B and g be the
gradients in b and d, and h = C^-1 B, zero at i. The gradient in M is

    g a a^T + (h a^T + a h^T) / 2.

In a run of rows, each has the neighbors of the previous row and that row itself. The rows of a run share one
factorization M = L L^T of the covariance of the neighbors of the first row and all rows of the run. Row p of L without
its diagonal is L^T b, and the diagonal is sqrt(d). Gradients in M are summed over the run before the chain rule is
applied to the parameters. Source: Vecchia by blocks, Pan et al. (2025), arXiv 2504.12004.

If a part with features phi (n, F) is subtracted, v K - phi phi^T replaces v K everywhere. Without them F is 0. A
gradient W in v K - phi phi^T is -(W + W^T) phi in phi.

If the noise is far below v, the first pivot v + D_0 cancels most of the digits of M. With the drops e_pq = v - v K_pq,
which are accurate, the matrix that remains after this pivot is

    e_0p + e_0q - e_pq + (D_0 (v - e_0p - e_0q) - e_0p e_0q) / (v + D_0).

Its entries are those of the distances between neighbors, and not of v. As M has the degree 1 in v and D together, the
gradient in v follows from that in D.

A neighbor can be determined by earlier ones up to rounding, for example an exact copy without noise. Its pivot in the
factorization of C is then zero up to rounding, and it is omitted.

In products, the rows of a run form a dense matrix on the columns of its last row, whose products are those of
BLAS. A run of one row has products of its own, without copies of its columns.
"""

import numpy as np
from numba import float64, int64
from numba.extending import intrinsic

from graphs.compiled import jit
from rfgp.local.kinds import KINDS, MIN_PIVOT_RATIO

# --- Compiled products and solves with small triangular factors -------------------------------------------------------


@jit()
def padded_length(count):
    """Return the smallest multiple of 16 that is at least `count`.

    Loops of that length vectorize without a remainder. It is unsigned, so that the compiler omits checks for negative
    indices.
    """
    return np.uint64((count + 15) & ~15)


@jit()
def aligned_start(p):
    """Return the greatest multiple of 16 that is at most p, unsigned."""
    return np.uint64(p & ~15)


@jit(fastmath={"reassoc", "contract", "nsz"})
def subtract_projection(upper, p, row, begin, end):
    """Subtract from row p of a matrix its projection on earlier rows of the factor.

    Args:
        upper: The rows of L^T, (m, m).
        p: The index of the row.
        row: The row p of the matrix, (m,), which is changed.
        begin: The first entry that is changed.
        end: The entry after the last one.
    """
    most = p & ~3
    for s in range(0, most, 4):  # four at a time, for fewer stores
        a, b, c, d = upper[s, p], upper[s + 1, p], upper[s + 2, p], upper[s + 3, p]
        first, second, third, fourth = upper[s], upper[s + 1], upper[s + 2], upper[s + 3]
        for q in range(begin, end):
            row[q] -= (a * first[q] + b * second[q]) + (c * third[q] + d * fourth[q])
    for s in range(most, p):
        a, first = upper[s, p], upper[s]
        for q in range(begin, end):
            row[q] -= a * first[q]


@jit(fastmath={"reassoc", "contract", "nsz"})
def transpose(upper, lower, count):
    """Write the rows of L from those of L^T, without the diagonal.

    Args:
        upper: The rows of L^T, (m, m).
        lower: The rows of L, (m, m), which are written.
        count: The number of rows.
    """
    for p in range(count):
        for q in range(p):
            lower[p, q] = upper[q, p]


@jit(fastmath={"reassoc", "contract", "nsz"})
def solve(upper, inverse, x, number, count):
    """Overwrite rows of x with their products with L^-1.

    Args:
        upper: The rows of L^T, (m, m), without the diagonal.
        inverse: The inverses of the diagonal of L, (m,).
        x: The rows, (b, m).
        number: The number of rows that are overwritten.
        count: The number of entries of a row.
    """
    end = padded_length(count)
    for p in range(count):
        _eliminate(upper[p], inverse[p], x, number, p, aligned_start(p), end)


@jit(fastmath={"reassoc", "contract", "nsz"})
def solve_transposed(lower, inverse, x, number, count):
    """Overwrite rows of x with their products with L^-T.

    Args:
        lower: The rows of L, (m, m), without the diagonal.
        inverse: The inverses of the diagonal of L, (m,).
        x: The rows, (b, m).
        number: The number of rows that are overwritten.
        count: The number of entries of a row.
    """
    for p in range(count - 1, -1, -1):
        _eliminate(lower[p], inverse[p], x, number, p, aligned_start(0), padded_length(p))


@jit(fastmath={"reassoc", "contract", "nsz"})
def _eliminate(row, inverse, x, number, p, begin, end):
    """Divide entry p of rows of x by a pivot.

    Its product with a row of the factor is subtracted.
    """
    for j in range(0, number - 3, 4):  # four at a time, for fewer loads
        first, second, third, fourth = x[j], x[j + 1], x[j + 2], x[j + 3]
        a, b, c, d = first[p] * inverse, second[p] * inverse, third[p] * inverse, fourth[p] * inverse
        first[p], second[p], third[p], fourth[p] = a, b, c, d
        for s in range(begin, end):
            first[s] -= a * row[s]
            second[s] -= b * row[s]
            third[s] -= c * row[s]
            fourth[s] -= d * row[s]
    for j in range(number & ~3, number):
        single = x[j]
        single[p] *= inverse
        last = single[p]
        for s in range(begin, end):
            single[s] -= last * row[s]


# --- Runs of rows that share loads and factorizations -----------------------------------------------------------------

MAX_RUN = 64
"""The maximum number of rows of a run. It bounds the memory."""


@jit()
def run_end(i, last, near, starts):
    """Return the row after the last one of the run from row i.

    Args:
        i: The first row of the run.
        last: The largest result.
        near: The columns of the entries, (nnz,), with the row itself last.
        starts: The index of the first entry of each row.
    """
    j = i + 1
    while j < min(last, i + MAX_RUN):
        a, b, c = starts[j - 1], starts[j], starts[j + 1]
        if c - b != b - a + 1:
            return j
        for e in range(b - a):
            if near[a + e] != near[b + e]:
                return j
        j += 1
    return j


@jit()
def max_entries(first, last, starts):
    """Return the largest number of entries of some rows, at least 1.

    Args:
        first: The first row.
        last: The row after the last one.
        starts: The index of the first entry of each row.
    """
    most = 1
    for i in range(first, last):
        most = max(most, starts[i + 1] - starts[i])
    return most


# --- Kernels of local processes at squared distances, in compiled loops that the compiler can vectorize --------------

MATERN12, MATERN32, MATERN52, GAUSSIAN = KINDS.values()


@intrinsic
def _float_of(context, bits):
    """Return the float64 with these bits, an int64."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(float64))

    return float64(int64), generate


@jit(fastmath={"reassoc", "contract", "nsz"})
def _exp(x):
    """Return e^x for x <= 0, to a few roundings, in vectorizable steps.

    With x = n log 2 + r, the result is 2^n e^r, by 13 terms of the series at |r| < 0.35.
    """
    n = np.floor(x * 1.4426950408889634 + 0.5)
    r = x - n * 0.6931471805599453
    y = 1 / 12 * r + 1.0
    y = 1 / 11 * r * y + 1.0
    y = 1 / 10 * r * y + 1.0
    y = 1 / 9 * r * y + 1.0
    y = 1 / 8 * r * y + 1.0
    y = 1 / 7 * r * y + 1.0
    y = 1 / 6 * r * y + 1.0
    y = 1 / 5 * r * y + 1.0
    y = 1 / 4 * r * y + 1.0
    y = 1 / 3 * r * y + 1.0
    y = 1 / 2 * r * y + 1.0
    y = r * y + 1.0
    return y * _float_of((np.int64(max(n, -1022.0)) + 1023) << 52) if x > -700.0 else 0.0


@jit(fastmath={"reassoc", "contract", "nsz"})
def correlation(kind, square):
    """Return k and dk / d(r^2) at r^2.

    The infinite slope of Matern 1/2 at 0 is returned as 0.

    Args:
        kind: The number of the kernel.
        square: r^2.

    Returns:
        The value k and its derivative in r^2.
    """
    if kind == GAUSSIAN:
        value = _exp(-0.5 * square)
        return value, -0.5 * value
    r = np.sqrt(square)
    if kind == MATERN12:
        value = _exp(-r)
        return value, -0.5 * value / r if r > 0 else 0.0
    if kind == MATERN32:
        r *= np.sqrt(3.0)
        decay = _exp(-r)
        return (1 + r) * decay, -1.5 * decay
    r *= np.sqrt(5.0)
    decay = _exp(-r)
    return (1 + r + r * r / 3) * decay, -(5.0 / 6) * (1 + r) * decay


@jit(fastmath={"reassoc", "contract", "nsz"})
def correlate_row(kind, values, slopes, begin, end):
    """Overwrite squared distances with values of the kernel, and write slopes.

    Args:
        kind: The number of the kernel.
        values: Squared distances, which are overwritten.
        slopes: The derivatives in r^2, which are written.
        begin: The first entry.
        end: The entry after the last.
    """
    if kind == MATERN12:  # one loop for each kernel, so that the compiler vectorizes it
        for q in range(begin, end):
            values[q], slopes[q] = correlation(MATERN12, values[q])
    elif kind == MATERN32:
        for q in range(begin, end):
            values[q], slopes[q] = correlation(MATERN32, values[q])
    elif kind == MATERN52:
        for q in range(begin, end):
            values[q], slopes[q] = correlation(MATERN52, values[q])
    else:
        for q in range(begin, end):
            values[q], slopes[q] = correlation(GAUSSIAN, values[q])


@jit(fastmath={"reassoc", "contract", "nsz"})
def drop(kind, square):
    """Return 1 - k at r^2, without cancellation near 0.

    For Matern kernels with t = (2 nu)^(1/2) r it is a series: the integral of u e^-u for nu 3/2, and of
    u (1 + u) e^-u / 3 for nu 5/2, from 0 to t.

    Args:
        kind: The number of the kernel.
        square: r^2.
    """
    if kind in (GAUSSIAN, MATERN12):
        return -np.expm1(-0.5 * square if kind == GAUSSIAN else -np.sqrt(square))
    t = np.sqrt(square * (3.0 if kind == MATERN32 else 5.0))
    if t > 0.5:
        return 1 - correlation(kind, square)[0]
    total, power = 0.0, t * t
    for j in range(16):
        total += power / (j + 2) * (1.0 if kind == MATERN32 else (1 - j) / 3)
        power *= -t / (j + 1)
    return total


# --- Compiled loops over rows and their neighbors: conditionals and their gradients ----------------------------------

_LOG_2PI = np.log(2 * np.pi)
_MAX_RATIO = 1e12
"""The ratio of v to the noise above which the first pivot is eliminated without cancellation.

At 1e12, standard deviations of 200 rows had errors of 2e-4. Below, no digits that matter are lost."""


@jit(fastmath={"reassoc", "contract", "nsz"})
def _workspace(most, d, features):
    """Allocate arrays for a run of at most `most` neighbors and rows.

    Rows are padded to multiples of 16.

    The first three arrays are positions (d, m), noise (m,) and conditional variances (m,). The next two are values and
    slopes of the kernel between each position and later ones (m, m). Then follow the factor and its transpose (m, m)
    without the diagonal, and the inverses of the diagonal (m,), 0 for omitted positions. The last two are features
    (m, F) and their products (m, m).
    """
    square = (most, int(padded_length(most)))
    given = np.zeros((d, square[1])), np.zeros(most), np.empty(most)
    factors = np.zeros(square), np.zeros(square), np.empty(most)
    return given, (np.zeros(square), np.zeros(square)), factors, (np.empty((most, features)), np.zeros(square))


@jit(fastmath={"reassoc", "contract", "nsz"})
def _correlate(kind, positions, count, values, slopes):
    """Write values and slopes of the kernel between positions and later ones."""
    end = padded_length(count)
    for p in range(count):
        begin, squares = aligned_start(p), values[p]
        for q in range(begin, end):
            squares[q] = 0.0
        for c in range(positions.shape[0]):
            position, others = positions[c, p], positions[c]
            for q in range(begin, end):
                squares[q] += (position - others[q]) ** 2
        correlate_row(kind, squares, slopes[p], begin, end)


@jit(fastmath={"reassoc", "contract", "nsz"})
def _multiply(rows, count, products):
    """Write the products (k + 1, k + 1) of rows of features (k + 1, F).

    Only those on and above the diagonal are written.
    """
    features = rows.shape[1]
    for p in range(count):
        for q in range(0, p + 1, 2):  # two at a time, for fewer loads
            r = min(q + 1, p)
            first, second = 0.0, 0.0
            for c in range(features):
                first += rows[p, c] * rows[q, c]
                second += rows[p, c] * rows[r, c]
            products[q, p] = first
            products[r, p] = second


@jit(fastmath={"reassoc", "contract", "nsz"})
def _gather(z, phi, noise, near, workspace):
    """Copy the positions, the noise and the features of rows `near` (m,)."""
    (positions, noises, _), _, _, (rows, _) = workspace
    for p in range(near.size):
        for c in range(z.shape[1]):
            positions[c, p] = z[near[p], c]
        noises[p] = noise[near[p]]
        for f in range(phi.shape[1]):
            rows[p, f] = phi[near[p], f]


@jit(fastmath={"reassoc", "contract", "nsz"})
def _factorize(kind, variance, count, workspace):
    """Factorize the covariance of positions with noise.

    Conditional variances without the noise are written as well.
    """
    (positions, noises, left), (values, slopes), (upper, _, inverse), (features, products) = workspace
    _correlate(kind, positions, count, values, slopes)
    if features.shape[1] > 0:
        _multiply(features, count, products)
    if _cancels(variance, count, workspace):
        _factorize_differences(kind, variance, count, workspace)
        return
    end = padded_length(count)
    for p in range(count):
        begin, row, correlations, explained = aligned_start(p), upper[p], values[p], products[p]
        for q in range(begin, end):
            row[q] = variance * correlations[q] - explained[q]
        subtract_projection(upper, p, row, begin, end)
        left[p] = row[p]
        full, pivot = variance + noises[p], left[p] + noises[p]
        inverse[p] = 1 / np.sqrt(pivot) if pivot >= MIN_PIVOT_RATIO * full else 0.0
        for q in range(begin, end):
            row[q] *= inverse[p]
        row[begin : p + 1], row[count:] = 0.0, 0.0


@jit(fastmath={"reassoc", "contract", "nsz"})
def _cancels(variance, count, workspace):
    """Return whether the noise of positions is too small for the kernel's own rounding."""
    (_, noises, _), _, _, (features, _) = workspace
    return features.shape[1] == 0 and 0.0 < noises[:count].max() * _MAX_RATIO < variance


@jit(fastmath={"reassoc", "contract", "nsz"})
def _factorize_differences(kind, variance, count, workspace):
    """Factorize the covariance of positions with a small noise, with the first pivot by differences of the kernel."""
    (positions, noises, left), _, (upper, _, inverse), _ = workspace
    for q in range(count):
        left[q] = _drop_between(kind, positions, variance, 0, q)  # until the pivot of q
    for p in range(count):
        row = upper[p]
        row[:] = 0.0
        for q in range(p, count):
            both, between = left[p] + left[q], _drop_between(kind, positions, variance, p, q)
            shared = noises[0] * (variance - both) - left[p] * left[q]
            row[q] = both - between + shared / (variance + noises[0]) if p else variance - left[q]
        full = row[p] + noises[p]
        for s in range(1, p):
            for q in range(p, count):
                row[q] -= upper[s, p] * upper[s, q]
        left[p] = row[p]
        pivot = left[p] + noises[p]
        inverse[p] = 1 / np.sqrt(pivot) if pivot >= MIN_PIVOT_RATIO * full else 0.0
        row *= inverse[p]
        row[p] = 0.0


@jit(fastmath={"reassoc", "contract", "nsz"})
def _drop_between(kind, positions, variance, p, q):
    """Return v - v k between two positions."""
    square = 0.0
    for c in range(positions.shape[0]):
        square += (positions[c, p] - positions[c, q]) ** 2
    return variance * drop(kind, square)


@jit(fastmath={"reassoc", "contract", "nsz"})
def _start_run(i, last, kind, z, phi, noise, variance, near, starts, workspace):
    """Factorize the covariance of the run from row i, and return the row after its last one and the run's columns."""
    _, _, (upper, lower, _), _ = workspace
    end = run_end(i, last, near, starts)
    rows = near[starts[end - 1] : starts[end]]
    _gather(z, phi, noise, rows, workspace)
    _factorize(kind, variance, rows.size, workspace)
    transpose(upper, lower, rows.size)
    return end, rows


@jit(fastmath={"reassoc", "contract", "nsz"})
def conditional_rows(first, last, kind, z, phi, noise, variance, near, starts, share, entries):
    """Write the weights b of neighbors and the standard deviation sqrt(d) of rows.

    The rows are those from `first` to `last` - 1.

    z (n, d), phi (n, F) and noise (n,) are those of all rows. near (nnz,) are the columns of the entries, with the row
    itself last. starts (r + 1,) are the first entries of the r rows. `share` is the share of the noise in each
    variance.
    """
    workspace = _workspace(max_entries(first, last, starts), z.shape[1], phi.shape[1])
    (_, noises, left), _, (_, lower, inverse), _ = workspace
    solved = np.empty((MAX_RUN, lower.shape[1]))
    i = first
    while i < last:
        end, rows = _start_run(i, last, kind, z, phi, noise, variance, near, starts, workspace)
        for j in range(i, end):
            solved[j - i] = lower[rows.size - end + j]  # zeros from its diagonal on
        solve_transposed(lower, inverse, solved, end - i, rows.size)
        for j in range(i, end):
            a, b = starts[j], starts[j + 1] - 1
            entries[a:b] = solved[j - i, : b - a]
            entries[b] = np.sqrt(max(left[b - a], 0.0) + share * noises[b - a])
        i = end


@jit(fastmath={"reassoc", "contract", "nsz"})
def add_row_gradients(
    first, last, kind, z, phi, noise, variance, near, starts, entries, grad, grad_lengths, grad_noise, grad_phi
):
    """Add the gradients of rows, and return the gradient in v.

    They are added to `grad_lengths` (d,), `grad_noise` (n,) and `grad_phi` (n, F).

    `grad_lengths` is the sum of W k' (z_p - z_q)^2 over pairs. `entries` (nnz,) are those of the inverse factor, and
    `grad` (nnz,) is the gradient in them.
    """
    most = max_entries(first, last, starts)
    workspace = _workspace(most, z.shape[1], phi.shape[1])
    _, _, (upper, lower, inverse), (features, _) = workspace
    width = lower.shape[1]
    grad_matrix, grad_d = np.empty((most + 1, width)), np.empty(MAX_RUN)
    left, right = np.empty((MAX_RUN + 1, width)), np.empty((MAX_RUN + 1, width))
    grad_variance = 0.0
    i = first
    while i < last:
        end, rows = _start_run(i, last, kind, z, phi, noise, variance, near, starts, workspace)
        for j in range(i, end):
            a, b = starts[j], starts[j + 1]
            grad_d[j - i] = _weigh(entries[a:b], grad[a:b], left[j - i], right[j - i])
        solve(upper, inverse, right, end - i, rows.size)
        for j in range(i, end):
            right[j - i, starts[j + 1] - starts[j] - 1 :] = 0.0
        solve_transposed(lower, inverse, right, end - i, rows.size)
        for j in range(end - i):
            right[j] += grad_d[j] * left[j]
        scaled = -0.5 * (entries[starts[i] : starts[end]] * grad[starts[i] : starts[end]]).sum()
        grad_variance += _pull_products(
            left, right, end - i, rows, variance, scaled, workspace, grad_matrix, grad_lengths, grad_noise
        )
        if phi.shape[1] > 0:
            _pull_features(grad_matrix, features, rows, grad_phi)
        i = end
    return grad_variance


@jit(fastmath={"reassoc", "contract", "nsz"})
def density_rows(
    first, last, kind, z, phi, noise, variance, near, starts, targets, weights, grad_lengths, grad_noise, grad_targets
):
    """Add gradients of the log density of rows, as `add_row_gradients` does.

    All gradients take one pass. The rows are those from `first` to `last` - 1.

    Targets (n, k) have the weights `weights` (k,). Their gradients are added to `grad_targets` (n, k). phi (n, 0) is
    not used. Let x_j be a row of the inverse factor, e_j = x_j . y, and beta_j = C^-1 y of the positions before j. The
    gradient in M is

        sum_j (x_j r_j^T + r_j x_j^T) / 2,    r_j = e_j beta_j + (e_j^2 - 1) x_j / 2.

    A row adds x_j x_j^T to the inverse of M, and x_j e_j to M^-1 y. Return the value and the gradient in v.
    """
    most = max_entries(first, last, starts)
    workspace = _workspace(most, z.shape[1], phi.shape[1])
    (_, noises, rest), _, (upper, lower, inverse), _ = workspace
    width = lower.shape[1]
    grad_matrix, solved = np.empty((most + 1, width)), np.zeros((1, width))
    left, right = np.empty((MAX_RUN + 1, width)), np.empty((MAX_RUN + 1, width))
    value, grad_variance, times, i = 0.0, 0.0, weights.sum(), first
    while i < last:
        end, rows = _start_run(i, last, kind, z, phi, noise, variance, near, starts, workspace)
        before = rows.size - (end - i)
        left[: end - i], right[: end - i] = lower[before : rows.size], 0.0
        solve_transposed(lower, inverse, left, end - i, rows.size)
        for j in range(end - i):
            p = before + j
            scale = 1 / np.sqrt(max(rest[p], 0.0) + noises[p])
            left[j, :p] *= -scale
            left[j, p], left[j, p + 1 :] = scale, 0.0
            value += times * np.log(scale)
        squares = 0.0
        for c in range(weights.size):
            for p in range(before):
                solved[0, p] = targets[rows[p], c]
            solve(upper, inverse, solved, 1, before)
            solved[0, before:] = 0.0
            solve_transposed(lower, inverse, solved, 1, before)
            loss = _pull_targets(left, right, rows, before, inverse, solved[0], targets, c, weights[c], grad_targets)
            value -= loss
            squares += loss - 0.5 * weights[c] * (end - i) * _LOG_2PI
        scaled = squares - 0.5 * times * (end - i)
        grad_variance += _pull_products(
            left, right, end - i, rows, variance, scaled, workspace, grad_matrix, grad_lengths, grad_noise
        )
        i = end
    return value, grad_variance


@jit(fastmath={"reassoc", "contract", "nsz"})
def _pull_targets(left, right, rows, before, inverse, beta, targets, c, times, grad_targets):
    """Add the gradients of an output to those in products and targets.

    Return minus its log density without log |V|.
    """
    total = 0.0
    for j in range(rows.size - before):
        p, error, row, out = before + j, 0.0, left[j], right[j]
        for q in range(p + 1):
            error += row[q] * targets[rows[q], c]
        total += 0.5 * times * (error**2 + _LOG_2PI)
        a, b, kept = times * error, 0.5 * times * (error**2 - 1), error if inverse[p] > 0 else 0.0
        for q in range(p + 1):
            grad_targets[rows[q], c] -= a * row[q]
            out[q] += a * beta[q] + b * row[q]
            beta[q] += kept * row[q]
    return total


@jit(fastmath={"reassoc", "contract", "nsz"})
def _pull_products(left, right, number, rows, variance, scaled, workspace, grad_matrix, grad_lengths, grad_noise):
    """Apply the chain rule to the gradient in M.

    The gradient is half of the sum of products of rows left and right.

    Rows after `number` are overwritten. The sum is written to `grad_matrix` (m + 1, m), which has one spare row. Return
    the gradient in v. If it cancels, it follows from `scaled`, the derivative in the logarithm of a common factor of v
    and D.
    """
    (positions, noises, _), (values, slopes), _, _ = workspace
    pairs, grad_variance = grad_matrix[rows.size], 0.0
    left[number], right[number] = 0.0, 0.0
    _add_products(left, right, number, rows.size, grad_matrix)
    for p in range(rows.size):
        grad_matrix[p, p] *= 0.5
        grad_noise[rows[p]] += grad_matrix[p, p]
        grad_variance += grad_matrix[p, p]
        scaled -= noises[p] * grad_matrix[p, p]
        grad_row = grad_matrix[p]
        grad_variance += _pull(positions, p, rows.size, values[p], slopes[p], grad_row, pairs, variance, grad_lengths)
    return scaled / variance if _cancels(variance, rows.size, workspace) else grad_variance


@jit(fastmath={"reassoc", "contract", "nsz"})
def _add_products(left, right, number, count, out):
    """Write the sum of products left_p right_q + right_p left_q of rows (m,).

    Only the entries on and above the diagonal are written.
    """
    end = padded_length(count)
    for p in range(count):
        begin, row = aligned_start(p), out[p]
        for q in range(begin, end):
            row[q] = 0.0
        for j in range(0, number, 2):  # two at a time, for fewer stores; an odd number is followed by a row of zeros
            first, second, third, fourth = left[j], right[j], left[j + 1], right[j + 1]
            a, b, c, d = first[p], second[p], third[p], fourth[p]
            for q in range(begin, end):
                row[q] += (a * second[q] + b * first[q]) + (c * fourth[q] + d * third[q])


@jit(fastmath={"reassoc", "contract", "nsz"})
def _weigh(entries, grad, left, right):
    """Write a and the gradient in b of a row, and return the gradient in d.

    Zeros follow the entries of the row.

    `entries` (k + 1,) are those of its row of the inverse factor, and `grad` is the gradient in them.
    """
    count = entries.size - 1
    scale, total = entries[count], -grad[count]
    for p in range(count):
        left[p] = entries[p] / scale
        right[p] = -grad[p] * scale
        total -= grad[p] * left[p]
    left[count], left[count + 1 :], right[count:] = 1.0, 0.0, 0.0
    return 0.5 * scale**3 * total


@jit(fastmath={"reassoc", "contract", "nsz"})
def _pull_features(grad_products, features, near, grad_phi):
    """Subtract (W + W^T) phi of rows `near` (k + 1,) from `grad_phi` (n, F).

    W is overwritten below its diagonal.
    """
    count, wide = near.size, 4  # four rows at a time, for fewer stores
    for p in range(count):
        grad_products[p, p] *= 2
        for q in range(p):
            grad_products[p, q] = grad_products[q, p]
    last = count - count % wide
    for p in range(count):
        i, w = near[p], grad_products[p]
        for q in range(0, last, wide):
            a, b, c, d = w[q], w[q + 1], w[q + 2], w[q + 3]
            for f in range(features.shape[1]):
                grad_phi[i, f] -= (a * features[q, f] + b * features[q + 1, f]) + (
                    c * features[q + 2, f] + d * features[q + 3, f]
                )
        for q in range(last, count):
            for f in range(features.shape[1]):
                grad_phi[i, f] -= w[q] * features[q, f]


@jit(fastmath={"reassoc", "contract", "nsz"})
def _pull(positions, p, count, values, slopes, grad_row, pairs, variance, grad_lengths):
    """Add to `grad_lengths` the gradients in a row of the kernel.

    The row has the kernel between position p and later ones. Return the gradient in v.

    Values, slopes, gradients `grad_row` and the space for `pairs` are (m,).
    """
    begin, end, grad_variance = aligned_start(p), padded_length(count), 0.0
    for q in range(begin, end):
        pairs[q] = grad_row[q]
    for q in range(begin, np.uint64(p + 1)):
        pairs[q] = 0.0
    for q in range(begin, end):
        grad_variance += pairs[q] * values[q]
        pairs[q] *= variance * slopes[q]
    for c in range(positions.shape[0]):
        total, position, others = 0.0, positions[c, p], positions[c]
        for q in range(begin, end):
            total += pairs[q] * (position - others[q]) ** 2
        grad_lengths[c] += total
    return grad_variance


@jit(fastmath={"reassoc", "contract", "nsz"})
def multiply_root(entries, near, starts, x):
    """Overwrite x with L x, and return it.

    Row i is sqrt(d_i) x_i plus the weighted rows of its neighbors in L x.

    Args:
        entries: The entries of L, (nnz,).
        near: The columns of the entries, (nnz,), with the row itself last.
        starts: The index of the first entry of each row.
        x: The right factor, (n, c), which is overwritten.
    """
    for i in range(x.shape[0]):
        a, b = starts[i], starts[i + 1] - 1
        for c in range(x.shape[1]):
            x[i, c] *= entries[b]
        for e in range(a, b):
            weight, j = entries[e], near[e]
            for c in range(x.shape[1]):
                x[i, c] += weight * x[j, c]
    return x


@jit(fastmath={"reassoc", "contract", "nsz"})
def multiply_transposed_root(entries, near, starts, x):
    """Overwrite x with L^T x, and return it.

    Args:
        entries: The entries of L, (nnz,).
        near: The columns of the entries, (nnz,), with the row itself last.
        starts: The index of the first entry of each row.
        x: The right factor, (n, c), which is overwritten.
    """
    for i in range(x.shape[0] - 1, -1, -1):
        a, b = starts[i], starts[i + 1] - 1
        for e in range(a, b):
            weight, j = entries[e], near[e]
            for c in range(x.shape[1]):
                x[j, c] += weight * x[i, c]
        for c in range(x.shape[1]):
            x[i, c] *= entries[b]
    return x


@jit()
def _run(i, last, entries, near, starts):
    """Return the row after the run from row i, the columns of the run, and its entries as a matrix (b, m)."""
    end = run_end(i, last, near, starts)
    columns = near[starts[end - 1] : starts[end]]
    block = np.zeros((end - i, columns.size))
    for j in range(i, end):
        block[j - i, : starts[j + 1] - starts[j]] = entries[starts[j] : starts[j + 1]]
    return end, columns, block


@jit(fastmath={"reassoc", "contract", "nsz"})
def _add(x, i, out, j, weight):
    """Add a weighted row of x to a row of `out`."""
    for q in range(np.uint64(x.shape[1])):
        out[j, q] += weight * x[i, q]


@jit(fastmath={"reassoc", "contract", "nsz"})
def multiply_rows(first, last, entries, near, starts, x, out):
    """Write some rows of V x.

    Args:
        first: The first row.
        last: The row after the last one.
        entries: The entries of V, (nnz,).
        near: The columns of the entries, (nnz,).
        starts: The index of the first entry of each row.
        x: The right factor, (n, c), contiguous.
        out: The product, (r, c), whose rows are overwritten.
    """
    i = first
    while i < last:
        end, columns, block = _run(i, last, entries, near, starts)
        if end - i > 1:
            out[i:end] = np.dot(block, x[columns])
        else:
            out[i] = 0.0
            for e in range(columns.size):
                _add(x, columns[e], out, i, block[0, e])
        i = end


@jit(fastmath={"reassoc", "contract", "nsz"})
def multiply_transposed(size, entries, near, starts, x):
    """Return V^T x, (n, c).

    Args:
        size: The number n of columns of V.
        entries: The entries of V, (nnz,).
        near: The columns of the entries, (nnz,).
        starts: The index of the first entry of each row.
        x: The right factor, (r, c), contiguous.
    """
    i, count, out = 0, starts.size - 1, np.zeros((size, x.shape[1]))
    while i < count:
        end, columns, block = _run(i, count, entries, near, starts)
        if end - i > 1:
            part = np.dot(block.T, x[i:end])
            for e in range(columns.size):
                _add(part, e, out, columns[e], 1.0)
        else:
            for e in range(columns.size):
                _add(x, i, out, columns[e], block[0, e])
        i = end
    return out


@jit(fastmath={"reassoc", "contract", "nsz"})
def outer_rows(first, last, left, right, near, starts, out):
    """Write left[i] . right[j] at the entries (i, j) of some rows of V.

    Args:
        first: The first row.
        last: The row after the last one.
        left: The left factor, (r, c), contiguous.
        right: The right factor, (n, c), contiguous.
        near: The columns of the entries of V, (nnz,).
        starts: The index of the first entry of each row.
        out: The products at the entries, (nnz,), which are overwritten.
    """
    i = first
    while i < last:
        end = run_end(i, last, near, starts)
        block = np.dot(right[near[starts[end - 1] : starts[end]]], left[i:end].T)
        for j in range(i, end):
            for e in range(starts[j + 1] - starts[j]):
                out[starts[j] + e] = block[e, j - i]
        i = end
