"""Derivatives of the softmax likelihood of C latent functions.

With the probabilities p at f and the count w of a row, the curvature of its log density is W = w (diag(p) - p p^T).
"""

import torch
from torch import Tensor

from rfgp.likelihoods import Likelihood
from rfgp.rows import Block


def curvature(
    f: Tensor,  # (n, C)
    counts: Tensor,  # (n, 1)
) -> Tensor:  # (n, C, C)
    """Return the curvature W of the log density, (n, C, C).

    Args:
        f: The latent values, (n, C).
        counts: The number of observations of each row, (n, 1).
    """
    p = torch.softmax(f, dim=1)
    return counts[:, :, None] * (torch.diag_embed(p) - p[:, :, None] * p[:, None])


def curvature_product(
    f: Tensor,  # (n, C)
    counts: Tensor,  # (n, 1)
    v: Tensor,  # (n, C)
) -> Tensor:  # (n, C)
    """Return the product W v with the curvature.

    Args:
        f: The latent values.
        counts: The number of observations of each row.
        v: The vectors.
    """
    p = torch.softmax(f, dim=1)
    return counts * p * (v - (p * v).sum(1, keepdim=True))


def determinant_gradient(
    f: Tensor,  # (n, C)
    counts: Tensor,  # (n, 1)
    covariance: Tensor,  # (n, C, C)
) -> Tensor:  # (n, C)
    """Return the gradient s of -log|I + K W| / 2 in f.

    s_ic = -w_i p_ic / 2 ((V_cc - p^T diag V) - 2 ((V p)_c - p^T V p)).

    Args:
        f: The latent values.
        counts: The number of observations of each row.
        covariance: The posterior covariances V of the functions at each row.
    """
    p = torch.softmax(f, dim=1)
    variances = covariance.diagonal(dim1=1, dim2=2)
    shared = (covariance @ p[:, :, None])[:, :, 0]
    first = variances - (p * variances).sum(1, keepdim=True)
    return -0.5 * counts * p * (first - 2 * (shared - (p * shared).sum(1, keepdim=True)))


def log_prob_gradient(
    likelihood: Likelihood,
    rows: Block,
    f: Tensor,  # (n, C)
) -> Tensor:  # (n, C)
    """Return the gradient g of the log density of all rows in f.

    Args:
        likelihood: The likelihood.
        rows: The rows.
        f: The latent values, (n, C).
    """
    return rows.counts()[:, None] * likelihood.slopes(rows.targets[:, 0], f).first


def softmax_cavity(
    likelihood: Likelihood,
    rows: Block,
    f: Tensor,  # (n, C)
    covariance: Tensor,  # (n, C, C)
) -> tuple[Tensor, Tensor]:
    """Return the mean (n, C) and covariance (n, C, C) of f at each row without its own site.

    The mode of the other rows is not searched again (Laplace's cavity).

    Args:
        likelihood: The likelihood.
        rows: The rows.
        f: The mode, (n, C).
        covariance: The posterior covariances of the functions at each row.
    """
    gradient, weight = log_prob_gradient(likelihood, rows, f), curvature(f, rows.counts()[:, None])
    without = torch.linalg.solve(torch.eye(f.shape[1], dtype=f.dtype) - covariance @ weight, covariance)
    without = (without + without.mT) / 2
    return f - (without @ gradient[:, :, None])[:, :, 0], without
