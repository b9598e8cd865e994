"""Masks that attention with features supports."""

import torch
from torch import Tensor


def hides(
    mask: Tensor,  # (..., L, S)
) -> bool:
    """Return whether a mask hides any key, or changes a score.

    Args:
        mask: (..., L, S), boolean or added to scores.

    Examples:
        >>> hides(torch.zeros(2, 2)), hides(torch.ones(2, 2, dtype=torch.bool))
        (False, True)
    """
    return bool((mask if mask.dtype == torch.bool else mask != 0).any())


def is_causal_mask(
    mask: Tensor,  # (..., L, S)
) -> bool:
    """Return whether a mask hides exactly the keys after each query, by True or -inf.

    Args:
        mask: (..., L, S), boolean or added to scores.

    Examples:
        >>> is_causal_mask(torch.ones(3, 3, dtype=torch.bool).triu(1))
        True
    """
    if mask.ndim < 2 or mask.shape[-1] != mask.shape[-2]:
        return False
    future = torch.ones(mask.shape[-2:], dtype=torch.bool, device=mask.device).triu(1)
    if mask.dtype == torch.bool:
        return bool((mask == future).all())
    return bool((mask == torch.zeros_like(mask).masked_fill(future, -torch.inf)).all())
