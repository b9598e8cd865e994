"""Raw hyperparameters, remembered and put back."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from rfgp.parameters import Hyperparameters

RawValues = dict[str, Tensor]


def values_of(hyperparameters: Hyperparameters) -> RawValues:
    """Return copies of the raw values by name, each () or (d,)."""
    return {name: raw.detach().clone() for name, raw in hyperparameters.raw.items()}


def restore(hyperparameters: Hyperparameters, values: RawValues, factor: float = 1.0) -> None:
    """Set raw values to these, each () or (d,), the lengthscale times a factor."""
    with torch.no_grad():
        for name, value in values.items():
            hyperparameters.raw[name].copy_(value + math.log(factor) if name == "lengthscale" else value)


def clamp(hyperparameters: Hyperparameters, names: Iterable[str]) -> bool:
    """Move hyperparameters into their bounds; return whether one was outside."""
    moved = False
    with torch.no_grad():
        for name in names:
            raw, (low, high) = hyperparameters.raw[name], hyperparameters.quantities[name].bounds
            inside = raw.clamp(low.log().to(raw), high.log().to(raw))
            moved = moved or not torch.equal(inside, raw)
            raw.copy_(inside)
    return moved
