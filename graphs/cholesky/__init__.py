"""Sparse Cholesky factors: orderings, symbolic analysis of a pattern, and factors of matrices on it."""

from graphs.cholesky.factor import Analysis as Analysis
from graphs.cholesky.factor import Factor as Factor
from graphs.cholesky.factor import analyze as analyze
