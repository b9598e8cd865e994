"""The compiled loops over rows and their neighbours: conditionals, and what pulls gradients back through them.

Serial and `nogil`; `rfgp.local.factor` runs them over blocks of rows in threads. In float64 whatever the data are.

Row i with neighbours N has, given their observations, the weights b = C^-1 c and the variance d = v + D_i - b^T c, with
C = v K(N, N) + diag(D_N) and c = v K(N, i). Its entries are -b / sqrt(d) at its neighbours and 1 / sqrt(d) at itself.
With a = (-b, 1), d = a^T M a for the covariance M of N and i, and with gradients B and g in b and d and h = C^-1 B, zero
at i, the gradient in M is

    g a a^T + (h a^T + a h^T) / 2.

Rows of which each has the neighbours of the one before it, and that row, are a run: they share one factorisation, as
the conditionals of all of them are rows of M = L L^T for the covariance M of the neighbours of the first and all rows
of the run. Row p of L without its diagonal is L^T b, and the diagonal is sqrt(d). Their gradients in M are added up
before they are pulled back to the parameters. Source: Vecchia by blocks, Pan et al. (2025), arXiv 2504.12004.

Of what features phi (n, F) leave of a process, v K - phi phi^T stands for v K everywhere; F is 0 where there are none.
A gradient W in v K - phi phi^T is -(W + W^T) phi in phi.

A neighbour that those before it determine but for rounding, such as an exact copy where there is no noise, says nothing
new: its pivot of the factorisation of C is as good as zero, and it is left out.
"""

import numpy as np

from rfgp.compiled import jit

_SPENT = 1e-13
"""Of v + D: a pivot below it is one of rounding."""
_LONGEST = 64
"""The most rows of a run that share a factorisation, which bounds its memory."""
MATERN12, MATERN32, MATERN52, GAUSSIAN = 0, 1, 2, 3


@jit(fastmath={"reassoc", "contract", "nsz"})
def correlation(kind, square):
    """Return k and dk / d(r^2) at r^2; of Matern 1/2 the slope at 0, which is infinite, as 0."""
    if kind == GAUSSIAN:
        value = np.exp(-0.5 * square)
        return value, -0.5 * value
    r = np.sqrt(square)
    if kind == MATERN12:
        value = np.exp(-r)
        return value, -0.5 * value / r if r > 0 else 0.0
    if kind == MATERN32:
        r *= np.sqrt(3.0)
        decay = np.exp(-r)
        return (1 + r) * decay, -1.5 * decay
    r *= np.sqrt(5.0)
    decay = np.exp(-r)
    return (1 + r + r * r / 3) * decay, -(5.0 / 6) * (1 + r) * decay


@jit(fastmath={"reassoc", "contract", "nsz"})
def _run_end(i, last, near, starts):
    """Return the row after the last of the run that begins at row i, at most `last`."""
    j = i + 1
    while j < min(last, i + _LONGEST):
        a, b, c = starts[j - 1], starts[j], starts[j + 1]
        if c - b != b - a + 1:
            return j
        for e in range(b - a):
            if near[a + e] != near[b + e]:
                return j
        j += 1
    return j


@jit(fastmath={"reassoc", "contract", "nsz"})
def _spaces(most, d, features):
    """Return room for up to `most` places: neighbours and the rows of a run.

    Their places (d, m), noise and what those before leave of the variance of each (m,); values and slopes of the kernel
    between each of these and those before it, and the factor (m, m), with the inverses of its diagonal, 0 for what is
    spent, (m,); and their features (m, F) with the products of these (m, m).
    """
    square = (most, most)
    given = np.empty((d, most)), np.zeros(most), np.empty(most)
    known = np.empty((most, features)), np.zeros(square)
    return given, (np.empty(square), np.empty(square), np.empty(square)), np.empty(most), known


@jit(fastmath={"reassoc", "contract", "nsz"})
def _most(first, last, starts):
    """Return the most places of a run of some rows: the entries of its last row."""
    most = 1
    for i in range(first, last):
        most = max(most, starts[i + 1] - starts[i])
    return most


@jit(fastmath={"reassoc", "contract", "nsz"})
def _correlate(kind, places, count, values, slopes):
    """Fill values and slopes of the kernel between each of `count` places and those before it."""
    for p in range(1, count):
        for q in range(p):
            values[p, q] = 0.0
        for c in range(places.shape[0]):
            for q in range(p):
                values[p, q] += (places[c, p] - places[c, q]) ** 2
        for q in range(p):
            values[p, q], slopes[p, q] = correlation(kind, values[p, q])


@jit(fastmath={"reassoc", "contract", "nsz"})
def _multiply(rows, count, products):
    """Write the products (k + 1, k + 1), on and below the diagonal, of `count` rows of features (k + 1, F)."""
    features = rows.shape[1]
    for p in range(count):
        for q in range(0, p + 1, 2):  # two at a time, for fewer loads
            r = min(q + 1, p)
            first, second = 0.0, 0.0
            for c in range(features):
                first += rows[p, c] * rows[q, c]
                second += rows[p, c] * rows[r, c]
            products[p, q] = first
            products[p, r] = second


