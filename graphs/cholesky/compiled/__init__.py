"""The loops of the sparse Cholesky factorisation."""
