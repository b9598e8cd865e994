"""A Gaussian process with a sum of kernels by dense algebra in numpy."""

import numpy as np


class DenseTerms:
    """y = mean + sum_t f_t + e with covariance matrices of the terms f_t over rows and new points.

    Args:
        covariance: Maps the name of a term and two of "rows" and "new" to a matrix.
        names: The names of the terms.
        y: Targets, (n,).
        mean: The mean, one number.
        noise: The variances of the errors, one number or (n,).
    """

    def __init__(self, covariance, names, y, mean, noise):
        self.covariance, self.names = covariance, names
        self.residual = np.asarray(y) - mean
        total = sum(covariance(name, "rows", "rows") for name in names)
        self.total = total + np.diag(np.broadcast_to(noise, len(self.residual)))

    def log_marginal_likelihood(self):
        sign, log_determinant = np.linalg.slogdet(2 * np.pi * self.total)
        assert sign > 0
        return -0.5 * (log_determinant + self.residual @ np.linalg.solve(self.total, self.residual))

    def mean(self, name):
        return self.covariance(name, "new", "rows") @ np.linalg.solve(self.total, self.residual)

    def cross_covariance(self, first, second):
        left, right = self.covariance(first, "new", "rows"), self.covariance(second, "new", "rows")
        prior = self.covariance(first, "new", "new") if first == second else 0.0
        return prior - left @ np.linalg.solve(self.total, right.T)