@jit(fastmath={"reassoc", "contract", "nsz"})
def _gather(z, phi, noise, near, spaces):
    """Fill the places, the noise and the features of rows `near` (m,)."""
    (places, noises, _), _, _, (rows, _) = spaces
    for p in range(near.size):
        for c in range(z.shape[1]):
            places[c, p] = z[near[p], c]
        noises[p] = noise[near[p]]
        for f in range(phi.shape[1]):
            rows[p, f] = phi[near[p], f]


@jit(fastmath={"reassoc", "contract", "nsz"})
def _factorize(kind, variance, count, spaces):
    """Factorise the covariance of `count` places with noise, and note what those before leave of each without it."""
    (places, noises, left), (values, slopes, lower), inverse, (rows, products) = spaces
    _correlate(kind, places, count, values, slopes)
    if rows.shape[1] > 0:
        _multiply(rows, count, products)
    for p in range(count):
        own = lower[p]
        for q in range(p):
            other, total = lower[q], variance * values[p, q] - products[p, q]
            for s in range(q):
                total -= own[s] * other[s]
            own[q] = total * inverse[q]
        total = variance - products[p, p]
        for s in range(p):
            total -= own[s] ** 2
        left[p] = total
        full = variance + noises[p]
        pivot = max(total + noises[p], _SPENT * full)
        own[p] = np.sqrt(pivot)
        inverse[p] = 1 / own[p] if total + noises[p] >= _SPENT * full else 0.0


@jit(fastmath={"reassoc", "contract", "nsz"})
def _solve(lower, inverse, x, count):
    """Turn x (k,) into L^-1 x."""
    for p in range(count):
        total = x[p]
        for s in range(p):
            total -= lower[p, s] * x[s]
        x[p] = total * inverse[p]


@jit(fastmath={"reassoc", "contract", "nsz"})
def _solve_transposed(lower, inverse, x, count):
    """Turn x (k,) into L^-T x."""
    for p in range(count - 1, -1, -1):
        x[p] *= inverse[p]
        for s in range(p):
            x[s] -= x[p] * lower[p, s]


@jit(fastmath={"reassoc", "contract", "nsz"})
def conditional_rows(first, last, kind, z, phi, noise, variance, near, starts, share, entries):
    """Write the weights b of neighbours and the deviation sqrt(d) of rows from `first` to before `last`.

    z (n, d), phi (n, F), noise (n,), near (nnz,) the rows that the entries belong to, that of the row itself last,
    starts (r + 1,) of the r rows whose entries are wanted, `share` of its own noise in each deviation, entries (nnz,).
    """
    spaces = _spaces(_most(first, last, starts), z.shape[1], phi.shape[1])
    (_, noises, left), (_, _, lower), inverse, _ = spaces
    i = first
    while i < last:
        end = _run_end(i, last, near, starts)
        _gather(z, phi, noise, near[starts[end - 1] : starts[end]], spaces)
        _factorize(kind, variance, starts[end] - starts[end - 1], spaces)
        for j in range(i, end):
            a, b = starts[j], starts[j + 1] - 1
            for p in range(b - a):
                entries[a + p] = lower[b - a, p]
            _solve_transposed(lower, inverse, entries[a:b], b - a)
            entries[b] = np.sqrt(max(left[b - a], 0.0) + share * noises[b - a])
        i = end


@jit(fastmath={"reassoc", "contract", "nsz"})
def spread_rows(entries, near, starts, x):
    """Turn x (n, c) into L x: row i is sqrt(d_i) x_i and the weighted rows of its neighbours, those of L x."""
    for i in range(x.shape[0]):
        a, b = starts[i], starts[i + 1] - 1
        for c in range(x.shape[1]):
            x[i, c] *= entries[b]
        for e in range(a, b):
            weight, j = entries[e], near[e]
            for c in range(x.shape[1]):
                x[i, c] += weight * x[j, c]


@jit(fastmath={"reassoc", "contract", "nsz"})
def gather_rows(entries, near, starts, x):
    """Turn x (n, c) into L^T x."""
    for i in range(x.shape[0] - 1, -1, -1):
        a, b = starts[i], starts[i + 1] - 1
        for e in range(a, b):
            weight, j = entries[e], near[e]
            for c in range(x.shape[1]):
                x[j, c] += weight * x[i, c]
        for c in range(x.shape[1]):
            x[i, c] *= entries[b]


