"""Cholesky factors, and what happens where there is none."""

import numpy as np
import pytest
import torch

import rfgp
from rfgp import learn, linalg, metrics, theory
from rfgp.couplings import norms


def test_jitter_only_after_a_failure_and_reported():
    singular = torch.ones(4, 4, dtype=torch.float64)
    with pytest.warns(rfgp.JitterWarning, match="The matrix is numerically singular; 1e-10 of"):
        factor = linalg.cholesky(singular, "The matrix")
    torch.testing.assert_close(factor @ factor.T, singular, rtol=0, atol=1e-8)
    linalg.cholesky(torch.eye(3), "The matrix")  # a warning would be an error here
    for hopeless in (-torch.eye(3), torch.full((2, 2), float("nan"))):
        with pytest.raises(rfgp.NotPositiveDefiniteError, match="The matrix is not positive definite"):
            linalg.cholesky(hopeless, "The matrix")


@pytest.mark.parametrize("values", ["text", [[1.0], [1.0, 2.0]], [1j], None, {}, torch.ones(2, dtype=torch.complex64)])
def test_what_is_no_array_of_numbers_is_named_wherever_it_is_read(values):
    calls = [
        lambda: linalg.read_numbers("A thing", values),
        lambda: linalg.finite_rows(values),
        lambda: norms.correlation_factor(values),
        lambda: metrics.rmse(values, [1.0]),
        lambda: theory.orthogonal_moment(values, 2),
        lambda: learn.attention_error(values, values),
    ]
    for call in calls:
        with pytest.raises(rfgp.InvalidArgumentError):
            call()


def test_numbers_are_read_as_they_are():
    parameter = torch.tensor([1.5, 2.5], requires_grad=True)
    for values in ([1.5, 2.5], np.array([1.5, 2.5], np.float32), parameter, parameter.detach().bfloat16()):
        found = linalg.read_numbers("x", values)
        assert found.dtype == np.float64
        assert found.tolist() == [1.5, 2.5]
