"""Cholesky factors, and what happens where there is none; bytes of tensors; threads."""

import numpy as np
import pytest
import torch

import rfgp
from rfgp import learn, linalg, metrics, theory
from rfgp.couplings import norms
from rfgp.linalg import in_bytes, packed
from rfgp.threads import in_one_thread


def test_jitter_only_after_a_failure_and_reported():
    singular = torch.ones(4, 4, dtype=torch.float64)
    with pytest.warns(rfgp.JitterWarning, match="The matrix is numerically singular: 1e-10 of"):
        factor = linalg.cholesky(singular, "The matrix")
    torch.testing.assert_close(factor @ factor.T, singular, rtol=0, atol=1e-8)
    linalg.cholesky(torch.eye(3), "The matrix")  # a warning would be an error here
    for hopeless in (-torch.eye(3), torch.full((2, 2), float("nan"))):
        with pytest.raises(rfgp.NotPositiveDefiniteError, match="The matrix is not positive definite"):
            linalg.cholesky(hopeless, "The matrix")


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(1).expand(1, 1),
        torch.arange(5.0)[None, :1].mT,
        torch.zeros(3, 0).mT,
        torch.ones(()).expand(3, 4),
        torch.arange(6.0).reshape(2, 3).mT,
        torch.as_strided(torch.arange(4.0), (1,), (0,)),
        torch.tensor(2.0, dtype=torch.bfloat16),
    ],
)
def test_any_strides_have_the_bytes_of_their_values(tensor):
    assert bytes(in_bytes(tensor)) == b"".join(bytes(in_bytes(one.clone())) for one in tensor.reshape(-1))
    assert packed(tensor).stride() == torch.empty(tensor.shape).stride()


def test_one_thread_and_back(monkeypatch):
    told = [4]
    monkeypatch.setattr(torch, "get_num_threads", lambda: told[-1])
    monkeypatch.setattr(torch, "set_num_threads", told.append)
    with pytest.raises(ValueError, match="inside"), in_one_thread():
        raise ValueError("inside")
    with in_one_thread(False):
        pass
    assert told == [4, 1, 4]


@pytest.mark.parametrize("values", ["text", [[1.0], [1.0, 2.0]], [1j], None, {}, torch.ones(2, dtype=torch.complex64)])
def test_inputs_that_are_no_arrays_of_numbers_are_named(values):
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
