"""Families of tables in files."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rfgp.couplings import FastSimplex, Frequencies, StructuredFrequencies
from rfgp.couplings.hadamard import next_power_of_two
from rfgp.regression import FeatureFamily, FeatureOptions, KernelFamily, KernelOptions
from rfgp.saving import plain
from rfgp.saving.models import Codec, Tensors
from rfgp.scaling import Scaling


def _encode_kernel(family: KernelFamily) -> tuple[dict[str, Any], dict[str, Tensor]]:
    return plain.encode(vars(family.options)), {}


def _decode_kernel(options: Mapping[str, Any], tensors: Tensors, scaling: Scaling) -> KernelFamily:
    return KernelFamily(KernelOptions(**plain.decode(options)))


def _encode_features(family: FeatureFamily) -> tuple[dict[str, Any], dict[str, Tensor]]:
    frequencies = family.drawn_map.frequencies
    if isinstance(frequencies, StructuredFrequencies):
        draw = {"draw.signs": frequencies.signs, "draw.lengths": frequencies.lengths}
    else:
        draw = {"draw.frequencies": frequencies.dense(), "draw.weights": frequencies.weights}
    return plain.encode(vars(family.options)), draw


def _decode_features(options: Mapping[str, Any], tensors: Tensors, scaling: Scaling) -> FeatureFamily:
    family = FeatureFamily(FeatureOptions(**plain.decode(options)))
    assert scaling.inputs is not None
    shape = (family.options.num_frequencies, len(scaling.inputs.scale))
    frequencies = _frequencies(family.options, tensors, shape[1])
    if frequencies.shape != shape:
        raise ValueError(f"frequencies of shape {frequencies.shape} do not fit the options or the columns")
    _check_lengths(family.options, frequencies)
    return family.with_frequencies(frequencies)


def _check_lengths(options: FeatureOptions, frequencies: Frequencies) -> None:
    """Refuse frequencies of positive features by which exp(omega . x) overflows near the data, as no draw's are."""
    d = frequencies.shape[1]
    if options.features == "laplace" and not bool(frequencies.dense().norm(dim=1).max() < 3 * math.sqrt(d) + 40):
        raise ValueError("the frequencies are longer than those of any draw")


def _frequencies(options: FeatureOptions, tensors: Tensors, d: int) -> Frequencies:
    if "draw.signs" not in tensors:
        return Frequencies(tensors["draw.frequencies"], tensors["draw.weights"], options.coupling.is_antithetic)
    signs, lengths = tensors["draw.signs"], tensors["draw.lengths"]
    size = next_power_of_two(d)
    blocks = -(-len(lengths) // size)
    whole = signs.dtype == torch.int8 and signs.ndim == 3 and signs.shape[::2] == (blocks, size) and lengths.ndim == 1
    if not whole or not bool((signs.abs() == 1).all()):
        raise ValueError("the signs of structured frequencies do not fit the options or the columns")
    return StructuredFrequencies(signs, lengths, d, isinstance(options.coupling, FastSimplex))


FEATURES = Codec("SparseSpectrumGP", _encode_features, _decode_features)
KERNELS = Codec("ExactGP", _encode_kernel, _decode_kernel, needs_data=True)
