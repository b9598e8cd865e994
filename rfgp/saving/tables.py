"""Families of tables in files."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rfgp.features.inducing import JITTER
from rfgp.regression import (
    FeatureFamily,
    FeatureOptions,
    InducingFamily,
    KernelFamily,
    KernelOptions,
    LocalFamily,
    Member,
    TableFamily,
    family_of,
    kind_of,
)
from rfgp.saving import plain
from rfgp.saving.frequencies import decode_frequencies, encode_frequencies
from rfgp.saving.models import Codec, Tensors, part, tensors_of, values_of
from rfgp.scaling import Scaling

_FAR = 1e100
"""The largest coordinate in standard deviations, so that squares of distances are finite."""
_ROUNDING = 1e-9
_LEAST_JITTER = 1e-12
"""The least jitter of inducing points in a file."""
_ALONE = "none"
"""The features of neighbours alone; files have no None."""


def _encode(family: TableFamily) -> tuple[dict[str, Any], dict[str, Tensor]]:
    options = {**plain.encode(vars(family.options)), "features": family.options.features or _ALONE}
    if isinstance(family, InducingFamily):
        options |= {} if family.jitter is None else {"jitter": family.jitter}
        return options, {"draw.points": family.drawn_points, "draw.lengthscale": family.chosen_at}
    if isinstance(family, KernelFamily):
        return _with_members(options, family)
    if not isinstance(family.options, FeatureOptions):
        return options, {}
    drawn = encode_frequencies(family.drawn_map.frequencies)
    return options, {f"draw.{name}": tensor for name, tensor in drawn.items()}


def _with_members(options: dict[str, Any], family: KernelFamily) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the options of an exact process with those of the others in its average, and their tensors (...)."""
    if not family.others:
        return options, {}
    members, tensors = [], dict[str, Tensor]()
    for number, member in enumerate(family.others):
        known, chosen = list(member.values.space.quantities), plain.encode(vars(member.family.options))
        members.append({"weight": member.weight, "options": chosen, "quantities": known})
        parts = tensors_of(member.values).items()
        tensors |= {f"draw.members.{number}.{name}": tensor for name, tensor in parts}
    return {**options, "average": {"weight": family.weight, "members": members}}, tensors


def _average(content: Mapping[str, Any], family: KernelFamily, tensors: Tensors, scaling: Scaling) -> KernelFamily:
    """Return the family averaged with others.

    Raises:
        ValueError: the weights are invalid, or a member does not fit the average.
    """
    others = list[Member]()
    for number, entry in enumerate(content["members"]):
        own = KernelFamily(KernelOptions(**plain.decode(entry["options"])))
        values = values_of(entry["quantities"], part(tensors, f"draw.members.{number}."), scaling, own)
        others.append(Member(entry["weight"], own, values))
    weights = [content["weight"], *(member.weight for member in others)]
    if not others or not all(isinstance(weight, float) and weight > 0 for weight in weights):
        raise ValueError("the weights of an average are no positive numbers")
    if abs(sum(weights) - 1) > _ROUNDING or scaling.targets.scale.numel() > 1:
        raise ValueError("the weights of an average do not sum to one, or there are several outputs")
    return replace(family, weight=weights[0], others=tuple(others))


def _decode(options: Mapping[str, Any], tensors: Tensors, scaling: Scaling) -> TableFamily:
    average = options.get("average")
    chosen = plain.decode({name: value for name, value in options.items() if name != "average"})
    features, jitter = chosen.pop("features", "exact"), chosen.pop("jitter", None)
    kind = kind_of(None if features == _ALONE else features)
    family = family_of(kind(**chosen, **({"features": features} if kind is FeatureOptions else {})))
    if isinstance(family, InducingFamily):
        return replace(_with_points(family, tensors, scaling), jitter=_jitter(jitter, scaling))
    if isinstance(family, KernelFamily):
        return family if average is None else _average(average, family, tensors, scaling)
    return _with_draw(family, tensors, scaling)


def _with_points(family: InducingFamily, tensors: Tensors, scaling: Scaling) -> InducingFamily:
    assert scaling.inputs is not None
    points, lengthscale = tensors["draw.points"], tensors["draw.lengthscale"]
    columns, many = len(scaling.inputs.scale), family.options.num_inducing
    fits = points.ndim == 2 and points.shape[1] == columns and points.dtype == lengthscale.dtype == torch.float64
    if not fits or not 0 < len(points) <= many or not bool(points.abs().max() < _FAR):
        raise ValueError("the inducing points do not fit the options or the columns")
    if lengthscale.shape not in ((), (columns,)) or not bool(
        (lengthscale > 1 / _FAR).logical_and(lengthscale < _FAR).all()
    ):
        raise ValueError("the lengthscale that the inducing points were chosen at does not fit them")
    return replace(family, points=points, lengthscale=lengthscale)


def _jitter(jitter: Any, scaling: Scaling) -> float | None:
    """Return the jitter of inducing points. Files of float32 models without one are older, and have that of float32.

    Raises:
        ValueError: the jitter is out of range.
    """
    if jitter is None:
        assert scaling.inputs is not None
        return None if scaling.inputs.scale.dtype == torch.float64 else JITTER[torch.float32]
    if not isinstance(jitter, float) or not _LEAST_JITTER <= jitter <= 1:
        raise ValueError("the jitter of the inducing points is out of range")
    return jitter


def _with_draw(family: FeatureFamily | LocalFamily, tensors: Tensors, scaling: Scaling) -> FeatureFamily | LocalFamily:
    options = family.options
    if not isinstance(options, FeatureOptions):
        return family
    assert scaling.inputs is not None
    shape = (options.num_frequencies, len(scaling.inputs.scale))
    frequencies = decode_frequencies(part(tensors, "draw."), shape, options.coupling, options.features)
    return family.with_frequencies(frequencies)


def _needs_data(family: TableFamily) -> bool:
    if isinstance(family, InducingFamily):
        return family.options.has_residual
    return not isinstance(family, FeatureFamily)


def _codec(name: str, kind: type[KernelOptions] | None = None) -> Codec:
    """Return that of a class of models whose options are of one kind, or of any."""

    def decode(options: Mapping[str, Any], tensors: Tensors, scaling: Scaling) -> TableFamily:
        family = _decode(options, tensors, scaling)
        if kind is not None and type(family.options) is not kind:
            raise ValueError(f"the options are not those of a {name}")
        return family

    return Codec((name,), _encode, decode, _needs_data)


FEATURES = _codec("SparseSpectrumGP", FeatureOptions)
KERNELS = _codec("ExactGP", KernelOptions)
TABLES = _codec("TableGP")
