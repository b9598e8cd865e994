"""Sparse Cholesky factors."""