@jit(fastmath={"reassoc", "contract", "nsz"})
def pull_rows(
    first, last, kind, z, phi, noise, variance, near, starts, entries, grad, in_lengths, in_noise, in_phi
):
    """Add to `in_lengths` (d,) sum W k' (z_p - z_q)^2 over pairs, to `in_noise` (n,) and `in_phi` (n, F).

    `entries` (nnz,) are those of the inverse factor, and `grad` (nnz,) is that in them. Return the gradient in v.
    """
    most = _most(first, last, starts)
    spaces = _spaces(most, z.shape[1], phi.shape[1])
    (places, _, _), (values, slopes, lower), inverse, (features, _) = spaces
    in_matrix, left, right, pairs = np.zeros((most, most)), np.empty(most), np.empty(most), np.empty(most)
    in_variance = 0.0
    i = first
    while i < last:
        end = _run_end(i, last, near, starts)
        rows = near[starts[end - 1] : starts[end]]
        _gather(z, phi, noise, rows, spaces)
        _factorize(kind, variance, rows.size, spaces)
        for p in range(rows.size):
            in_matrix[p, : p + 1] = 0.0
        for j in range(i, end):
            a, b = starts[j], starts[j + 1]
            _weigh(entries[a:b], grad[a:b], lower, inverse, left, right)
            for p in range(b - a):
                x, y = left[p], right[p]
                for q in range(p + 1):
                    in_matrix[p, q] += x * right[q] + y * left[q]
        for p in range(rows.size):
            in_noise[rows[p]] += 0.5 * in_matrix[p, p]
            in_variance += 0.5 * in_matrix[p, p]
            for q in range(p):
                pairs[q] = in_matrix[p, q]
            in_variance += _pull(places, p, values, slopes, pairs, variance, in_lengths)
            in_matrix[p, p] *= 0.5
        if phi.shape[1] > 0:
            _pull_features(in_matrix, features, rows, in_phi)
        i = end
    return in_variance


@jit(fastmath={"reassoc", "contract", "nsz"})
def _weigh(entries, grad, lower, inverse, left, right):
    """Write a and g a + h (k + 1,) of a row, whose gradient in M is half the sum of their products.

    `entries` (k + 1,) are those of its row of the inverse factor, and `grad` is that in them.
    """
    count = entries.size - 1
    scale = entries[count]
    total = -grad[count]
    for p in range(count):
        left[p] = entries[p] / scale
        total -= grad[p] * left[p]
        right[p] = -grad[p] * scale
    in_d = 0.5 * scale**3 * total
    _solve(lower, inverse, right, count)
    _solve_transposed(lower, inverse, right, count)
    for p in range(count):
        right[p] += in_d * left[p]
    left[count], right[count] = 1.0, in_d


@jit(fastmath={"reassoc", "contract", "nsz"})
def _pull_features(in_products, features, near, in_phi):
    """Take (W + W^T) phi of rows `near` (k + 1,) from `in_phi` (n, F); what is above W's diagonal is overwritten."""
    count, wide = near.size, 4  # so many rows at a time, for fewer stores
    for p in range(count):
        in_products[p, p] *= 2
        for q in range(p):
            in_products[q, p] = in_products[p, q]
    whole = count - count % wide
    for p in range(count):
        i, w = near[p], in_products[p]
        for q in range(0, whole, wide):
            a, b, c, d = w[q], w[q + 1], w[q + 2], w[q + 3]
            for f in range(features.shape[1]):
                in_phi[i, f] -= (a * features[q, f] + b * features[q + 1, f]) + (
                    c * features[q + 2, f] + d * features[q + 3, f]
                )
        for q in range(whole, count):
            for f in range(features.shape[1]):
                in_phi[i, f] -= w[q] * features[q, f]


@jit(fastmath={"reassoc", "contract", "nsz"})
def _pull(places, p, values, slopes, pairs, variance, in_lengths):
    """Add what gradients (k,) in the kernel between place p and those before it are in `in_lengths`; return in v."""
    in_variance = 0.0
    for q in range(p):
        in_variance += pairs[q] * values[p, q]
        pairs[q] *= variance * slopes[p, q]
    for c in range(places.shape[0]):
        total = 0.0
        for q in range(p):
            total += pairs[q] * (places[c, p] - places[c, q]) ** 2
        in_lengths[c] += total
    return in_variance


@jit(fastmath={"reassoc", "contract", "nsz"})
def outer_rows(first, last, left, right, near, starts, out):
    """Write left[i] . right[j] at the entries (i, j) of rows from `first` to before `last`; left, right (n, c)."""
    for i in range(first, last):
        for e in range(starts[i], starts[i + 1]):
            j, total = near[e], 0.0
            for c in range(left.shape[1]):
                total += left[i, c] * right[j, c]
            out[e] = total


@jit(fastmath={"reassoc", "contract", "nsz"})
def condition_points(first, last, kind, z, phi, noise, variance, points, points_phi, near, weights, left):
    """Write b (q, k) and d (q,), without noise, of points (q, d) given rows near (q, k); from `first` to before `last`.

    Their features are points_phi (q, F). A row -1 is none.
    """
    most = near.shape[1]
    spaces = _spaces(most + 1, z.shape[1], phi.shape[1])
    (places, noises, rest), (_, _, lower), inverse, (rows, _) = spaces
    for i in range(first, last):
        count = 0
        while count < most and near[i, count] >= 0:
            count += 1
        _gather(z, phi, noise, near[i, :count], spaces)
        places[:, count], rows[count], noises[count] = points[i], points_phi[i], 0.0
        _factorize(kind, variance, count + 1, spaces)
        left[i] = max(rest[count], 0.0)
        for p in range(most):
            weights[i, p] = lower[count, p] if p < count else 0.0
        _solve_transposed(lower, inverse, weights[i], count)
