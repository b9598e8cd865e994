"""The compiled loops over rows and their neighbours: conditionals, and what pulls gradients back through them.

Serial and `nogil`; `rfgp.local.factor` runs them over blocks of rows in threads. In float64 whatever the data are.

Row i with neighbours N has, given their observations, the weights b = C^-1 c and the variance d = v + D_i - b^T c, with
C = v K(N, N) + diag(D_N) and c = v K(N, i). Its entries are -b / sqrt(d) at its neighbours and 1 / sqrt(d) at itself.
With gradients B and g in b and d, h = C^-1 B,

    in c: h - 2 g b,      in C: g b b^T - (h b^T + b h^T) / 2,      in v and D_i beside: g.

Of what features phi (n, F) leave of a process, v K - phi phi^T stands for v K everywhere; F is 0 where there are none.
A gradient W in v K - phi phi^T is -(W + W^T) phi in phi.

A neighbour that those before it determine but for rounding, such as an exact copy where there is no noise, says nothing
new: its pivot of the factorisation of C is as good as zero, and it is left out.
"""

import numpy as np

from rfgp.compiled import jit

_SPENT = 1e-13
"""Of v + D: a pivot below it is one of rounding."""
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
def _spaces(most, d, features):
    """Return room for one row with up to `most` neighbours.

    Their places, and the row's after them (d, k + 1); values and slopes of the kernel between each of these and those
    before it (k + 1, k); the factor of C (k, k); b, h, and weights of pairs (k,); what is spent (k,); and their
    features (k + 1, F) with the products of these (k + 1, k + 1).
    """
    tall = (most + 1, most)
    matrices = np.empty((d, most + 1)), np.empty(tall), np.empty(tall), np.empty((most, most))
    known = np.empty((most + 1, features)), np.zeros((most + 1, most + 1))
    return matrices, (np.empty(most), np.empty(most), np.empty(most)), np.zeros(most, dtype=np.bool_), known


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
def _condition(kind, z, phi, noise, variance, point, point_phi, near, spaces):
    """Fill the spaces of a point (d,) with features (F,) given rows `near`; return v - |phi|^2 - b^T c."""
    (places, values, slopes, lower), (weights, _, _), is_spent, (rows, products) = spaces
    count = near.size
    for c in range(point.size):
        for p in range(count):
            places[c, p] = z[near[p], c]
        places[c, count] = point[c]
    _correlate(kind, places, count + 1, values, slopes)
    if phi.shape[1] > 0:
        for p in range(count):
            rows[p] = phi[near[p]]
        rows[count] = point_phi
        _multiply(rows, count + 1, products)
    for p in range(count):
        for q in range(p):
            total = variance * values[p, q] - products[p, q]
            for s in range(q):
                total -= lower[p, s] * lower[q, s]
            lower[p, q] = 0.0 if is_spent[q] else total / lower[q, q]
        full = variance + noise[near[p]]
        pivot = full - products[p, p]
        for s in range(p):
            pivot -= lower[p, s] ** 2
        is_spent[p] = pivot < _SPENT * full
        lower[p, p] = np.sqrt(max(pivot, _SPENT * full))
    left = variance - products[count, count]
    for p in range(count):  # L u = c, and then L^T b = u
        total = variance * values[count, p] - products[count, p]
        for s in range(p):
            total -= lower[p, s] * weights[s]
        weights[p] = 0.0 if is_spent[p] else total / lower[p, p]
        left -= weights[p] ** 2
    _solve_transposed(lower, weights, is_spent, count)
    return left


@jit(fastmath={"reassoc", "contract", "nsz"})
def _solve_transposed(lower, x, is_spent, count):
    for p in range(count - 1, -1, -1):
        total = x[p]
        for s in range(p + 1, count):
            total -= lower[s, p] * x[s]
        x[p] = 0.0 if is_spent[p] else total / lower[p, p]


