"""Compiled loops over pairs of frequencies.

They are serial and release the lock of the interpreter (`nogil`). `rfgp.couplings.energy.potential` runs them over
blocks of rows in a thread pool.
"""

import numpy as np

from graphs.compiled import jit

_FASTMATH = {"reassoc", "contract", "nsz"}  # sums in any order; no assumption about NaN or infinity


@jit(fastmath=_FASTMATH)
def repel(gram, row_squares, squares, weights, value, slope, per_length, coefficients, weight_slopes):
    """Turn rows of the Gram matrix into the coefficients of the gradient, in place.

    Let s+- = |omega_i +- omega_j|. V and its derivative V' in s^2 are tabulated at equal steps of s. Afterwards

        gram[i, j]       = w_j (V'(s+) - V'(s-)),
        coefficients[i]  = sum_j w_j (V'(s+) + V'(s-)),
        weight_slopes[i] = sum_j w_j (V(s+) + V(s-)) / 2, unless `weight_slopes` is empty.

    Beyond the end of the table its last value and slope hold.

    Args:
        gram: The Gram matrix of some rows with all frequencies, (r, m), which is overwritten.
        row_squares: The squared norms of these rows, (r,).
        squares: The squared norms of all frequencies, (m,).
        weights: The weights w of all frequencies, (m,).
        value: V at the knots of the table.
        slope: V' at the knots of the table.
        per_length: The number of knots per unit of s.
        coefficients: The coefficients of the rows, (r,), which are written.
        weight_slopes: The derivatives in the weights, (r,), which are written, or an empty array.
    """
    last = np.float32(slope.size - 1.001)
    zero, half = np.float32(0), np.float32(0.5)
    for i in range(gram.shape[0]):
        coefficient, total = zero, zero
        for j in range(gram.shape[1]):
            both = row_squares[i] + squares[j]
            twice = gram[i, j] + gram[i, j]
            far = min(np.sqrt(max(both + twice, zero)) * per_length, last)
            near = min(np.sqrt(max(both - twice, zero)) * per_length, last)
            a, b = np.int32(far), np.int32(near)
            x, y = far - np.float32(a), near - np.float32(b)
            plus = slope[a] + x * (slope[a + 1] - slope[a])
            minus = slope[b] + y * (slope[b + 1] - slope[b])
            coefficient += weights[j] * (plus + minus)
            if weight_slopes.size:
                both_values = value[a] + x * (value[a + 1] - value[a]) + value[b] + y * (value[b + 1] - value[b])
                total += weights[j] * half * both_values
            gram[i, j] = weights[j] * (plus - minus)
        coefficients[i] = coefficient
        if weight_slopes.size:
            weight_slopes[i] = total


@jit(fastmath=_FASTMATH)
def repel_products(gram, squares, weights, values, slopes, per_length, distance_weights, coefficients):
    """Compute the coefficients of the gradient of a product potential, in place.

    Let s+- = |omega_ai +- omega_aj| and C' the derivative of C in s^2. With

        g(s+-) = sum_k c_k C_a'(s z_ka) prod_{b != a} C_b(s_b z_kb),

    gram[a, i, j] becomes w_j (g(s+) - g(s-)), and coefficients[a, i] grows by sum_j w_j (g(s+) + g(s-)). The tables are
    read at the knot nearest to s, and at the last knot beyond their end.

    Args:
        gram: The Gram matrices of the F factors, (F, m, m), which are overwritten.
        squares: The squared norms, (F, m).
        weights: The weights w, (m,).
        values: C_a(s z_ka) at the knots, (F, knots, K).
        slopes: Their derivatives in s^2, (F, knots, K).
        per_length: The number of knots per unit of s, (F,).
        distance_weights: The weights c_k of the distances, (K,).
        coefficients: The coefficients (F, m), to which sums are added.
    """
    num_factors, m = squares.shape
    num_distances = distance_weights.size
    last, zero, half = np.float32(values.shape[1] - 1), np.float32(0), np.float32(0.5)
    knots = np.empty((2, num_factors), np.int32)
    product = np.empty(num_distances, np.float32)
    for i in range(m):
        for j in range(i):
            for a in range(num_factors):
                both, twice = squares[a, i] + squares[a, j], gram[a, i, j] + gram[a, i, j]
                knots[0, a] = np.int32(min(np.sqrt(max(both + twice, zero)) * per_length[a] + half, last))
                knots[1, a] = np.int32(min(np.sqrt(max(both - twice, zero)) * per_length[a] + half, last))
            for a in range(num_factors):
                plus, minus = zero, zero
                for side in range(2):
                    for k in range(num_distances):
                        product[k] = distance_weights[k] * slopes[a, knots[side, a], k]
                    for b in range(num_factors):
                        if b != a:
                            for k in range(num_distances):
                                product[k] *= values[b, knots[side, b], k]
                    total = zero
                    for k in range(num_distances):
                        total += product[k]
                    plus, minus = (total, minus) if side == 0 else (plus, total)
                coefficients[a, i] += weights[j] * (plus + minus)
                coefficients[a, j] += weights[i] * (plus + minus)
                gram[a, i, j] = weights[j] * (plus - minus)
                gram[a, j, i] = weights[i] * (plus - minus)
        for a in range(num_factors):
            gram[a, i, i] = zero
