"""The compiled loop over pairs of frequencies.

Serial and `nogil`: `rfgp.couplings.energy.repulsion` runs it over blocks of rows in a thread pool.
"""

import numpy as np

from rfgp.compiled import jit

_FASTMATH = {"reassoc", "contract", "nsz"}  # sums in any order; no assumption about NaN or infinity


@jit(fastmath=_FASTMATH)
def repel(gram, row_squares, squares, weights, value, slope, per_length, push, level):
    """Turn rows of the Gram matrix into the coefficients of the gradient, in place.

    With s = |omega_i +- omega_j| and V, V' tabulated at equal steps of s (V' the derivative in s^2):
    gram[i, j] becomes w_j (V'(s+) - V'(s-)), push[i] the sum over j of w_j (V'(s+) + V'(s-)), and, unless it
    is empty, level[i] that of w_j (V(s+) + V(s-)) / 2. Beyond its end the last value and slope hold.
    """
    last = np.float32(slope.size - 1.001)
    zero, half = np.float32(0), np.float32(0.5)
    for i in range(gram.shape[0]):
        pushed, total = zero, zero
        for j in range(gram.shape[1]):
            both = row_squares[i] + squares[j]
            twice = gram[i, j] + gram[i, j]
            far = min(np.sqrt(max(both + twice, zero)) * per_length, last)
            near = min(np.sqrt(max(both - twice, zero)) * per_length, last)
            a, b = np.int32(far), np.int32(near)
            x, y = far - np.float32(a), near - np.float32(b)
            plus = slope[a] + x * (slope[a + 1] - slope[a])
            minus = slope[b] + y * (slope[b + 1] - slope[b])
            pushed += weights[j] * (plus + minus)
            if level.size:
                both_levels = value[a] + x * (value[a + 1] - value[a]) + value[b] + y * (value[b + 1] - value[b])
                total += weights[j] * half * both_levels
            gram[i, j] = weights[j] * (plus - minus)
        push[i] = pushed
        if level.size:
            level[i] = total
