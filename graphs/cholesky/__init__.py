"""Sparse Cholesky factors: orderings, symbolic analysis of a pattern, and factors of matrices on it."""

from graphs.cholesky.analysis import Analysis as Analysis
from graphs.cholesky.analysis import analyze as analyze
from graphs.cholesky.factor import Factor as Factor
