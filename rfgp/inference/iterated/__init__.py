"""Inference by conjugate gradients and draws, where no matrix is factorised."""
