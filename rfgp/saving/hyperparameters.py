"""Hyperparameters and maps in files: their tensors, and checks against the specification."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from rfgp.models.spec import ModelSpec
from rfgp.models.state import space_of
from rfgp.parameters import Hyperparameter, ParameterSpace, ParameterValues
from rfgp.rows import DataSummary
from rfgp.saving.container import Tensors
from rfgp.scaling import Affine, Scaling

_MAX_LOG, _LARGEST = 300.0, 1e100
"""The largest logarithm of a hyperparameter, and the largest hyperparameter of any sign."""


def tensors_of(values: ParameterValues) -> dict[str, Tensor]:
    """Return the tensors (...) of hyperparameters by name.

    Args:
        values: The hyperparameters.
    """
    out = {"center": values.space.mean.location, "spread": values.space.mean.scale, "mean.raw": values.raw["mean"]}
    for name, quantity in values.space.quantities.items():
        parts = (values.raw[name], *_parts(quantity))
        out |= {f"{name}.{part}": tensor for part, tensor in zip(_PARTS, parts, strict=True)}
    return out


_PARTS = ("raw", "start", "unit", "low", "high")


def values_of(names: list[str], tensors: Tensors, scaling: Scaling, spec: ModelSpec) -> ParameterValues:
    """Return the hyperparameters with given names and tensors.

    Args:
        names: The names of the hyperparameters, except the mean.
        tensors: The tensors (...) by name.
        scaling: The maps to standardized units.
        spec: The specification.

    Raises:
        ValueError: If they do not match the specification or the columns.
    """
    quantities = {
        name: Hyperparameter(
            tensors[f"{name}.start"], tensors[f"{name}.unit"], (tensors[f"{name}.low"], tensors[f"{name}.high"])
        )
        for name in names
    }
    mean = Affine(tensors["center"], tensors["spread"])
    check_affine(mean, scaling.targets if spec.options.likelihood.num_latents == 1 else None)
    quantities = _as_known(quantities, _quantities(spec, scaling, mean))
    for name, quantity in quantities.items():
        _check_sign(name, quantity)
    values = ParameterSpace.of(quantities, mean, scaling.targets, spec.options.hyperpriors).start
    raw = {name: tensors[f"{name}.raw"] for name in values.space.names}
    for name, value in raw.items():
        if value.shape != values.raw[name].shape or value.dtype != values.raw[name].dtype:
            raise ValueError(f"{name} must match the model, got shape {tuple(value.shape)} and {value.dtype}")
        is_log = name in quantities and quantities[name].is_positive
        if name != "mean" and not bool((value.double().abs() < (_MAX_LOG if is_log else _LARGEST)).all()):
            raise ValueError(f"{name} must be in the range of double precision")
    return values.replaced(raw)


def check_affine(affine: Affine | None, other: Affine | None = None, *, least: int = 1) -> None:
    """Check that the parts of a map agree in shape and dtype.

    They must also agree with those of another map, if there is one, and have enough columns.

    Args:
        affine: The map. If None, nothing is checked.
        other: Another map with the same shape and dtype, if any.
        least: The smallest number of columns of a map of columns. The default is 1.

    Raises:
        ValueError: If they do not.
    """
    if affine is None:
        return
    maps = [affine] if other is None else [affine, other]
    kinds = {(tensor.shape, tensor.dtype) for part in maps for tensor in (part.location, part.scale)}
    (shape, dtype), *others = kinds
    if others or len(shape) > 1 or min(shape, default=1) < least or not dtype.is_floating_point:
        raise ValueError("the parts of the scaling must agree in shape and dtype")
    if not bool(torch.isfinite(affine.scale.double().square()).all()):
        raise ValueError("the scaling must be in the range of double precision")


def _quantities(spec: ModelSpec, scaling: Scaling, mean: Affine) -> Mapping[str, Hyperparameter]:
    """Return the hyperparameters of a specification, for their names, shapes and signs."""
    assert spec.columns is not None
    summary = DataSummary(scaling, mean.location, mean.scale, mean.scale, mean.location)
    return space_of(spec, summary, None).quantities


def _as_known(
    quantities: Mapping[str, Hyperparameter], known: Mapping[str, Hyperparameter]
) -> dict[str, Hyperparameter]:
    """Return hyperparameters of a file with the flags of those of the specification, if shapes and dtypes agree."""
    if list(quantities) != list(known):
        raise ValueError(f"the hyperparameters must be {', '.join(known)}, got {', '.join(quantities)}")
    for name, quantity in quantities.items():
        expected, bounds = known[name], [bound.expand(quantity.start.shape) for bound in quantity.bounds]
        fits = quantity.start.shape == expected.start.shape and quantity.unit.shape == expected.unit.shape
        if not fits or any(part.dtype != expected.start.dtype for part in (quantity.start, quantity.unit, *bounds)):
            raise ValueError(f"{name} must match the kernel and the columns")
    return {
        name: replace(known[name], start=saved.start, unit=saved.unit, bounds=saved.bounds)
        for name, saved in quantities.items()
    }


def _parts(quantity: Hyperparameter) -> tuple[Tensor, ...]:
    return (quantity.start, quantity.unit, *quantity.bounds)


def _check_sign(name: str, quantity: Hyperparameter) -> None:
    """Check that starts and bounds of positive hyperparameters are positive."""
    if quantity.is_positive and not all(bool((tensor > 0).all()) for tensor in (quantity.start, *quantity.bounds)):
        raise ValueError(f"{name} must be positive")