@jit(fastmath={"reassoc", "contract", "nsz"})
def conditional_rows(first, last, kind, z, phi, noise, variance, near, starts, share, entries):
    """Write the weights b of neighbours and the deviation sqrt(d) of rows from `first` to before `last`.

    z (n, d), phi (n, F), noise (n,), near (nnz,) the rows that the entries belong to, that of the row itself last,
    starts (r + 1,) of the r rows whose entries are wanted, `share` of its own noise in each deviation, entries (nnz,).
    """
    most = 1
    for i in range(first, last):
        most = max(most, starts[i + 1] - starts[i])
    spaces = _spaces(most, z.shape[1], phi.shape[1])
    weights = spaces[1][0]
    for i in range(first, last):
        a, b = starts[i], starts[i + 1] - 1
        own = near[b]
        left = _condition(kind, z, phi, noise, variance, z[own], phi[own], near[a:b], spaces)
        for p in range(b - a):
            entries[a + p] = weights[p]
        entries[b] = np.sqrt(max(left, 0.0) + share * noise[own])


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
def pull_rows(first, last, kind, z, phi, noise, variance, near, starts, grad, in_lengths, in_noise, in_phi):
    """Add to `in_lengths` (d,) sum W k' (z_p - z_q)^2 over pairs, to `in_noise` (n,) and `in_phi` (n, F).

    `grad` (nnz,) is that in the entries. Return the gradient in v.
    """
    most = 1
    for i in range(first, last):
        most = max(most, starts[i + 1] - starts[i])
    spaces = _spaces(most, z.shape[1], phi.shape[1])
    (places, values, slopes, lower), (weights, back, pairs), is_spent, (features, _) = spaces
    in_products = np.zeros((most + 1, most + 1))
    in_variance = 0.0
    for i in range(first, last):
        a, b = starts[i], starts[i + 1] - 1
        rows, own = near[a:b], near[b]
        left = _condition(kind, z, phi, noise, variance, z[own], phi[own], rows, spaces)
        scale = 1 / np.sqrt(max(left, 0.0) + noise[own])
        in_d = -grad[b]
        for p in range(b - a):
            in_d += grad[a + p] * weights[p]
        in_d *= 0.5 * scale**3
        for p in range(b - a):  # h: L u = B, and then L^T h = u
            total = -grad[a + p] * scale
            for s in range(p):
                total -= lower[p, s] * back[s]
            back[p] = 0.0 if is_spent[p] else total / lower[p, p]
        _solve_transposed(lower, back, is_spent, b - a)
        in_noise[own] += in_d
        in_variance += in_d
        for p in range(b - a):
            pairs[p] = 0.0 if is_spent[p] else back[p] - 2 * in_d * weights[p]
            in_products[b - a, p] = pairs[p]
        in_products[b - a, b - a] = in_d
        in_variance += _pull(places, b - a, values, slopes, pairs, variance, in_lengths)
        for p in range(b - a):
            in_products[p, : p + 1] = 0.0
            if is_spent[p]:
                continue
            in_pivot = weights[p] * (in_d * weights[p] - back[p])
            in_noise[rows[p]] += in_pivot
            in_variance += in_pivot
            for q in range(p):
                pairs[q] = 2 * in_d * weights[p] * weights[q] - back[p] * weights[q] - weights[p] * back[q]
                in_products[p, q] = pairs[q]
            in_products[p, p] = in_pivot
            in_variance += _pull(places, p, values, slopes, pairs, variance, in_lengths)
        if phi.shape[1] > 0:
            _pull_features(in_products, features, near[a : b + 1], in_phi)
    return in_variance


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
    spaces = _spaces(most, z.shape[1], phi.shape[1])
    solved = spaces[1][0]
    for i in range(first, last):
        count = 0
        while count < most and near[i, count] >= 0:
            count += 1
        rest = _condition(kind, z, phi, noise, variance, points[i], points_phi[i], near[i, :count], spaces)
        left[i] = max(rest, 0.0)
        for p in range(most):
            weights[i, p] = solved[p] if p < count else 0.0
