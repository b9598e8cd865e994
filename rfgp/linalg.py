"""Matrices: conversion from user input, bytes, and Cholesky factors with increasing, reported jitter."""

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


def real_array(name: str, values: Any) -> NDArray[np.float64]:
    """Return numbers, lists, arrays or a tensor as a float64 array (...).

    Args:
        name: The name of the values in messages.
        values: Numbers, lists, an array or a tensor.

    Raises:
        InvalidArgumentError: If the values are texts, ragged lists, complex numbers or None.

    Examples:
        >>> real_array("x", [1, 2])
        array([1., 2.])
    """
    if isinstance(values, Tensor) and not values.is_complex():
        return np.asarray(values.detach().cpu().double())
    try:
        if values is None or np.iscomplexobj(values):
            raise TypeError(f"not {'None' if values is None else 'complex ones'}")
        return np.asarray(values, dtype=np.float64, order="C")
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(
            f"{name} must be real numbers in rows of equal length, got: {str(error)[:100]}."
        ) from error


def finite_rows(x: Any, least: int = 1) -> Tensor:  # (n, d)
    """Return a matrix as a float64 tensor on the CPU, without its gradient.

    Args:
        x: The matrix (n, d).
        least: The smallest allowed n.

    Raises:
        InvalidArgumentError: If the shape is wrong, there are too few rows, or values are not finite.

    Examples:
        >>> finite_rows([[1, 2]]).dtype
        torch.float64
    """
    rows = torch.as_tensor(real_array("The rows", x))
    if rows.ndim != 2 or len(rows) < least or rows.shape[1] == 0 or not bool(torch.isfinite(rows).all()):
        raise InvalidArgumentError(
            f"x must be a matrix (n, d) of at least {least} finite rows, got shape {tuple(rows.shape)}."
        )
    return rows


def packed(tensor: Tensor) -> Tensor:
    """Return a copy (...) with the strides of its shape.

    In contrast to `contiguous`, it also changes the strides of tensors of one entry.

    Examples:
        >>> packed(torch.ones(1, 3).mT).stride()
        (1, 1)
    """
    return tensor.clone(memory_format=torch.contiguous_format)


def in_bytes(tensor: Tensor) -> memoryview:
    """Return the values (...) of a tensor in its order as bytes.

    Examples:
        >>> len(in_bytes(torch.ones(3, dtype=torch.float64)))
        24
    """
    return packed(tensor.detach().cpu()).reshape(-1).view(torch.uint8).numpy().data


def cholesky(
    matrix: Tensor,  # (n, n)
    name: str,
    *,
    expected: float = 0.0,
) -> Tensor:  # (n, n)
    """Return the lower Cholesky factor of a symmetric matrix.

    Args:
        matrix: The matrix (n, n). Only if it has no factor, jitter from 1e-10 to 1e-4 of the mean diagonal entry is
            added, in tenfold steps.
        name: The name of the matrix in messages.
        expected: The largest jitter without a warning, relative to the mean diagonal entry.

    Warns:
        JitterWarning: Jitter was needed. The message states it.

    Raises:
        NotPositiveDefiniteError: If the largest jitter is too small, or an entry is not finite.

    Examples:
        >>> cholesky(4 * torch.eye(2), "The prior").tolist()
        [[2.0, 0.0], [0.0, 2.0]]
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
            message = (
                f"{name} is numerically singular: {jitter:.0e} of its mean diagonal entry was added. Raise the noise."
            )
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
    """Return L^-1 B for a lower Cholesky factor L.

    Args:
        factor: The factor L, (n, n).
        right: B, (..., n, p).

    Examples:
        >>> half_solve(2 * torch.eye(1), torch.ones(1, 1)).item()
        0.5
    """
    out: Tensor = torch.linalg.solve_triangular(factor, right, upper=False)
    return out


class _Gram(torch.autograd.Function):
    """The product Phi Phi^T, whose gradient takes one product instead of two."""

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
    """Return Phi Phi^T, differentiable any number of times.

    Args:
        phi: The features, (n, F).

    Examples:
        >>> gram(torch.ones(1, 3)).item()
        3.0
    """
    out: Tensor = _Gram.apply(phi)
    return out


def covariance_root(
    covariance: Tensor,  # (n, n)
) -> Tensor:  # (n, r)
    """Return R (n, r) with R R^T equal to a covariance, possibly singular.

    R is the Cholesky factor. If rounding leaves the matrix indefinite, it is a Cholesky factor with complete pivoting
    that ends at the numerical rank (LAPACK's pstrf). Source: Higham (1990), "Analysis of the Cholesky decomposition of
    a semi-definite matrix".

    Args:
        covariance: The covariance, (n, n).

    Raises:
        NotPositiveDefiniteError: If an entry is not finite.

    Examples:
        >>> covariance_root(torch.ones(2, 2, dtype=torch.float64)).shape
        torch.Size([2, 1])
    """
    factor, info = torch.linalg.cholesky_ex(covariance)
    if not bool(info.any()):
        return torch.as_tensor(factor)
    if not bool(torch.isfinite(covariance).all()):
        raise NotPositiveDefiniteError(
            "A covariance must be finite, got an entry that is not. Look for extreme hyperparameters."
        )
    lower, order, rank, _ = dpstrf(covariance.detach().cpu().double().numpy(), lower=1)
    root = np.zeros((len(lower), rank))
    root[order - 1] = np.tril(lower)[:, :rank]
    return torch.from_numpy(root).to(covariance)
