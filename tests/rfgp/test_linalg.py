"""Cholesky factors, and what happens where there is none."""

import pytest
import torch

import rfgp
from rfgp import linalg


def test_jitter_only_after_a_failure_and_reported():
    singular = torch.ones(4, 4, dtype=torch.float64)
    with pytest.warns(rfgp.JitterWarning, match="The matrix is numerically singular; 1e-10 of"):
        factor = linalg.cholesky(singular, "The matrix")
    torch.testing.assert_close(factor @ factor.T, singular, rtol=0, atol=1e-8)
    linalg.cholesky(torch.eye(3), "The matrix")  # a warning would be an error here
    for hopeless in (-torch.eye(3), torch.full((2, 2), float("nan"))):
        with pytest.raises(rfgp.NotPositiveDefiniteError, match="The matrix is not positive definite"):
            linalg.cholesky(hopeless, "The matrix")
