"""Terms with their random draws in files: a form for each kind, with JSON and tensors.

Frequencies, points and eigenvectors are tensors, because they take long to compute or depend on the processor's
rounding. Walks are drawn again from their seed and tuned settings.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphs.random import GENERATOR_VERSION
from rfgp import couplings, random
from rfgp import features as feature_maps
from rfgp.approximations import (
    Approximation,
    EquispacedFourier,
    Exact,
    InducingPoints,
    RandomFeatures,
    SparsePrecision,
    TermData,
    TermPrior,
    Vecchia,
)
from rfgp.approximations.equispaced_fourier import LatticeTerm, column_indices_of
from rfgp.approximations.exact import KernelTerm, splits_of
from rfgp.approximations.inducing_points import KernelNeighborTerm, NeighborTerm, PointTerm
from rfgp.approximations.nodes import (
    ExactFeatures,
    NodeApproximation,
    NodeFeatures,
    NodeTerm,
    SpectrumFeatures,
    make_features,
    node_term,
    nodes_of,
)
from rfgp.approximations.role import (
    FactorFeatures,
    FinitePart,
    SpectralPart,
    WeightTermPrior,
    parameter_names,
    scale_name,
)
from rfgp.approximations.sparse_precision import PrecisionTermPrior
from rfgp.errors import InvalidArgumentError
from rfgp.kernels.role import Factor
from rfgp.lattices import Lattice, Modes
from rfgp.regression.inputs import check_columns
from rfgp.saving.container import Json, Tensors
from rfgp.saving.frequencies import decode_frequencies, encode_frequencies
from rfgp.saving.node_draws import decode_walks, eigenpairs, encode_walks
from rfgp.saving.values import Decoder, Encoder

MAX_POSITION = 1e100
"""The largest coordinate in standard deviations, so that squares of distances are finite."""


LATTICE_ARRAYS = ("low", "high", "spacing", "half_widths")
"""The arrays of a lattice."""


class SavedTerm(NamedTuple):
    """The saved parts of a term with its draws.

    Attributes:
        data: The term, without a sample of rows.
        approximation: The approximation of the term.
        seed: The seed of the term.
        content: The JSON of its form.
        tensors: The tensors (...) by name.
        decoder: The decoder of values.
    """

    data: TermData
    approximation: Approximation
    seed: int
    content: Mapping[str, Any]
    tensors: Tensors
    decoder: Decoder


class _Form(NamedTuple):
    """A kind of terms in a file.

    Attributes:
        kind: The class.
        encode: A function that returns JSON, and tensors (...).
        decode: A function that returns the term.
        approximations: The approximations with this form.
        needs_data: A function that returns whether predictions of a term need the rows.
    """

    kind: type
    encode: Callable[[Any, Encoder], tuple[Json, dict[str, Tensor]]]
    decode: Callable[[SavedTerm], TermPrior]
    approximations: tuple[type[Approximation], ...]
    needs_data: Callable[[Any], bool] = lambda prior: False


def encode_draw(prior: TermPrior, encoder: Encoder) -> tuple[Json, dict[str, Tensor]]:
    """Return a term with its draws as JSON, and its tensors (...).

    Args:
        prior: The term with its draws.
        encoder: The encoder of values.

    Raises:
        InvalidArgumentError: If its class cannot be saved.
    """
    name = _form_of(prior)
    content, tensors = _FORMS[name].encode(prior, encoder)
    return {"form": name, **content}, tensors


def decode_draw(saved: SavedTerm) -> TermPrior:
    """Return the term that `encode_draw` wrote.

    Args:
        saved: The saved parts of the term.

    Raises:
        InvalidArgumentError: If the term does not support the approximation.
        ValueError: If the draws do not match the approximation or the term.
    """
    form = _FORMS[saved.content["form"]]
    if not isinstance(saved.approximation, form.approximations):
        raise ValueError(f"{saved.approximation!r} does not match {form.kind.__name__}")
    saved.approximation.check(saved.data)
    return form.decode(saved)


def needs_data(prior: TermPrior) -> bool:
    """Return whether predictions of a term need the rows.

    Args:
        prior: The term with its draws.
    """
    return _FORMS[_form_of(prior)].needs_data(prior)


def _form_of(prior: TermPrior) -> str:
    for name, form in _FORMS.items():
        if type(prior) is form.kind:
            return name
    raise InvalidArgumentError(f"A term must have a class that can be saved, got {type(prior).__name__}.")


def _nothing(prior: TermPrior, encoder: Encoder) -> tuple[Json, dict[str, Tensor]]:
    return {}, {}


def _encode_kernel(prior: KernelTerm, encoder: Encoder) -> tuple[Json, dict[str, Tensor]]:
    return {} if prior.split is None else {"split": [list(side) for side in prior.split]}, {}


def _kernel(saved: SavedTerm) -> TermPrior:
    known = saved.content.get("split")
    splits = [split for split in splits_of(saved.data.term) if [list(side) for side in split] == known]
    if known is not None and not splits:
        raise ValueError("the factors of a product must be divided into two sides")
    return KernelTerm(saved.data.term, parameter_names(saved.data, with_scale=True), splits[0] if splits else None)


def _precision(saved: SavedTerm) -> TermPrior:
    return PrecisionTermPrior(saved.data.term, scale_name(saved.data.term, saved.data.values))


def _neighbors(saved: SavedTerm) -> TermPrior:
    return saved.approximation.build(saved.data, saved.seed)


# --- weights ---------------------------------------------------------------------------------------


def _encode_weights(prior: WeightTermPrior, encoder: Encoder) -> tuple[Json, dict[str, Tensor]]:
    """Return the series of factors, None for a factor itself, and the tensors of frequencies (m, d)."""
    finite = [part for part in prior.parts if isinstance(part, FinitePart)]
    spectral = [part for part in prior.parts if isinstance(part, SpectralPart)]
    if len(finite) + len(spectral) < len(prior.parts) or len(spectral) > 1:
        raise InvalidArgumentError("The features must have a class that can be saved, got others.")
    factors = [id(factor) for factor in prior.term.term.factors]
    series = [None if id(part.factor) in factors else encoder.encode(part.factor) for part in finite]
    tensors = encode_frequencies(spectral[0].feature_map.frequencies) if spectral else {}
    return {"series": series, "has_frequencies": bool(spectral)}, tensors


def _weights(saved: SavedTerm) -> TermPrior:
    parts, data = list(saved.data.term.parts()), saved.data
    spectral = [part for part in parts if part[0].measure is not None] if saved.content["has_frequencies"] else []
    finite = [part for part in parts if not any(part is other for other in spectral)]
    restored = list[FactorFeatures]()
    for (factor, indices, prefix), content in zip(finite, saved.content["series"], strict=True):
        series = factor if content is None else _series(factor, saved.decoder.decode(content))
        if series.functions(data.columns.select(indices)) is None:
            raise ValueError(f"all factors of {data.term.name} must have finitely many functions")
        restored.append(FinitePart(series, indices, prefix))
    if spectral:
        restored.insert(0, _spectral(saved, spectral))
    return WeightTermPrior.of(data, restored)


def _series(factor: Factor, saved: Any) -> Factor:
    """Return the series of a factor."""
    known = factor.series({name: torch.ones((), dtype=torch.float64) for name in factor.starts})
    if known is None or type(saved) is not type(known) or saved.columns != factor.columns:
        raise ValueError("a series must match its factor")
    series: Factor = saved
    return series


def _spectral(saved: SavedTerm, spectral: list[tuple[Factor, list[int], str]]) -> SpectralPart:
    """Return the random features of stationary factors."""
    approximation = saved.approximation
    if not isinstance(approximation, RandomFeatures):
        raise ValueError(f"{approximation!r} has no frequencies")
    places, prefixes = tuple(indices for _, indices, _ in spectral), tuple(prefix for *_, prefix in spectral)
    shape = approximation.num_frequencies, sum(map(len, places))
    coupling = couplings.for_features(approximation.coupling, approximation.kind)
    frequencies = decode_frequencies(saved.tensors, shape, coupling, approximation.kind)
    feature_map = feature_maps.by_name(approximation.kind)(frequencies)
    path = f"{saved.data.term.name}.frequencies" if approximation.learn_frequencies else None
    return SpectralPart(places, prefixes, feature_map, path)


# --- points ----------------------------------------------------------------------------------------


def _encode_points(prior: PointTerm, encoder: Encoder) -> tuple[Json, dict[str, Tensor]]:
    return {}, {"points": prior.points}


def _points(saved: SavedTerm) -> TermPrior:
    points, data, approximation = saved.tensors["points"], saved.data, saved.approximation
    assert isinstance(approximation, InducingPoints)
    fits = points.ndim == 2 and points.shape[1] == data.columns.num_columns and points.dtype == torch.float64
    if not fits or not 0 < len(points) <= approximation.num_points or not bool((points.abs() < MAX_POSITION).all()):
        raise ValueError("the inducing points must match the options and the columns")
    check_columns([data.term], data.columns, points)
    return approximation.with_points(data, points, saved.seed)


def _always(prior: TermPrior) -> bool:
    return True


# --- lattices --------------------------------------------------------------------------------------


def _encode_lattice(prior: LatticeTerm, encoder: Encoder) -> tuple[Json, dict[str, Tensor]]:
    modes, lattice = prior.design.modes, prior.design.lattice
    arrays = {name: getattr(lattice, name) for name in LATTICE_ARRAYS} | {"indices": modes.indices}
    return {}, {name: torch.as_tensor(np.array(array)) for name, array in arrays.items()}


def _lattice(saved: SavedTerm) -> TermPrior:
    approximation, data, tensors = saved.approximation, saved.data, saved.tensors
    assert isinstance(approximation, EquispacedFourier)
    columns = column_indices_of(data.term)
    arrays = [tensors[name] for name in LATTICE_ARRAYS]
    kinds = (torch.float64, torch.float64, torch.float64, torch.int64)
    if any(array.shape != (len(columns),) or array.dtype != kind for array, kind in zip(arrays, kinds, strict=True)):
        raise ValueError("the lattice must match the columns")
    low, high, spacing, widths = (array.numpy() for array in arrays)
    is_sound = bool((np.abs([low, high]) < MAX_POSITION).all() and (low <= high).all() and (spacing > 0).all())
    if not is_sound or not (spacing * (high - low) < 1).all() or not ((widths > 0) & (widths < 2**31)).all():
        raise ValueError("the lattice must match the range of the rows")
    indices = tensors["indices"]
    is_mode = indices.ndim == 2 and indices.shape[1] == len(columns) and indices.dtype == torch.int64
    if not is_mode or not bool((indices.abs() <= arrays[3]).all()) or 2 * len(indices) + 1 > approximation.max_features:
        raise ValueError("the modes must be on the lattice")
    if len(torch.unique(torch.cat([indices, -indices, 0 * arrays[3][None]]), dim=0)) < 2 * len(indices) + 1:
        raise ValueError("the modes of the lattice must be unique")
    return approximation.with_modes(data, Modes(Lattice(columns, low, high, spacing, widths), indices.numpy()))


# --- nodes -----------------------------------------------------------------------------------------


def _encode_nodes(prior: NodeTerm, encoder: Encoder) -> tuple[Json, dict[str, Tensor]]:
    """Return the settings of draws of features, and eigenvalues (r,) and eigenvectors (N, r)."""
    features, tensors = prior.features, dict[str, Tensor]()
    walks = features.walks
    if isinstance(features, SpectrumFeatures):  # they differ between machines by rotations and reflections
        arrays = {"eigenvalues": features.draw.eigenvalues, "eigenvectors": features.draw.eigenvectors}
        tensors = {name: torch.as_tensor(np.array(array)) for name, array in arrays.items()}
    halt = None if walks is None else encoder.encode(walks.settings.halting.p_halt)
    return {
        "kind": features.name,
        "size": features.size_options,
        "halt": halt,
        "generator": GENERATOR_VERSION,
        **encode_walks(walks),
    }, tensors


def _nodes(saved: SavedTerm) -> TermPrior:
    return node_term(saved.data, _features_of_nodes(saved))


def _features_of_nodes(saved: SavedTerm) -> NodeFeatures:
    """Return the features of nodes."""
    approximation, content = saved.approximation, saved.content
    graph, kernel, _ = nodes_of(saved.data)
    kind = content["kind"]
    if kind == "exact":
        return ExactFeatures(graph, kernel)
    assert isinstance(approximation, NodeApproximation)
    if kind == "spectrum":
        arrays = {name: tensor.numpy() for name, tensor in saved.tensors.items()}
        return SpectrumFeatures(eigenpairs(graph, arrays), kernel)
    is_walk = kind == "walks"
    if is_walk and content["generator"] != GENERATOR_VERSION:
        raise InvalidArgumentError(
            f"the walks must have generator {GENERATOR_VERSION} of this version, got {content['generator']}"
        )
    options = {**approximation.options, **_size(content["size"])}
    options |= decode_walks(content, options["lengths"] if is_walk else None)
    options |= {"p_halt": saved.decoder.decode(content["halt"])} if is_walk else {}
    seed = saved.seed if approximation.seed is None else random.resolve_seed(approximation.seed)
    return make_features(kind, graph, kernel, seed, options)


def _size(content: Any) -> dict[str, int]:
    """Return the degree of a series, or the number of fields."""
    if not set(content) <= {"degree"} or not all(type(size) is int for size in content.values()):
        raise ValueError("the features of nodes must have a valid size")
    return dict(content)


_FORMS = {
    "kernel": _Form(KernelTerm, _encode_kernel, _kernel, (Exact,), _always),
    "weights": _Form(WeightTermPrior, _encode_weights, _weights, (Exact, RandomFeatures)),
    "lattice": _Form(LatticeTerm, _encode_lattice, _lattice, (EquispacedFourier,)),
    "points": _Form(PointTerm, _encode_points, _points, (InducingPoints,), lambda prior: prior.neighbors is not None),
    "neighbors": _Form(NeighborTerm, _nothing, _neighbors, (Vecchia,), _always),
    "neighbors of a kernel": _Form(KernelNeighborTerm, _nothing, _neighbors, (Vecchia,), _always),
    "precision": _Form(PrecisionTermPrior, _nothing, _precision, (SparsePrecision,)),
    "nodes": _Form(NodeTerm, _encode_nodes, _nodes, (NodeApproximation, Exact)),
}
