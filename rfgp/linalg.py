"""Matrices: read from what a caller has, as bytes, and Cholesky with graded jitter, none at first, then reported."""

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg.lapack import dpstrf
from torch import Tensor

from rfgp.errors import InvalidArgumentError, JitterWarning, NotPositiveDefiniteError

_FIRST_JITTER = 1e-10
_LAST_JITTER = 1e-4


def read_numbers(name: str, values: Any) -> NDArray[np.float64]:
    """Return what a caller gives as an array of float64 of any shape (...): numbers, lists, arrays, or a tensor.

    Raises:
        InvalidArgumentError: text, ragged lists, complex numbers, or None.
    """
    if isinstance(values, Tensor) and not values.is_complex():
        return np.asarray(values.detach().cpu().double())
    try:
        if values is None or np.iscomplexobj(values):
            raise TypeError(f"not {'None' if values is None else 'complex ones'}")
        return np.asarray(values, dtype=np.float64, order="C")
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"{name} must be real numbers in rows of one length: {str(error)[:100]}.") from error


def finite_rows(x: Any, least: int = 1) -> Tensor:  # (n, d)
    """Return a matrix of numbers, an array or a tensor, as float64 on the CPU, without its gradient.

    Args:
        x: (n, d).
        least: The smallest n that will do.

    Raises:
        InvalidArgumentError: another shape, fewer rows, or values that are not finite.
    """
    rows = torch.as_tensor(read_numbers("The rows", x))
    if rows.ndim != 2 or len(rows) < least or rows.shape[1] == 0 or not bool(torch.isfinite(rows).all()):
        raise InvalidArgumentError(
            f"At least {least} finite rows of a matrix (n, d) are needed, got shape {tuple(rows.shape)}."
        )
    return rows


def packed(tensor: Tensor) -> Tensor:
    """Return a copy (...) with the strides of its shape; with one entry or none `contiguous` leaves any others."""
    return tensor.clone(memory_format=torch.contiguous_format)


def in_bytes(tensor: Tensor) -> memoryview:
    """Return the values (...) of a tensor of any strides and dtype, in its order, as bytes."""
    return packed(tensor.detach().cpu()).reshape(-1).view(torch.uint8).numpy().data


def cholesky(
    matrix: Tensor,  # (n, n)
    name: str,
    *,
    expected: float = 0.0,
) -> Tensor:  # (n, n)
    """Return the lower Cholesky factor of a symmetric matrix.

    Args:
        matrix: (n, n), used as it is. Only if that fails, jitter from 1e-10 to 1e-4 of the mean
            diagonal entry is added, in tenfold steps.
        name: What the matrix is called in messages.
        expected: The largest jitter without a warning, in mean diagonal entries.

    Warns:
        JitterWarning: with the jitter that was needed.

    Raises:
        NotPositiveDefiniteError: not even the largest jitter is enough, or an entry is not finite.
    """
    factor: Tensor
    factor, info = torch.linalg.cholesky_ex(matrix)
    if not info.any():
        return factor
    scale = float(matrix.detach().diagonal().mean().abs())
    jitter = _FIRST_JITTER
    while jitter <= _LAST_JITTER * 1.5 and bool(torch.isfinite(matrix).all()):
        shift = jitter * scale * torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
        factor, info = torch.linalg.cholesky_ex(matrix + shift)
        if not info.any():
            message = f"{name} is numerically singular; {jitter:.0e} of its mean diagonal entry was added."
            if jitter > expected:
                warnings.warn(JitterWarning(message), stacklevel=3)
            return factor
        jitter *= 10
    raise NotPositiveDefiniteError(
        f"{name} is not positive definite, even with {_LAST_JITTER:.0e} of its mean diagonal entry added. "
        "Raise the noise, or look for non-finite hyperparameters."
    )


def half_solve(
    factor: Tensor,  # (n, n)
    right: Tensor,  # (..., n, p)
) -> Tensor:  # (..., n, p)
    """Return L^-1 B for a lower Cholesky factor L."""
    out: Tensor = torch.linalg.solve_triangular(factor, right, upper=False)
    return out


class _Gram(torch.autograd.Function):
    """Phi Phi^T. Its gradient (G + G^T) Phi is one product; autograd takes two."""

    @staticmethod
    def forward(ctx: Any, phi: Tensor) -> Tensor:
        ctx.save_for_backward(phi)
        return phi @ phi.mT

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (phi,) = ctx.saved_tensors
        in_phi: Tensor = (grads[0] + grads[0].mT) @ phi
        return in_phi


def gram(
    phi: Tensor,  # (n, F)
) -> Tensor:  # (n, n)
    """Return Phi Phi^T, differentiable any number of times."""
    out: Tensor = _Gram.apply(phi)
    return out


def covariance_root(
    covariance: Tensor,  # (n, n)
) -> Tensor:  # (n, r)
    """Return a matrix R (n, r) with R R^T a covariance, which may be singular.

    R is the Cholesky factor, or if rounding leaves the matrix indefinite a Cholesky factor with complete pivoting,
    which ends at the numerical rank (LAPACK's pstrf; Higham 1990, "Analysis of the Cholesky decomposition of a
    semi-definite matrix").

    Raises:
        NotPositiveDefiniteError: an entry is not finite.
    """
    factor, info = torch.linalg.cholesky_ex(covariance)
    if not bool(info.any()):
        return torch.as_tensor(factor)
    if not bool(torch.isfinite(covariance).all()):
        raise NotPositiveDefiniteError(
            "A covariance has an entry that is not finite. Look for extreme hyperparameters."
        )
    lower, order, rank, _ = dpstrf(covariance.detach().cpu().double().numpy(), lower=1)
    root = np.zeros((len(lower), rank))
    root[order - 1] = np.tril(lower)[:, :rank]
    return torch.from_numpy(root).to(covariance)
